/* Matrix products of floats with AVX-512: a tile of 14 rows by 2 vectors keeps 28 of the 32
 * registers adding, so both multiply-add units stay busy (gemm_body.h). */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16, TILE_ROWS = 14 };
#define EACH_TILE_HEIGHT(X) \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)

typedef __m512 vec;
typedef __mmask16 vmask;

static inline vmask mask_first(int64_t count)
{
    return (vmask)((1u << count) - 1);
}

static inline vec vec_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

static inline vec vec_load_some(const float *x, vmask mask)
{
    return _mm512_maskz_loadu_ps(mask, x);
}

static inline void vec_store(float *x, vec v)
{
    _mm512_storeu_ps(x, v);
}

static inline void vec_store_some(float *x, vmask mask, vec v)
{
    _mm512_mask_storeu_ps(x, mask, v);
}

static inline vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Exchange rows and columns: by pairs, by fours, then by whole 128-bit quarters, twice. */
static inline void vec_transpose(vec r[LANES])
{
    vec t[LANES];

    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);

            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < LANES; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        r[j] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0x88);
        r[j + 8] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0xdd);
    }
}

#define GEMM ct_gemm_avx512
#include "tensor/cpu/gemm_body.h"
