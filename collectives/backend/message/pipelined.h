/* Pipelined collectives over pairs of ranks, without the transport: how the data is split, what is
 * sent and received when, and what is reduced. Backends that connect each rank with each (tcp by
 * streams; ucx and mpi by messages, message.h) move the bytes.
 *
 * A collective is split into chunks, and runs in pipeline steps: in step s, chunk c is in phase
 * s - c of its schedule (step_schedule.h), so that the chunks in flight are each in another phase
 * and all links are busy. A schedule that holds its slots for long begins a chunk every few steps
 * only (`spacing`).
 *
 *     step 0   chunk 0 phase 0
 *     step 1   chunk 0 phase 1   chunk 1 phase 0
 *     step 2                     chunk 1 phase 1   chunk 2 phase 0   ...
 *
 *     ct_pipelined_begin(pipelined, call);
 *     for (size_t at = 0; at < ct_pipelined_step_count(pipelined); at++) {
 *         int next = 0;
 *         while (ct_pipelined_next_move(pipelined, call, at, &next, &move))
 *             make the move: all of a step run at once, those of a pair in this order at both ends
 *         when all are done: ct_pipelined_compute(pipelined, call, at);
 *     }
 *
 * Data goes straight from and into the caller's buffers; nothing is allocated. */
#ifndef CT_COLL_MESSAGE_PIPELINED_H
#define CT_COLL_MESSAGE_PIPELINED_H

#include "algorithm/step_schedule.h"
#include "backend/backend.h"

enum { CT_PIPELINED_SLOT_SETS = 4 };

struct ct_pipelined {
    int rank, size;
    struct ct_tuning tuning;
    size_t block_bytes;                  /* at most, of a block */
    size_t chunk_bytes, chunks, spacing; /* of the collective */
    struct ct_schedule schedule;
    char *scratch;    /* CT_PIPELINED_SLOT_SETS sets of slots: chunk c has set c % that */
    size_t set_bytes; /* of a set */
    const void **sources;
    double *factors; /* of a premultiplied sum, by rank; the caller sets those of other ranks */
};

/* One phase of one chunk, in step chunk * spacing + phase. */
struct ct_chunk_phase {
    size_t chunk;
    int phase;
};

/* To be sent to `peer`, or received from it. */
struct ct_pipelined_move {
    int peer;
    bool out;
    struct ct_chunk_phase work; /* that it belongs to */
    char *data;
    size_t bytes; /* 0: only the information that the peer has come this far */
};

/* Initialise for a group. Call _deinit in either case. 0 or CT_ENOMEM. */
int ct_pipelined_init(struct ct_pipelined *pipelined, const struct ct_setup *setup);
void ct_pipelined_deinit(struct ct_pipelined *pipelined);

/* Return the largest number of moves that a step can have. */
int ct_pipelined_moves_max(const struct ct_pipelined *pipelined);

/* Begin a collective: choose its schedule and its chunks. */
void ct_pipelined_begin(struct ct_pipelined *pipelined, const struct ct_call *call);

/* Return the number of steps of the collective. */
size_t ct_pipelined_step_count(const struct ct_pipelined *pipelined);

/* Return whether a chunk is in this phase in step `at`, and which; the first and the last phase
 * that any may be in. */
bool ct_pipelined_chunk_in_phase(const struct ct_pipelined *pipelined, size_t at, int phase,
                                 size_t *ret_chunk);
int ct_pipelined_first_phase(const struct ct_pipelined *pipelined, size_t at);
int ct_pipelined_last_phase(const struct ct_pipelined *pipelined, size_t at);

/* Find the next move of step `at`, from entry `*next` of the schedule on, and set `*next` behind
 * it. Return false if there are no more. */
bool ct_pipelined_next_move(const struct ct_pipelined *pipelined, const struct ct_call *call,
                            size_t at, int *next, struct ct_pipelined_move *ret_move);

/* Make the sums and copies of step `at`; of one chunk's phase. */
void ct_pipelined_compute(struct ct_pipelined *pipelined, const struct ct_call *call, size_t at);
void ct_pipelined_compute_phase(struct ct_pipelined *pipelined, const struct ct_call *call,
                                struct ct_chunk_phase work);

#endif
