/* Matrix products of doubles, for checks: the definition in gemm.h, written down. */
#include "tensor/cpu/gemm.h"

#include "base/assert.h"

#include <math.h>

static double element(const struct ct_gemm *g, int64_t i, int64_t j)
{
    const double *a = (const double *)g->a + i * g->a_row, *b = (const double *)g->b + j * g->b_col;
    double c = g->accumulate ? ((const double *)g->c)[i * g->c_row + j] : 0;

    for (int64_t block = 0; block < g->k; block += CT_GEMM_KC) {
        double acc = 0;

        for (int64_t k = block; k < CT_MIN(block + CT_GEMM_KC, g->k); k++)
            acc = fma(a[k * g->a_k], b[k * g->b_k], acc);
        c = c + acc;
    }
    return g->bias == NULL ? c : c + ((const double *)g->bias)[j];
}

static void run(const struct ct_gemm *g, void *workspace)
{
    (void)workspace;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            ((double *)g->c)[i * g->c_row + j] = element(g, i, j);
}

const struct ct_gemm_kernels ct_gemm_f64 = {.run = run};
