/* The collectives of the engine (local.h) as rows of a table, declarations that its files share,
 * and the two paths of a call. Inside of the engine only. */
#ifndef CT_COLL_LOCAL_ALGORITHM_H
#define CT_COLL_LOCAL_ALGORITHM_H

#include "backend/local/local.h"

#include <string.h>

/* The ranks whose flags a rank waits for before it reads. */
enum ct_local_awaited { CT_AWAIT_ALL, CT_AWAIT_ROOT, CT_AWAIT_ALL_AT_ROOT };

/* A collective, or one algorithm of it. Its round k is some round n of the group. */
struct ct_local_algorithm {
    size_t (*rounds)(const struct ct_local *local, const struct ct_task *task);
    /* Write this rank's part of round k. */
    void (*stage)(struct ct_local *local, struct ct_task *task, size_t k);
    /* Read the others' parts; the awaited ranks have posted the round. */
    void (*consume)(struct ct_local *local, struct ct_task *task, size_t k);
    enum ct_local_awaited awaited;
    /* May be NULL: before round 0 is consumed, compare the call with the others'. 1 or an error. */
    int (*check)(struct ct_local *local, struct ct_task *task, struct ct_error *err);
    /* May be NULL: the work before `stage`, some at a time: 1 done, 0 more to do, or an error. */
    int (*work)(struct ct_local *local, struct ct_task *task, struct ct_error *err);
};

/* ct_task.path: the state of a call (local.h). */
enum ct_local_path { CT_PATH_NEW, CT_PATH_STAGED, CT_PATH_OFFER, CT_PATH_REGISTER, CT_PATH_DIRECT };

/* Return the row of a call that goes through stages, by task->algorithm. */
const struct ct_local_algorithm *ct_local_staged(const struct ct_task *task);

/* Return the bytes of a stage that the call needs in one round, the same at all members. */
size_t ct_local_stage_bytes(const struct ct_local *local, const struct ct_task *task);

/* Return whether members offer their buffers; the same at all members. */
bool ct_local_offers(const struct ct_local *local, const struct ct_task *task);

/* Return the row of a call on its path, which is not CT_PATH_STAGED. */
const struct ct_local_algorithm *ct_local_direct(const struct ct_task *task);

/* Return the row of a call that goes by domains (local_domains.c). */
const struct ct_local_algorithm *ct_local_domains(const struct ct_task *task);

/* Return whether this call goes by domains; the same at all members. */
bool ct_local_by_domains(const struct ct_local *local, const struct ct_task *task);

/* Return whether, by the reports of the domains' first ranks, all have posted the group's round,
 * one of this call. False: poll the cells. */
bool ct_local_gathered(struct ct_local *local, const struct ct_task *task);

/* Unmap all allocations of others. */
void ct_local_unmap(struct ct_local *local);

static inline void ct_local_copy(char *to, const char *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

/* For rows of the table: the rounds of a call of one round; a round that moves no bytes. */
size_t ct_local_one_round(const struct ct_local *local, const struct ct_task *task);
void ct_local_no_bytes(struct ct_local *local, struct ct_task *task, size_t k);

static inline bool ct_local_is_root(const struct ct_task *task)
{
    return task->call.rank == task->call.peer;
}

/* Return chunk k of a run. */
static inline struct ct_span ct_local_chunk(struct ct_span run, size_t chunk, size_t k)
{
    size_t at = k * chunk < run.bytes ? k * chunk : run.bytes;
    size_t bytes = run.bytes - at < chunk ? run.bytes - at : chunk;

    return (struct ct_span){run.at + at, bytes};
}

/* Return the part of the i-th of `ranks` ranks in a run, from the run's start: whole cache lines;
 * the last parts may be short or empty. */
struct ct_span ct_local_part(struct ct_span chunk, int ranks, int i);

/* Reduce local->sources into `to` and into the first `copies` of local->copies, as the call
 * says. */
void ct_local_reduce(struct ct_local *local, const struct ct_task *task, char *to, size_t bytes,
                     int copies);

#endif
