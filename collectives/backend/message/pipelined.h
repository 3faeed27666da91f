/* Pipelined collectives over pairs of ranks, without the transport: how the data is split, what is
 * sent and received when, and what is reduced. Backends that connect each rank with each (tcp by
 * streams; ucx and mpi by messages, message.h) move the bytes.
 *
 * A collective is split into chunks, and runs in pipeline steps (waves): in wave w, chunk c is in
 * phase w - c of its schedule (step_schedule.h), so that the chunks in flight are each in another
 * phase and all links are busy.
 *
 *     wave 0   chunk 0 phase 0
 *     wave 1   chunk 0 phase 1   chunk 1 phase 0
 *     wave 2                     chunk 1 phase 1   chunk 2 phase 0   ...
 *
 *     ct_wave_begin(wave, call);
 *     for (size_t at = 0; at < ct_wave_count(wave); at++) {
 *         int step = 0;
 *         while (ct_wave_next_move(wave, call, at, &step, &move))
 *             make the move: all of a wave run at once, those of a pair in this order at both ends
 *         when all are over: ct_wave_compute(wave, call, at);
 *     }
 *
 * Data goes straight from and into the caller's buffers; nothing is allocated. */
#ifndef CT_COLL_MESSAGE_PIPELINED_H
#define CT_COLL_MESSAGE_PIPELINED_H

#include "algorithm/step_schedule.h"
#include "backend/backend.h"

enum { CT_WAVE_SETS = 4 };

struct ct_wave {
    int rank, size;
    struct ct_tuning tuning;
    size_t block_bytes, chunk_bytes, chunks;
    struct ct_schedule schedule;
    char *scratch; /* CT_WAVE_SETS sets of slots: chunk c has set c % CT_WAVE_SETS */
    const void **sources;
    double *factors; /* of a premultiplied sum, by rank: those of others are the caller's to set */
};

/* What happens to one chunk in one wave: wave chunk + phase. */
struct ct_wave_turn {
    size_t chunk;
    int phase;
};

/* To be sent to `peer`, or received from it. */
struct ct_wave_move {
    int peer;
    bool out;
    struct ct_wave_turn turn; /* that it belongs to */
    char *data;
    size_t bytes; /* 0: nothing but that the peer has come this far */
};

/* A group's; 0 or CT_ENOMEM. To be given to _deinit in either case. */
int ct_wave_init(struct ct_wave *wave, const struct ct_setup *setup);
void ct_wave_deinit(struct ct_wave *wave);

/* Moves that a wave can have at most. */
int ct_wave_moves_max(const struct ct_wave *wave);

/* Take up a collective. */
void ct_wave_begin(struct ct_wave *wave, const struct ct_call *call);

/* How many waves it has. */
size_t ct_wave_count(const struct ct_wave *wave);

/* The next move of wave `at`, from step `*step` on, which goes behind it. False: no more. */
bool ct_wave_next_move(const struct ct_wave *wave, const struct ct_call *call, size_t at, int *step,
                       struct ct_wave_move *ret_move);

/* The sums and copies of wave `at`; those of one turn. */
void ct_wave_compute(struct ct_wave *wave, const struct ct_call *call, size_t at);
void ct_wave_compute_turn(struct ct_wave *wave, const struct ct_call *call,
                          struct ct_wave_turn turn);

#endif
