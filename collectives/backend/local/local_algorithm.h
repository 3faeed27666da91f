/* The collectives of the engine (local.h) as rows of a table, declarations that its files share,
 * and the two paths of a call. Inside of the engine only. */
#ifndef CT_COLL_LOCAL_ALGORITHM_H
#define CT_COLL_LOCAL_ALGORITHM_H

#include "backend/local/local.h"

#include <string.h>

/* Whose flags a rank waits for before it reads. */
enum ct_local_awaited { CT_AWAIT_ALL, CT_AWAIT_ROOT, CT_AWAIT_ALL_AT_ROOT };

/* One collective, or one way of making it. Round k of it is round number `n` of the group. */
struct ct_local_algorithm {
    size_t (*rounds)(const struct ct_local *local, const struct ct_task *task);
    /* Write this rank's part of round k. */
    void (*stage)(struct ct_local *local, struct ct_task *task, size_t k);
    /* Read the others'; those awaited have posted the round. */
    void (*consume)(struct ct_local *local, struct ct_task *task, size_t k);
    enum ct_local_awaited awaited;
    /* May be NULL: before round 0 is consumed, does it fit what the others have? 1 or an error. */
    int (*check)(struct ct_local *local, struct ct_task *task, struct ct_error *err);
    /* May be NULL: what comes before `stage`, a slice at a time: 1 done, 0 more to do, an error. */
    int (*work)(struct ct_local *local, struct ct_task *task, struct ct_error *err);
};

/* ct_task.path: where a call has got to (local.h). */
enum ct_local_path { CT_PATH_NEW, CT_PATH_STAGED, CT_PATH_OFFER, CT_PATH_REGISTER, CT_PATH_DIRECT };

/* The row of a call that goes through stages, by task->algorithm. */
const struct ct_local_algorithm *ct_local_staged(const struct ct_task *task);

/* What the call needs of a stage in one round. The same at all members. */
size_t ct_local_stage_bytes(const struct ct_local *local, const struct ct_task *task);

/* Is it worth an offer? The same answer at all members. */
bool ct_local_offers(const struct ct_local *local, const struct ct_task *task);

/* The row of a call on its path, which is not CT_PATH_STAGED. */
const struct ct_local_algorithm *ct_local_direct(const struct ct_task *task);

/* local_domains.c: the row of a call that goes by domains. */
const struct ct_local_algorithm *ct_local_domains(const struct ct_task *task);

/* Does this call go so? The same answer at all members. */
bool ct_local_by_domains(const struct ct_local *local, const struct ct_task *task);

/* Have all posted the group's round, which is one of this call, as the first ranks of the domains
 * say? False: look at the cells. */
bool ct_local_gathered(struct ct_local *local, const struct ct_task *task);

/* Give back all that is mapped. */
void ct_local_forget(struct ct_local *local);

static inline void ct_local_copy(char *to, const char *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

/* For rows of the table: a call of one round, a round that moves nothing. */
size_t ct_local_one_round(const struct ct_local *local, const struct ct_task *task);
void ct_local_no_bytes(struct ct_local *local, struct ct_task *task, size_t k);

static inline bool ct_local_is_root(const struct ct_task *task)
{
    return task->call.rank == task->call.peer;
}

/* Chunk k of a run: from where the run begins in its buffer. */
static inline struct ct_span ct_local_chunk(struct ct_span run, size_t chunk, size_t k)
{
    size_t at = k * chunk < run.bytes ? k * chunk : run.bytes;
    size_t bytes = run.bytes - at < chunk ? run.bytes - at : chunk;

    return (struct ct_span){run.at + at, bytes};
}

/* The share of the i-th of so many ranks in a run, from the run's start: whole cache lines, the
 * last ones may be short or empty. */
struct ct_span ct_local_share(struct ct_span chunk, int ranks, int i);

/* local->sources into `to`, and into the first `copies` of local->copies, as the call says. */
void ct_local_reduce(struct ct_local *local, const struct ct_task *task, char *to, size_t bytes,
                     int copies);

#endif
