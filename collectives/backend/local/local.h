/* The engine of backends thread and shm: ranks that share memory.
 *
 * The segment, the same bytes at each member:
 *
 *   head     wakeup word and sleepers (for waiters), failure (the first one, for all)
 *   line i   rank i's cell[2], written by rank i alone
 *   area i   rank i's stages, slots for each parity; filled by rank i
 *   ring s,r a queue of slots from rank s to rank r, for send and recv
 *
 * Collectives go in rounds, counted over the life of the group; all members agree on the number n.
 * In a round a rank writes its stage and its cell, posts n in the cell, waits until the others have
 * posted n, and reads. Stage, result and cell are those of the parity of n.
 *
 *   rule 1   a rank posts n only after it has finished reading from rounds < n
 *   rule 2   a rank writes for round n only after all have posted n - 1
 *   rule 3   and where a call waited for the root alone, compares then what all have called
 *
 * so no rank reads the data of round n - 2 any more, and two buffers are enough: a collective costs
 * one flag round per chunk. For speed there may be more: a line that the others have just read is
 * slow to write, so where all read a stage, rounds of one parity rotate through stage slots, and a
 * line is written again when it has left their caches. Small messages stay in the first slot. A
 * cell is one cache line: data that fits into it is read together with the flag, in one cache-line
 * transfer from core to core.
 *
 * An all_reduce above the flat size is a pipeline. Each rank adds up its share of a chunk, and puts
 * the sum where it found the operands, in the others' stages:
 *
 *   round k   stage     chunk k into the own stage, but for the own share
 *             collect   the other shares of chunk k - 1 from there, added up by now
 *             reduce    the own share of chunk k: the own input and the others' stages, in rank
 *                       order, to the own output and back to the others' stages
 *
 * So a line moves to the rank that reduces it and back, it has one owner at a time, and no other
 * core's copy must be invalidated before it is written again: that costs more than all the rest
 * where cores are far from each other. Each element is reduced by one rank, in the mode's order:
 * all get the same bits. The rules hold: a rank writes into another's stage in a round that the
 * other has posted, and before it posts the next, and the other reads it after that.
 *
 * More ranks than a few may be spread over several caches and sockets (domains.h): then flags, and
 * large data, cross the boundary of a domain once, not once per rank (local_domains.c). The first
 * rank of a domain reports that all of it have posted. A rank that does not see this in time polls
 * the cells themselves, so that no rank depends on the first one's progress.
 *
 * Symmetric memory (ctrun.h) needs no stages:
 *
 *   offer    each rank's cell has the place of its buffers: allocation and offset. A rank without
 *            an offer stages its first chunk in the same round
 *     all offer, all mapped ---> direct    use them in place, then one round to leave
 *     all offer, some new -----> register  map the new ones, report the result; then direct
 *     no offers ---------------> staged    the first chunk is there already
 *     some offer, or not mapped> staged    from the next round on
 *
 * All ranks see the same offers and the same answers, so all of them take the same path. */
#ifndef CT_COLL_LOCAL_H
#define CT_COLL_LOCAL_H

#include "algorithm/domains.h"
#include "backend/backend.h"
#include "job/symmetric_memory.h"

struct ct_segment_head {
    _Alignas(128) uint64_t token[2];      /* random: identifies the segment */
    _Alignas(64) _Atomic uint32_t wakeup; /* futex word */
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic int32_t failure;
    _Atomic int32_t failed_rank;
};

enum { CT_CELL_BYTES = 32, CT_OFFERS = 2 };

struct ct_segment_cell {
    _Alignas(128) _Atomic uint64_t posted;
    struct ct_signature signature; /* of the call that began in this round */
    double scale;                  /* and its factor, of a premultiplied sum */
    union {
        char data[CT_CELL_BYTES];                /* a stage for what is small enough */
        struct ct_memory_place offer[CT_OFFERS]; /* input, output */
        uint64_t mapped;                         /* in a round that registers */
    };
};
_Static_assert(sizeof(struct ct_segment_cell) == 128 &&
                   offsetof(struct ct_segment_cell, data) + CT_CELL_BYTES == 64,
               "one cache line, and one that stays empty for the prefetcher's sake");

/* The report of the first rank of a domain: all its ranks have posted this round of this call. */
struct ct_segment_gathered {
    _Alignas(128) _Atomic uint64_t posted;
    struct ct_signature signature;
};

struct ct_segment_line {
    struct ct_segment_cell cell[2];
    struct ct_segment_gathered gathered[2];
    struct ct_memory_handle handle[CT_OFFERS]; /* of allocations offered for the first time */
    _Atomic uint32_t left;                     /* not 0: the rank has closed the group */
    uint64_t cpus[CT_SEAT_WORDS];              /* the cores that the rank may run on */
    struct ct_seat seat;                       /* their cache and socket */
};

/* One slot of a ring; its bytes follow. */
struct ct_segment_slot {
    _Alignas(64) struct ct_signature signature;
    uint64_t bytes;
};

