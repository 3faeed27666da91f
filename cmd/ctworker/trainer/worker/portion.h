/* This rank's portion of the files of a checkpoint: bytes of the executor's tensors, copied to the
 * host, each with its place in a file.
 *
 *     executor's arena  --copy_out-->  memory  --ct_ckpt_write-->  files
 *                       <--copy_in---          <--ct_ckpt_read---
 *
 * A tensor in two files (a frozen one is its own average) is in the portion twice. */
#ifndef CT_TRAINER_PORTION_H
#define CT_TRAINER_PORTION_H

#include "snapshot.h"
#include "train/checkpoint/checkpoint_parts.h"

enum ct_portion_of {
    CT_PORTION_OWNED, /* the bytes that this rank writes, when all write */
    CT_PORTION_HELD,  /* the bytes that it holds */
    CT_PORTION_WHOLE  /* every tensor: `data` is for ct_exec_collect */
};

struct ct_portion {
    struct ct_ckpt_part *parts;
    struct ct_plan_piece *pieces; /* of each part; not of WHOLE */
    size_t count;
    void **data; /* WHOLE: of each of the plan's tensors */
    char *memory;
    size_t room; /* of the memory, which is reused */
};

/* List the portion of `snapshot`, whose tensors lie at `places`. 0 or CT_ENOMEM. */
int ct_portion_list(struct ct_portion *portion, const struct ct_snapshot *snapshot,
                    const struct ct_plan *plan, const struct ct_ckpt_places *places,
                    enum ct_portion_of of, struct ct_error *err);
void ct_portion_deinit(struct ct_portion *portion);

/* Copy it out of the executor; into it. Not of WHOLE. */
void ct_portion_copy_out(struct ct_portion *portion, struct ct_exec *exec);
void ct_portion_copy_in(const struct ct_portion *portion, struct ct_exec *exec);

#endif
