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

#include "train/safetensors.h"

#include <limits.h>

/* The file that `path` stands for: itself, or model.safetensors in the folder `path`. CT_ENOINPUT
 * when it is not there. */
int ct_weights_path(const char *path, char ret_path[PATH_MAX], struct ct_error *err);

/* Fill the data of `wanted` (F32) from the file. Names and shapes are looked at before anything is
 * written: every wanted tensor is there, and the file holds nothing else but what is listed above.
 * CT_ENOINPUT, CT_EDATA (names tensor and shapes), CT_ENOMEM. */
int ct_weights_load(const char *path, const struct ct_st_tensor *wanted, size_t count,
                    struct ct_error *err);

/* Write `tensors` (F32) to the file `path` as Hugging Face's GPT-2 has them, stored as `stored`
 * (F32, BF16 or F16, rounded to nearest even). An older file is replaced by a whole one or stays.
 * CT_EUSAGE (another type), CT_ECANTCREAT, CT_EIO, CT_ENOMEM. */
int ct_weights_save(const char *path, const struct ct_st_tensor *tensors, size_t count,
                    enum ct_dtype stored, struct ct_error *err);

#endif
