/* Inside of the checkpoints: names in a checkpoint folder, checksums, state.json. */
#ifndef CT_TRAIN_CHECKPOINT_DIR_H
#define CT_TRAIN_CHECKPOINT_DIR_H

#include "train/checkpoint/checkpoint.h"

#define CT_CKPT_LATEST "latest"
#define CT_CKPT_BEST "best"
#define CT_CKPT_STATE "state.json"
#define CT_CKPT_BLOCK ((size_t)1 << 20) /* what is read, written and summed up at once */

/* A file's entry in state.json. */
struct ct_ckpt_sum {
    char name[64];
    uint64_t bytes;
    uint64_t value; /* CRC32C; of version 1 XXH3 */
};

struct ct_ckpt_sums {
    uint64_t version;  /* of state.json */
    uint64_t identity; /* its digest */
    struct ct_ckpt_sum files[CT_CKPT_MAX_FILES];
    size_t count;
};

/* Write the name of a step's directory, "step_00000120". */
void ct_ckpt_name(uint64_t step, char name[32]);

/* Parse the step of a directory's name; false for any other name. */
bool ct_ckpt_name_step(const char *name, uint64_t *ret_step);

/* Return the steps of the checkpoints in `dir`, ascending; the caller frees the array. A missing
 * `dir` has none. 0, CT_ENOMEM or a negative errno. */
int ct_ckpt_list(const char *dir, uint64_t **ret_steps, size_t *ret_count);

/* Return the step that the file `name` of `dir` (latest, best) names; false when it names none that
 * is there. */
bool ct_ckpt_named(const char *dir, const char *name, uint64_t *ret_step);

/* Write dir/name into `path`. 0; CT_EUSAGE when it is too long. */
int ct_ckpt_join(char path[PATH_MAX], const char *dir, const char *name, struct ct_error *err);

/* Return the temporary folder of `save`. */
int ct_ckpt_temporary(const struct ct_ckpt_save *save, char folder[PATH_MAX], struct ct_error *err);

/* Write state.json into `folder`, flushed with the folder. 0 or a negative code. */
int ct_ckpt_state_write(const char *folder, const struct ct_ckpt_state *state,
                        const struct ct_ckpt_sums *sums);

/* Put `temporary` in the place of `path`. An older checkpoint of the same step is exchanged and
 * then removed; where the file system cannot exchange, it is removed first. CT_EFENCED when a later
 * round wrote the one that is there, else 0 or a negative code. */
int ct_ckpt_complete(const char *temporary, const char *path, const struct ct_ckpt_state *mine);

/* Print state.json. Its last member is the checksum of all bytes before it. */
int ct_ckpt_state_print(struct ct_buf *buf, const struct ct_ckpt_state *state,
                        const struct ct_ckpt_sums *sums);

/* Parse the same text; `path` is for messages. 0 or CT_EDATA. */
int ct_ckpt_state_parse(struct ct_ckpt_state *ret, struct ct_ckpt_sums *ret_sums, const char *path,
                        const struct ct_buf *text, struct ct_error *err);

/* Read state.json of the checkpoint directory `path`. As ct_ckpt_open, but without reading other
 * files. */
int ct_ckpt_state_read(struct ct_ckpt_state *ret, struct ct_ckpt_sums *ret_sums, const char *path,
                       struct ct_error *err);

#endif
