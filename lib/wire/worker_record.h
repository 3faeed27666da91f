/* The worker's record: a worker's activity, for an agent that cannot ask it.
 *
 * A memfd for each worker (descriptor CTRUN_RECORD_FD), written by the worker, mapped read-only by
 * its agent, who reads it whether the worker runs, hangs, is stopped or is dead; its last calls one
 * by one lie behind it (flight.h):
 *
 *     worker                          it writes                 agent, twice a second
 *     ct_worker_record_at(STEP, 17)   section, step       \
 *     a group's call                  entered++            |   ct_worker_record_read -> view
 *     it has to wait                  waiting, since_ns     >  .signs as last time: no heartbeat
 *     each 10 ms of a wait            heartbeat_ns, awaited |   .progress as last time: it waits
 *     the call is over                completed++         /
 *
 * Every field is one atomic, so no value is torn; fields that belong together may be of two moments
 * when the worker is stopped between two stores, which the verdict on it survives. What says that
 * others count is set last, and read first: a slot's id, `waiting` (since when, which call),
 * `failure` (who was awaited), `steps` (their durations), `straggler_count`. A call that finds all
 * its peers there costs two relaxed stores. The writer never waits for a reader.
 *
 * Writers: ct_worker_record_at one thread of the process; a group's slot that group's one thread.
 */
#ifndef CT_WIRE_WORKER_RECORD_H
#define CT_WIRE_WORKER_RECORD_H

#include "base/error.h"
#include "wire/flight.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_RECORD_GROUPS = 16,     /* groups that are recorded at a time; more go unrecorded */
    CT_RECORD_DURATIONS = 256, /* last steps whose duration is kept; a power of two */
    CT_RECORD_NAME = 32,       /* bytes of a group's name, of a call's words */
    CT_RECORD_TEXT = 64,
    CT_RECORD_PROGRAM = 240, /* bytes of the path of the worker's program */
};

/* `waiting` of a send or recv: they are not counted. */
#define CT_RECORD_TRANSFER UINT64_MAX

/* The section of the program that a worker runs. Each has a timeout of its own
 * (diagnose/watch.h). */
enum ct_record_section {
    CT_RECORD_START, /* until its first step of a round */
    CT_RECORD_STEP,  /* in the step after the number `step` */
    CT_RECORD_EVALUATE,
    CT_RECORD_CHECKPOINT, /* reading or writing one */
    CT_RECORD_PUBLISH,    /* waiting until one is published */
    CT_RECORD_AWAY,       /* waits for its agent: between two rounds */
};

/* One group's calls. Collectives count from 1, as they are started; all members count alike. */
struct ct_record_group {
    _Atomic uint64_t id;         /* equal at all members; 0: the slot is free; ~0: being filled */
    _Atomic uint64_t owners;     /* that it has had: a group may come again under its id */
    _Atomic uint32_t rank, size; /* this member's place in it, how many there are */
    _Atomic int32_t failure;     /* why it is broken (CT_E...); 0: it is not */
    _Atomic uint32_t over;       /* 1: freed, but shown until the next round, because it broke */
    _Atomic uint64_t entered, completed;
    _Atomic uint64_t waiting; /* the collective that is waited for; 0: none */
    _Atomic uint64_t since_ns;
    _Atomic uint64_t heartbeat_ns, moves; /* signs of life and of progress while waiting */
    _Atomic uint32_t awaited; /* a rank of the job that did not come yet, + 1; 0: unknown */
    _Atomic char name[CT_RECORD_NAME];
    _Atomic char text[CT_RECORD_TEXT]; /* the call that is waited for: "all_reduce of 10 F32" */
};

struct ct_worker_record {
    uint32_t magic, version;
    _Atomic uint32_t opened; /* 1: a worker that writes it has it */
    _Atomic uint32_t section;
    _Atomic uint64_t step; /* completed ones */
    _Atomic uint64_t since_ns;
    _Atomic uint64_t alive_ns; /* a sign of life outside of collectives */
    _Atomic uint64_t steps;    /* how many durations were written, of this process */
    _Atomic uint32_t durations_us[CT_RECORD_DURATIONS];
    _Atomic uint64_t straggler_count;                            /* +1 at each finding */
    _Atomic uint32_t straggler, straggler_share, straggler_cost; /* rank, per cent, per cent */
    _Atomic uint32_t pid, rank, world; /* who writes it, and its place in the round */
    _Atomic uint64_t generation;
    _Atomic uint64_t program_at; /* where the program lies in the worker's memory */
    _Atomic char program[CT_RECORD_PROGRAM];
    struct ct_ticks_pair base; /* when the record was made; the agent's */
    struct ct_record_group groups[CT_RECORD_GROUPS];
    struct ct_flight_ring flight;
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_CHAR_LOCK_FREE == 2, "shared by processes");

/* ---- agent ---- */
/* Create a new record, mapped read-only; `*ret_fd` is its memfd (close-on-exec) for the worker,
 * which can neither shrink nor grow it. 0, or a negative errno. */
int ct_worker_record_new(const struct ct_worker_record **ret_record, int *ret_fd,
                         struct ct_error *err);

/* Map the record behind `fd` read-only, for example of another agent's worker. Errors as
 * ct_worker_record_open. */
int ct_worker_record_map(int fd, const struct ct_worker_record **ret_record, struct ct_error *err);