struct ct_segment_ring {
    _Alignas(64) _Atomic uint64_t head; /* slots filled, by the sender */
    _Alignas(64) _Atomic uint64_t tail; /* slots emptied, by the receiver */
};

enum { CT_RING_SLOTS = 4 };

/* An allocation of one rank that was offered in this group, in a list. */
struct ct_local_allocation {
    struct ct_local_allocation *next;
    uint64_t id;
    struct ct_mapping *mapping;                   /* NULL: its addresses are valid here */
    char *base;                                   /* NULL: not mapped here */
    enum { CT_NEW, CT_USABLE, CT_USELESS } state; /* by all members */
};

/* The addresses of the buffers of a direct call, by rank. */
struct ct_local_reach {
    struct ct_local_allocation *allocations;
    char *buffer[CT_OFFERS]; /* input, output */
};

struct ct_local {
    struct ct_segment_head *head;
    int rank, size;
    struct ct_tuning tuning;
    size_t chunk_bytes, block_bytes, slot_bytes;
    size_t areas_at, area_bytes, rings_at, ring_bytes, total_bytes;
    size_t stage_bytes;                      /* of a rank's stage for rounds of one parity */
    size_t stage_slots, stage_slot_bytes;    /* how this call divides it */
    bool wakeup_due;                         /* posted, and no sleeper was woken yet */
    bool small_posted;                       /* by the fast path, for the call that begins next */
    uint64_t round;                          /* the next round of collectives */
    uint64_t arrived;                        /* the last round that all are known to have posted */
    uint64_t unchecked;                      /* a round that began a call, of which not all ranks */
    struct ct_signature unchecked_call;      /* were waited for, and that call; see rule 3 */
    int polls;                               /* of a flag, before anything else is done */
    int missing;                             /* the rank that the last poll did not find */
    bool crowded;                            /* more ranks than cores */
    bool one_process;                        /* addresses of one rank are valid at the others */
    const struct ct_seat *seat_override;     /* set by tests, or NULL */
    struct ct_seat *seats;                   /* of all ranks */
    struct ct_domains domains;               /* of all ranks; one where they are not used */
    int domain;                              /* this rank's */
    const void **sources;                    /* of a reduction: its operands, */
    void **copies;                           /* and further copies of its result */
    double *factors;                         /* of a premultiplied sum under way, by rank */
    struct ct_memory *memory;                /* the job's */
    struct ct_local_reach *reach;            /* of each rank */
    void (*release)(struct ct_local *local); /* give the memory back */
    void *owner;                             /* for `release` */
    int fd;                                  /* shm: the memfd until all have mapped it; or -1 */
};

/* Make the state of one member, with the layout computed and `head` NULL. NULL without memory. */
struct ct_local *ct_local_new(const struct ct_setup *setup);

/* Use the segment at `memory` (zeroed at first, total_bytes long). */
void ct_local_attach(struct ct_local *local, void *memory);

/* ---- between the files of the engine ---- */
/* Divide the stage into slots for a call that needs `bytes` of it in a round. */
void ct_local_begin_slots(struct ct_local *local, size_t bytes);
/* Return the stage of `rank` for this round. */
char *ct_local_stage(const struct ct_local *local, int rank, uint64_t round);
static inline struct ct_segment_line *ct_local_line(const struct ct_local *local, int rank)
{
    return (struct ct_segment_line *)(local->head + 1) + rank;
}

static inline struct ct_segment_cell *ct_local_cell(const struct ct_local *local, int rank,
                                                    uint64_t round)
{
    return &ct_local_line(local, rank)->cell[round & 1];
}

/* Return the ring of slots from one rank to another. */
struct ct_segment_ring *ct_local_ring(const struct ct_local *local, int from, int to);

/* Wake sleeping ranks; called after each store that others wait for. */
void ct_local_notify(const struct ct_local *local);

/* Return 1 when `rank` has posted `round`; 0 not yet; CT_ECLOSED when it never will. */
int ct_local_arrived(struct ct_local *local, int rank, uint64_t round, struct ct_error *err);

/* Advance a collective; a send or a receive; as ct_backend.progress. */
int ct_local_collective(struct ct_local *local, struct ct_task *task, struct ct_error *err);
int ct_local_transfer(struct ct_local *local, struct ct_task *task, struct ct_error *err);

/* ---- the functions of struct ct_backend ---- */
void ct_local_complete(void *state);
int ct_local_progress(void *state, struct ct_task *task, struct ct_error *err);
bool ct_local_post(void *state, const struct ct_small_message *message);
bool ct_local_collect(void *state, const struct ct_small_message *message);
int ct_local_spins(const void *state);
uint32_t ct_local_arm(void *state);
void ct_local_park(void *state, uint32_t armed, uint64_t timeout_ns);
int ct_local_missing(void *state, const struct ct_task *task);
void ct_local_fail(void *state, int code);
void ct_local_wake(void *state);
void ct_local_revoke(void *state);
void ct_local_close(void *state);

#endif
