/* Checkpoints: directories of logical tensors, independent of the world size.
 *
 *   DIR/latest                    the name of the newest directory
 *   DIR/best                      that of the best evaluation, with checkpoint.best
 *   DIR/step_00000120/
 *       state.json                step, position, seed, hashes, sizes and checksums of the files
 *       model.safetensors         the parameters
 *       optim.safetensors         the optimizer's state ("exp_avg.fc1.weight", ...)
 *       ema.safetensors           the average of the parameters, when there is one
 *
 * Saving writes DIR/step_00000120.<generation>.tmp, flushes every file and the directory, and
 * renames it; checkpoint_parts.h is the same by several processes together.
 * Publishing replaces `latest`, then `best`, and only then removes outdated ones. A crash or a full
 * disk at any point leaves the older checkpoints unchanged. Loading checks sizes and checksums
 * before a single tensor is changed.
 *
 * One process writes a DIR at a time; any number may read. A writer of the same run that was held
 * up until a later round took its place (a higher generation) neither replaces a folder nor moves
 * `latest`.
 *
 * The checksum of a file is its CRC32C, which can be put together from parts. Version 1 had
 * XXH3-64, chained over blocks of 1 MiB; it is still read. */
#ifndef CT_TRAIN_CHECKPOINT_H
#define CT_TRAIN_CHECKPOINT_H

#include "train/best.h"
#include "train/checkpoint/safetensors.h"
#include "train/plateau.h"
#include "train/scaler.h"

#include <limits.h>
#include <stdbool.h>

/* The version of state.json that is written; a higher one is refused. */
#define CT_CKPT_VERSION 2

enum { CT_CKPT_MAX_FILES = 8 };

/* The contents of state.json besides the files. */
struct ct_ckpt_state {
    uint64_t step;     /* completed */
    uint64_t position; /* samples consumed: the sampler's whole state */
    uint64_t skipped;  /* of the steps: not taken, because they were not finite */
    uint64_t seed;
    uint64_t generation;   /* of the round that wrote it, counted over all jobs on the run */
    uint64_t config_hash;  /* of what defines the training; 0: unknown */
    uint64_t program_hash; /* of the model's program; 0: unknown */
    uint64_t global_batch;
    uint64_t world;            /* that wrote it, for people */
    struct ct_plateau plateau; /* ratio 0: none was saved */
    struct ct_scaler scaler;   /* of the loss; scale 0: none was saved */
    struct ct_best best;       /* evaluation up to this step; metric 0: none was saved */
    uint64_t unseen; /* 1: an evaluation that is due after the step has not been seen to its end */
    char run_id[128];
};

/* A file of the checkpoint: its name and its tensors. */
struct ct_ckpt_file {
    const char *name; /* "model.safetensors" */
    struct ct_st_tensor *tensors;
    size_t count;
};

/* A checkpoint to be saved by the functions of checkpoint_parts.h. */
struct ct_ckpt_save {
    const char *dir; /* made when missing */
    struct ct_ckpt_state state;
    const struct ct_ckpt_file *files;
    size_t file_count;
    uint32_t keep;       /* newest to keep, and that of state.best; 0 keeps all */
    uint64_t keep_every; /* those of steps that it divides stay as well; 0: of none */
};

/* Publish a saved checkpoint: it becomes the newest, `best` names that of state.best if it is
 * there, and outdated ones are removed. 0; CT_EFENCED
 * when a later round has published. */
int ct_ckpt_publish(const struct ct_ckpt_save *save, struct ct_error *err);

/* Return the directory of one step's checkpoint, which need not exist. */
int ct_ckpt_path(const char *dir, uint64_t step, char ret_path[PATH_MAX], struct ct_error *err);

/* Return the newest checkpoint of `dir`: the one named by `latest`, or else the highest
 * step_XXXXXXXX. 0; CT_ENOTFOUND if none. */
int ct_ckpt_latest(const char *dir, char ret_path[PATH_MAX], struct ct_error *err);

/* Return the checkpoint of the best evaluation in `dir`. CT_ENOTFOUND if none was kept. */
int ct_ckpt_best(const char *dir, char ret_path[PATH_MAX], struct ct_error *err);

/* Read the state of the checkpoint directory `path` and check every file's size and checksum.
 * CT_ENOINPUT (no such path), CT_EDATA (no checkpoint; or the file and its defect). */
int ct_ckpt_open(const char *path, struct ct_ckpt_state *ret, struct ct_error *err);

/* Return whether the checkpoint directory `path` has a file called `name`. */
bool ct_ckpt_holds(const char *path, const char *name);

/* Fill the tensors of `files` from the checkpoint; names, types and shapes must match exactly.
 * CT_EDATA names the tensor and both shapes. Call ct_ckpt_open first. */
int ct_ckpt_load(const char *path, const struct ct_ckpt_file *files, size_t file_count,
                 struct ct_error *err);

#endif
