/* Matrix products of floats with AVX2 and FMA: a tile of 6 rows by 2 vectors keeps 12 of the 16
 * registers adding (gemm_body.h). */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8, TILE_ROWS = 6 };
#define EACH_TILE_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256 vec;
typedef __m256i vmask;

static inline vmask mask_first(int64_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec vec_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

static inline vec vec_load_some(const float *x, vmask mask)
{
    return _mm256_maskload_ps(x, mask);
}

static inline void vec_store(float *x, vec v)
{
    _mm256_storeu_ps(x, v);
}

static inline void vec_store_some(float *x, vmask mask, vec v)
{
    _mm256_maskstore_ps(x, mask, v);
}

static inline vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#define GEMM ct_gemm_avx2
#include "tensor/cpu/gemm_body.h"
