/* The files that hold a set of weights: one, or the parts that Hugging Face's index names.
 *
 *     model.safetensors                      or
 *     model.safetensors.index.json           {"metadata": {"total_size": 548118077},
 *     model-00001-of-00002.safetensors        "weight_map": {"wte.weight":
 *     model-00002-of-00002.safetensors            "model-00001-of-00002.safetensors", ...}} */
#ifndef CT_TRAIN_WEIGHTS_FILES_H
#define CT_TRAIN_WEIGHTS_FILES_H

#include "train/checkpoint/safetensors.h"

#include <limits.h>

/* Files that an index may name, all open at once. */
enum { CT_WEIGHTS_MAX_FILES = 256 };

struct ct_weights_file {
    char path[PATH_MAX];
    int fd;
    struct ct_st_table table;
};

struct ct_weights_files {
    struct ct_weights_file *at;
    size_t count;
};

/* Open the file `path`, or, if it is called *.index.json, the files of the index beside it: each
 * tensor is in the file of its entry, and there are no others. CT_ENOINPUT, CT_EDATA, CT_ELIMIT,
 * CT_ENOMEM. */
int ct_weights_files_open(struct ct_weights_files *ret, const char *path, struct ct_error *err);
void ct_weights_files_close(struct ct_weights_files *files);

/* Return the number of tensors in all files. */
size_t ct_weights_files_tensors(const struct ct_weights_files *files);

/* "model-00001-of-00003.safetensors" for part 0 of 3. */
enum { CT_WEIGHTS_PART_NAME = 64 };
void ct_weights_part_name(char name[CT_WEIGHTS_PART_NAME], size_t part, size_t parts);

/* Write an index of `parts` such files, of which number part_of[i] holds tensors[i]. CT_EIO,
 * CT_ECANTCREAT, CT_ENOMEM. */
int ct_weights_index_write(const char *path, const struct ct_st_tensor *tensors, size_t count,
                           const size_t *part_of, size_t parts, struct ct_error *err);

#endif
