/* A snapshot: the executor's named tensors copied to the host, as the files of a checkpoint.
 *
 *   plan->tensors:  parameters | moments          model.safetensors | optim.safetensors
 */
#ifndef CT_WORKER_SNAPSHOT_H
#define CT_WORKER_SNAPSHOT_H

#include "collectives/exec/exec.h"
#include "train/checkpoint.h"

enum { CT_SNAPSHOT_FILES = 2 };

struct ct_snapshot {
    struct ct_st_tensor *tensors; /* plan->tensor_count, in the plan's order; names borrowed */
    char *memory;
    struct ct_ckpt_file files[CT_SNAPSHOT_FILES];
};

/* Room for every tensor of `plan` (borrowed). CT_ENOMEM. */
int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err);
void ct_snapshot_deinit(struct ct_snapshot *snapshot);

/* Copy all tensors out of the executor, or into it. */
void ct_snapshot_take(struct ct_snapshot *snapshot, const struct ct_plan *plan,
                      struct ct_exec *exec);
void ct_snapshot_put(const struct ct_snapshot *snapshot, const struct ct_plan *plan,
                     struct ct_exec *exec);

#endif
