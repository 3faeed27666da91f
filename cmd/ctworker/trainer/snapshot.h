/* A snapshot: the executor's named tensors copied to the host, as the files of a checkpoint.
 *
 *   plan->tensors:  parameters, buffers | moments | average
 *   files:          model.safetensors | optim.safetensors | ema.safetensors
 *
 * The last one is there when the plan keeps an average; it is a whole model of its own, with the
 * parameters' names and, for those that are frozen, their values. */
#ifndef CT_WORKER_SNAPSHOT_H
#define CT_WORKER_SNAPSHOT_H

#include "collectives/exec/exec.h"
#include "train/checkpoint.h"

enum { CT_SNAPSHOT_MAX_FILES = 3 };

struct ct_snapshot {
    struct ct_st_tensor *tensors; /* plan->tensor_count, in the plan's order; names borrowed; then
                                     ema.safetensors' */
    void **data;                  /* of each tensor */
    char *memory;
    struct ct_ckpt_file files[CT_SNAPSHOT_MAX_FILES];
    size_t file_count;
};

/* Room for every tensor of `plan` (borrowed). CT_ENOMEM. */
int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err);
void ct_snapshot_deinit(struct ct_snapshot *snapshot);

/* The average begins anew, as the parameters are: for a checkpoint that has none. */
void ct_snapshot_start_average(struct ct_snapshot *snapshot, const struct ct_plan *plan);

/* Copy all tensors out of an executor that holds all of them, or into it. */
void ct_snapshot_take(struct ct_snapshot *snapshot, const struct ct_plan *plan,
                      struct ct_exec *exec);
void ct_snapshot_put(const struct ct_snapshot *snapshot, const struct ct_plan *plan,
                     struct ct_exec *exec);

#endif
