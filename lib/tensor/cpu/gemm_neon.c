/* Matrix products of floats with NEON: a tile of 4 rows by 2 vectors, 8 of the 32 registers adding
 * (gemm_body.h). */
#include <arm_neon.h>
#include <stdint.h>

enum { LANES = 4, TILE_ROWS = 4 };
#define EACH_TILE_HEIGHT(X) X(1) X(2) X(3) X(4)

typedef float32x4_t vec;
typedef int64_t vmask; /* the number of lanes that count */

static inline vmask mask_first(int64_t count)
{
    return count;
}

static inline vec vec_load(const float *x)
{
    return vld1q_f32(x);
}

/* NEON masks no access: what lies outside may be no memory. */
static inline vec vec_load_some(const float *x, vmask mask)
{
    float some[LANES] = {0};

    if (mask == LANES)
        return vld1q_f32(x);
    for (int64_t l = 0; l < mask; l++)
        some[l] = x[l];
    return vld1q_f32(some);
}

static inline void vec_store(float *x, vec v)
{
    vst1q_f32(x, v);
}

static inline void vec_store_some(float *x, vmask mask, vec v)
{
    float some[LANES];

    if (mask == LANES) {
        vst1q_f32(x, v);
        return;
    }
    vst1q_f32(some, v);
    for (int64_t l = 0; l < mask; l++)
        x[l] = some[l];
}

static inline vec vec_all(float x)
{
    return vdupq_n_f32(x);
}

static inline vec vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

/* Exchange rows and columns: by pairs, then by halves. */
static inline void vec_transpose(vec r[LANES])
{
    float32x4x2_t low = vtrnq_f32(r[0], r[1]), high = vtrnq_f32(r[2], r[3]);

    r[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
    r[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
    r[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
    r[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
}

#define GEMM ct_gemm_neon
#include "tensor/cpu/gemm_body.h"
