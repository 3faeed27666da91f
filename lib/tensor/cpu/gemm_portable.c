/* Matrix products of floats on any machine: vectors of four lanes that the compiler maps to what
 * there is. fmaf() is one instruction where the machine has it and a slow, exact function where it
 * has not (gemm_body.h). */
#include <math.h>
#include <stdint.h>

enum { LANES = 4, TILE_ROWS = 4 };
#define EACH_TILE_HEIGHT(X) X(1) X(2) X(3) X(4)

typedef struct {
    float lane[LANES];
} vec;
typedef int64_t vmask; /* the number of lanes that count */

static inline vmask mask_first(int64_t count)
{
    return count;
}

static inline vec vec_load_some(const float *x, vmask mask)
{
    vec v;

    for (int l = 0; l < LANES; l++)
        v.lane[l] = l < mask ? x[l] : 0;
    return v;
}

static inline vec vec_load(const float *x)
{
    return vec_load_some(x, LANES);
}

static inline void vec_store_some(float *x, vmask mask, vec v)
{
    for (int l = 0; l < mask; l++)
        x[l] = v.lane[l];
}

static inline void vec_store(float *x, vec v)
{
    vec_store_some(x, LANES, v);
}

static inline vec vec_all(float x)
{
    return (vec){{x, x, x, x}};
}

static inline vec vec_add(vec a, vec b)
{
    for (int l = 0; l < LANES; l++)
        a.lane[l] += b.lane[l];
    return a;
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    for (int l = 0; l < LANES; l++)
        c.lane[l] = fmaf(a.lane[l], b.lane[l], c.lane[l]);
    return c;
}

/* Exchange rows and columns. */
static inline void vec_transpose(vec r[LANES])
{
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < i; j++) {
            float swapped = r[i].lane[j];

            r[i].lane[j] = r[j].lane[i];
            r[j].lane[i] = swapped;
        }
}

#define GEMM ct_gemm_portable
#include "tensor/cpu/gemm_body.h"
