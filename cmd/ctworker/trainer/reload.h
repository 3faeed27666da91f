/* Loading a checkpoint by all ranks, each its own shard. */
#ifndef CT_TRAINER_RELOAD_H
#define CT_TRAINER_RELOAD_H

#include "worker/worker.h"

/* Return how many of the snapshot's files the checkpoint at `path` holds: the average may be
 * missing, and then begins at the parameters, which is logged. */
size_t ct_reload_files(const struct ct_worker *worker, const char *path);

/* Check and read the checkpoint at `path` on all ranks. *ret_seen is false if not all ranks see the
 * one that rank 0 sees: then nothing has changed. Collective; it fails on all ranks, and rank 0 has
 * the sentence. */
int ct_reload(struct ct_worker *worker, const char *path, bool *ret_seen, struct ct_error *err);

#endif
