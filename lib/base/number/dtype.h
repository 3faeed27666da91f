/* Element types, shared by tensors, collectives and checkpoints. */
#ifndef CT_BASE_DTYPE_H
#define CT_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum ct_dtype {
#define CT_DTYPE(name, size, text, is_float) CT_##name,
#include "base/number/dtype.def"
#undef CT_DTYPE
    CT_DTYPE_COUNT
};

/* Return the bytes of one element. */
size_t ct_dtype_size(enum ct_dtype dtype);

/* Return the name safetensors uses ("F32"); never NULL. */
const char *ct_dtype_name(enum ct_dtype dtype);

/* Return the type called `name` (any case), or -1. */
int ct_dtype_find(const char *name);

/* Convert bf16 and f16 to f32 and back, rounding to nearest even; NaN stays NaN. */
float ct_bf16_to_f32(uint16_t bits);
uint16_t ct_bf16_from_f32(float value);
float ct_f16_to_f32(uint16_t bits);
uint16_t ct_f16_from_f32(float value);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
