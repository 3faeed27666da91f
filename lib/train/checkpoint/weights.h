/* Weights on their way in and out: the parameters of a model from a safetensors file of some other
 * program, and back.
 *
 *     here, [out, in]            Hugging Face's GPT-2
 *     wte.weight                 wte.weight, or transformer.wte.weight
 *     h.0.attn.c_attn.weight     the same name, [in, out]: its Conv1D; so are c_proj and c_fc
 *     lm_head.weight             the same, in front of which no "transformer." stands
 *     -                          lm_head.weight beside a tied head: equal to wte.weight
 *     -                          h.0.attn.bias, h.0.attn.masked_bias: masks, no weights
 *
 * Files are read in F32, F64, BF16 and F16, in either layout: which one it is shows in the shapes
 * (a c_attn is three times as long as it is wide, or as wide as it is long). A file of any model
 * of ours, a checkpoint's model.safetensors, is read as it stands. Memory is F32 throughout. */
#ifndef CT_TRAIN_WEIGHTS_H
#define CT_TRAIN_WEIGHTS_H

#include "train/checkpoint/safetensors.h"

#include <limits.h>

/* Resolve `path` to a file: itself, or in the folder `path` model.safetensors.index.json, or else
 * model.safetensors. 0; CT_ENOINPUT if missing. */
int ct_weights_path(const char *path, char ret_path[PATH_MAX], struct ct_error *err);

/* Fill the data of `wanted` (F32) from the file, or the files of an index (*.index.json). Names and
 * shapes are checked before any data is written: every wanted tensor is present, and the file has
 * no others but those listed above. CT_ENOINPUT, CT_EDATA (names tensor and shapes), CT_ENOMEM. */
int ct_weights_load(const char *path, const struct ct_st_tensor *wanted, size_t count,
                    struct ct_error *err);

/* Check without reading the weights whether ct_weights_load would succeed, except for an unusable
 * head. Without tensors: whether the files are complete. */
int ct_weights_check(const char *path, const struct ct_st_tensor *wanted, size_t count,
                     struct ct_error *err);

/* Write `tensors` (F32) into `folder`, which exists, as Hugging Face's GPT-2 has them, stored as
 * `stored` (F32, BF16 or F16, rounded to nearest even): model.safetensors, or, when that were above
 * `most_bytes` (0: no limit), parts of at most so many bytes (or one tensor) and their index. An
 * older file is replaced by a whole one or stays; the index comes last. CT_EUSAGE (another type),
 * CT_ECANTCREAT, CT_EIO, CT_ENOMEM. */
int ct_weights_save(const char *folder, const struct ct_st_tensor *tensors, size_t count,
                    enum ct_dtype stored, uint64_t most_bytes, struct ct_error *err);

#endif
