/* A checkpoint that one process writes whole. */
#ifndef TESTS_UNIT_TRAIN_SAVE_ALONE_H
#define TESTS_UNIT_TRAIN_SAVE_ALONE_H

#include "train/checkpoint/checkpoint.h"

/* Write a checkpoint that readers do not see yet; `ret_digest` (may be NULL) gets the digest of its
 * tensors. 0, or the error of ct_ckpt_begin, ct_ckpt_write or ct_ckpt_end. */
int save_alone(const struct ct_ckpt_save *save, uint64_t *ret_digest, struct ct_error *err);

#endif
