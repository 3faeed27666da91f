/* Matrix products of floats with AVX2 and FMA: a tile of 6 rows by 2 vectors keeps 12 of the 16
 * registers adding (gemm_body.h). */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 8, TILE_ROWS = 6 };
#define EACH_TILE_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256 vec;
typedef struct {
    __m256i lanes; /* all ones in lanes that count */
    bool all;
} vmask;

static inline vmask mask_first(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return (vmask){_mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane), count == LANES};
}

static inline vec vec_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

static inline vec vec_load_some(const float *x, vmask mask)
{
    return _mm256_maskload_ps(x, mask.lanes);
}

static inline void vec_store(float *x, vec v)
{
    _mm256_storeu_ps(x, v);
}

/* A masked store takes tens of cycles on some machines. */
static inline void vec_store_some(float *x, vmask mask, vec v)
{
    if (mask.all)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, mask.lanes, v);
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

/* Exchange rows and columns: by pairs, by fours, then by 128-bit halves. */
static inline void vec_transpose(vec r[LANES])
{
    vec t[LANES];

    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);

            r[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
        t[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
    }
    for (int j = 0; j < LANES; j++)
        r[j] = t[j];
}

#define GEMM ct_gemm_avx2
#include "tensor/cpu/gemm_body.h"