/* One group as it was read. */
struct ct_record_call {
    uint64_t id, entered, completed, waiting, since_ns;
    uint32_t rank, size; /* in the group */
    int failure;
    int awaited; /* -1: unknown */
    char name[CT_RECORD_NAME];
    char text[CT_RECORD_TEXT];
};

struct ct_record_view {
    bool opened;
    enum ct_record_section section;
    uint64_t step;
    uint64_t signs;    /* changes with every sign of life */
    uint64_t progress; /* changes when anything but waiting goes on */
    uint32_t group_count;
    struct ct_record_call groups[CT_RECORD_GROUPS];
    uint64_t straggler_count;
    uint32_t straggler, straggler_share, straggler_cost;
    uint32_t pid, rank, world; /* 0, 0, 0: it has no place yet */
    uint64_t generation;
    uint64_t program_at;
    char program[CT_RECORD_PROGRAM];
};

/* Read it. Whatever a worker wrote, the view is well-formed: sections exist, texts end. */
void ct_worker_record_read(const struct ct_worker_record *record, struct ct_record_view *ret_view);

/* Return the durations of its last steps in microseconds, at most `room`, in any order. Returns
 * their number. */
uint32_t ct_worker_record_durations(const struct ct_worker_record *record, uint32_t *ret_us,
                                    uint32_t room);

/* Return the time of the worker's last sign of life, on CLOCK_MONOTONIC: a step, a call, a
 * heartbeat of a wait; 0: it never did. */
uint64_t ct_worker_record_alive_ns(const struct ct_worker_record *record, struct ct_ticks_pair now);

/* The moment `ticks` of an entry of its flight recorder, on CLOCK_MONOTONIC; `now` is taken by the
 * reader. */
static inline uint64_t ct_worker_record_ns(const struct ct_worker_record *record,
                                           struct ct_ticks_pair now, uint64_t ticks)
{
    return ct_ticks_to_ns(record->base, now, ticks);
}

/* ---- worker ---- */
/* Map the record behind `fd` (which may be closed then). 0; CT_EPROTOCOL when it is none; a
 * negative errno. */
int ct_worker_record_open(int fd, struct ct_worker_record **ret_record, struct ct_error *err);

/* Set the writer: the program of process `pid`, mapped at `at` in its memory. */
void ct_worker_record_program(struct ct_worker_record *record, uint32_t pid, const char *program,
                              uint64_t at);

/* Set the worker's place in a round. */
void ct_worker_record_place(struct ct_worker_record *record, uint64_t generation, uint32_t rank,
                            uint32_t world);

/* Set the worker's section from `now_ns` on, with `step` steps completed. When it was in STEP with
 * one step less, the duration of that step is kept. */
void ct_worker_record_at(struct ct_worker_record *record, enum ct_record_section section,
                         uint64_t step, uint64_t now_ns);

/* Send a heartbeat of a wait outside of collectives: in the store, for a connection. */
static inline void ct_worker_record_alive(struct ct_worker_record *record, uint64_t now_ns)
{
    if (record != NULL)
        atomic_store_explicit(&record->alive_ns, now_ns, memory_order_relaxed);
}

/* Record the ranks' finding that `rank` was last at `share` per cent of the steps and cost `cost`
 * per cent. */
void ct_worker_record_straggler(struct ct_worker_record *record, uint32_t rank, uint32_t share,
                                uint32_t cost);

/* Allocate a slot for a group of key `key`, whose members connect from now on and in which this one
 * is `rank` of `size`; NULL when all slots are in use, or for a NULL record. */
struct ct_record_group *ct_worker_record_group_new(struct ct_worker_record *record, const char *key,
                                                   uint32_t rank, uint32_t size);

/* Free the group's slot. A broken one is kept, so that its agent can read the cause of the worker's
 * end, until the worker gets its place in another round or the slot is needed. NULL is ignored. */
void ct_worker_record_group_free(struct ct_record_group *group);

/* Record that the group's thread begins to wait for collective `number` (or CT_RECORD_TRANSFER);
 * set the text of that call; record the end of the wait. */
void ct_worker_record_wait(struct ct_record_group *group, uint64_t number, uint64_t now_ns);
void ct_worker_record_text(struct ct_record_group *group, const char *text);
void ct_worker_record_woke(struct ct_record_group *group);

/* The group is broken; who sees this sees the rank that was awaited, too. */
static inline void ct_worker_record_failed(struct ct_record_group *group, int code)
{
    atomic_store_explicit(&group->failure, code, memory_order_release);
}

static inline void ct_worker_record_heartbeat(struct ct_record_group *group, uint64_t now_ns,
                                              uint64_t moves, int awaited)
{
    atomic_store_explicit(&group->heartbeat_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&group->moves, moves, memory_order_relaxed);
    atomic_store_explicit(&group->awaited, (uint32_t)(awaited + 1), memory_order_relaxed);
}

static inline void ct_worker_record_entered(struct ct_record_group *group, uint64_t number)
{
    atomic_store_explicit(&group->entered, number, memory_order_relaxed);
}

static inline void ct_worker_record_completed(struct ct_record_group *group, uint64_t number)
{
    atomic_store_explicit(&group->completed, number, memory_order_relaxed);
}

/* ---- both ---- */
void ct_worker_record_unmap(const struct ct_worker_record *record);

#endif
