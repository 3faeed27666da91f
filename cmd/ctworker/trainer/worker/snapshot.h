/* A snapshot: the executor's named tensors as the files of a checkpoint; with memory for all of
 * them on the host, or without.
 *
 *   plan->tensors:  parameters, buffers | moments | average
 *   files:          model.safetensors | optim.safetensors | ema.safetensors
 *
 * The last one is there when the plan keeps an average; it is a whole model of its own, with the
 * parameters' names and, for those that are frozen, their values. */
#ifndef CT_WORKER_SNAPSHOT_H
#define CT_WORKER_SNAPSHOT_H

#include "exec/exec.h"
#include "train/checkpoint/checkpoint.h"

enum { CT_SNAPSHOT_MODEL, CT_SNAPSHOT_OPTIM, CT_SNAPSHOT_EMA, CT_SNAPSHOT_MAX_FILES };

struct ct_snapshot {
    struct ct_st_tensor *tensors; /* plan->tensor_count, in the plan's order; names borrowed; then
                                     ema.safetensors' */
    int *number;                  /* of each of `tensors`: its index among the plan's */
    void **data;                  /* of each of the plan's tensors; NULL without memory */
    char *memory;
    struct ct_ckpt_file files[CT_SNAPSHOT_MAX_FILES];
    size_t file_count;
};

/* Describe the files of `plan` (borrowed), without memory for their tensors. 0 or CT_ENOMEM. */
int ct_snapshot_describe(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err);

/* Return the index among the plan's tensors of entry `entry` of file `file`. */
static inline int ct_snapshot_number(const struct ct_snapshot *snapshot, size_t file, size_t entry)
{
    return snapshot->number[(size_t)(snapshot->files[file].tensors - snapshot->tensors) + entry];
}

/* Allocate memory for every tensor, unless there is; free it. 0 or CT_ENOMEM. */
int ct_snapshot_hold(struct ct_snapshot *snapshot, const struct ct_plan *plan,
                     struct ct_error *err);
void ct_snapshot_release(struct ct_snapshot *snapshot);

/* Do both; free all. */
int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err);
void ct_snapshot_deinit(struct ct_snapshot *snapshot);

/* Set the average to the parameters: for a checkpoint that has none. */
void ct_snapshot_start_average(struct ct_snapshot *snapshot, const struct ct_plan *plan);

/* Copy all tensors out of an executor that holds all of them; into it. */
void ct_snapshot_take(struct ct_snapshot *snapshot, const struct ct_plan *plan,
                      struct ct_exec *exec);
void ct_snapshot_put(const struct ct_snapshot *snapshot, const struct ct_plan *plan,
                     struct ct_exec *exec);

#endif
