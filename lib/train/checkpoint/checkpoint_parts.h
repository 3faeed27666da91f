/* A checkpoint that several processes write or read together, each its own bytes of each file:
 *
 *   first      ct_ckpt_begin     the temporary folder, its files at full length, their headers
 *   all        ct_ckpt_write     their parts, flushed; each gets the sums of what it wrote
 *   first      ct_ckpt_end       with the sums of all: state.json, rename
 *
 *   all        ct_ckpt_verify    a share of each file; ct_ckpt_judge with the sums of all
 *              ct_ckpt_find      where the tensors lie, then
 *              ct_ckpt_read      their parts
 *
 * The caller ensures the order, and that all see the same folder. An abandoned checkpoint is a
 * temporary folder that no reader opens. It carries the generation: a delayed writer of an older
 * round cannot touch the files of a later one.
 *
 * Sums are joined by XOR (ct_crc32c_share): any division of the files gives the same ones. */
#ifndef CT_TRAIN_CHECKPOINT_PARTS_H
#define CT_TRAIN_CHECKPOINT_PARTS_H

#include "train/checkpoint/checkpoint.h"

#include <stdatomic.h>

/* Where the tensors of a checkpoint's files lie. */
struct ct_ckpt_places {
    uint64_t *at[CT_CKPT_MAX_FILES];  /* of each tensor of the file, from the file's start */
    uint64_t size[CT_CKPT_MAX_FILES]; /* of the file */
    size_t count;
};

/* Bytes of a file, and where they are in memory. */
struct ct_ckpt_part {
    size_t file;
    uint64_t at, bytes;
    char *data;
};

/* One process's share of the checksum of each file. */
struct ct_ckpt_shares {
    uint32_t crc32c[CT_CKPT_MAX_FILES];
};

/* Compute the places of the tensors of `files`, without reading a file. 0, CT_ENOMEM, CT_EBUG. */
int ct_ckpt_place(struct ct_ckpt_places *ret, const struct ct_ckpt_file *files, size_t file_count,
                  struct ct_error *err);

/* Find their places in the checkpoint directory `path`; names, types and shapes must match exactly.
 * 0 or CT_EDATA. */
int ct_ckpt_find(struct ct_ckpt_places *ret, const char *path, const struct ct_ckpt_file *files,
                 size_t file_count, struct ct_error *err);

void ct_ckpt_places_deinit(struct ct_ckpt_places *places);

/* ---- writing ------------------------------------------------------------------------------- */

/* Begin a checkpoint, as the first writer; `ret` gets its shares: the headers'. CT_ECANTCREAT or
 * CT_EIO, with a sentence that the older checkpoints are intact. */
int ct_ckpt_begin(const struct ct_ckpt_save *save, struct ct_ckpt_shares *ret,
                  struct ct_error *err);

/* Write `parts`, which do not overlap, flush the files and add to `shares`. Of save->files only the
 * names are read, the tensors not at all: their memory may be freed before. CT_ECLOSED when *cancel
 * (may be NULL) became true, CT_EIO with the file and the reason. */
int ct_ckpt_write(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                  const struct ct_ckpt_part *parts, size_t count, const atomic_bool *cancel,
                  struct ct_ckpt_shares *shares, struct ct_error *err);

/* End a checkpoint, as the first writer, once all parts are on disk; `shares` is the XOR of all;
 * `ret_digest` (may be NULL) gets the digest of the tensors, the same for the same bits. Readers do
 * not see the checkpoint before ct_ckpt_publish. One of the same step is replaced, but not a later
 * round's: CT_EFENCED. Else fails as ct_ckpt_begin does. */
int ct_ckpt_end(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                const struct ct_ckpt_shares *shares, uint64_t *ret_digest, struct ct_error *err);

/* Remove an unfinished checkpoint. `why`: err gets the sentence of a save that failed, CT_EIO. */
int ct_ckpt_abandon(const struct ct_ckpt_save *save, const char *why, struct ct_error *err);

/* ---- reading ------------------------------------------------------------------------------- */

/* Return the state of the checkpoint directory `path`, without reading other files; *ret_divisible:
 * its checksums can be combined from shares. Errors as ct_ckpt_open. */
int ct_ckpt_peek(const char *path, struct ct_ckpt_state *ret, bool *ret_divisible,
                 struct ct_error *err);

/* Return the digest of state.json, by which several readers check that they read the same
 * checkpoint; false if there is none. */
bool ct_ckpt_identity(const char *path, uint64_t *ret);

/* Check the size of each file and sum up number `share` of `shares` of it. As ct_ckpt_open. */
int ct_ckpt_verify(const char *path, int share, int shares, struct ct_ckpt_shares *ret,
                   struct ct_error *err);

/* Check the shares of all processes, joined by XOR, against the checksums. 0, or CT_EDATA, which
 * names the file. */
int ct_ckpt_judge(const char *path, const struct ct_ckpt_shares *all, struct ct_error *err);

/* Fill the memory of `parts`, places of which are those that ct_ckpt_find gave. CT_ENOINPUT,
 * CT_EDATA. */
int ct_ckpt_read(const char *path, const struct ct_ckpt_file *files,
                 const struct ct_ckpt_part *parts, size_t count, struct ct_error *err);

#endif
