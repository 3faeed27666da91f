/* cuBLASLt on the host (runtime.h): one algorithm, which adds up as the CPU's products do
 * (tensor/cpu/gemm.h), so what is left of a difference between the two devices is not of products.
 *
 * What the library's rules forbid fails here, too: an algorithm for other shapes, alignments or
 * epilogues than it was asked for, a workspace that is too small, a bias of another type than the
 * result, an epilogue with GELU whose aux matrix is missing, shorter than the result, or in columns
 * that are no multiples of 8 elements. GELU is computed in double, so it has not the bits of our
 * own kernel's, as NVIDIA's has not. The algorithm writes its workspace full before it begins:
 * nobody else may count on what is there. */
#include "runtime.h"

#include "include/cublasLt.h"

#include "base/assert.h"
#include "base/number/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, WORKSPACE = 4096, UNSET_BYTE = 0xff, ALGORITHM = 0x6c74 };
enum { AUX_STEP = 8, AUX_ALIGN = 16 }; /* elements, bytes */

struct hostcuda_product {
    int32_t transposed[2], epilogue, bias_type;
    const void *bias;
    void *aux;
    int64_t aux_step;
};

struct hostcuda_layout {
    cudaDataType_t type;
    int64_t rows, columns, step;
};

struct hostcuda_preference {
    uint64_t workspace;
    uint32_t alignment[4];
};

/* What an algorithm was chosen for, in its data. */
struct choice {
    int64_t m, n, k, aux_step;
    uint32_t alignment[3], kind, epilogue;
};
_Static_assert(sizeof(struct choice) <= sizeof(cublasLtMatmulAlgo_t), "a choice is kept in it");

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret_handle)
{
    *ret_handle = calloc(1, 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        break;
    }
    return "CUBLAS_STATUS_INVALID_VALUE";
}

/* ---- descriptions ---------------------------------------------------------------------------- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret_desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct hostcuda_product *product = calloc(1, sizeof *product);

    CT_ASSERT(product != NULL && compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F);
    product->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *ret_desc = product;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t put(void *to, size_t room, const void *value, size_t bytes)
{
    if (to == NULL || bytes != room)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return put(&desc->transposed[0], sizeof desc->transposed[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return put(&desc->transposed[1], sizeof desc->transposed[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return put(&desc->epilogue, sizeof desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return put(&desc->bias, sizeof desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return put(&desc->aux, sizeof desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return put(&desc->aux_step, sizeof desc->aux_step, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return put(&desc->bias_type, sizeof desc->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret_layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t step)
{
    struct hostcuda_layout *layout = calloc(1, sizeof *layout);

    CT_ASSERT(layout != NULL);
    *layout = (struct hostcuda_layout){type, (int64_t)rows, (int64_t)columns, step};
    *ret_layout = layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret_preference)
{
    *ret_preference = calloc(1, sizeof **ret_preference);
    CT_ASSERT(*ret_preference != NULL);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    uint32_t reductions;

    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return put(&preference->workspace, sizeof preference->workspace, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return put(&reductions, sizeof reductions, value, bytes);
    return put(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
               sizeof preference->alignment[0], value, bytes);
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool has_bias(const struct hostcuda_product *p)
{
    return p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_gelu(const struct hostcuda_product *p)
{
    return p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(const struct hostcuda_product *p)
{
    return has_gelu(p) || p->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* An epilogue that is known, with all that it needs for a result of `rows`. */
static bool ends_well(const struct hostcuda_product *p, int64_t rows)
{
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_bias(p) && !has_aux(p))
        return false;
    if (has_bias(p) && p->bias == NULL)
        return false;
    return !has_aux(p) || (p->aux != NULL && (uintptr_t)p->aux % AUX_ALIGN == 0 &&
                           p->aux_step % AUX_STEP == 0 && p->aux_step >= rows);
}

static bool fit(const struct hostcuda_product *p, const struct hostcuda_layout *a,
                const struct hostcuda_layout *b, const struct hostcuda_layout *c,
                struct choice *ret_choice)
{
    int64_t m = p->transposed[0] ? a->columns : a->rows,
            k = p->transposed[0] ? a->rows : a->columns;
    int64_t n = p->transposed[1] ? b->rows : b->columns;

    *ret_choice = (struct choice){.m = m,
                                  .n = n,
                                  .k = k,
                                  .aux_step = has_aux(p) ? p->aux_step : 0,
                                  .kind = ALGORITHM,
                                  .epilogue = (uint32_t)p->epilogue};
    return ends_well(p, c->rows) && a->type == b->type && c->rows == m && c->columns == n &&
           (p->transposed[1] ? b->columns : b->rows) == k && a->step >= a->rows &&
           b->step >= b->rows && c->step >= c->rows;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *ret_count)
{
    struct choice choice;

    (void)handle;
    *ret_count = 0;
    if (!fit(desc, a, b, c, &choice) || d != c || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (preference->workspace < WORKSPACE ||
        (has_bias(desc) && desc->bias_type != (int32_t)c->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(choice.alignment, preference->alignment, sizeof choice.alignment);
    memset(results, 0, sizeof *results);
    memcpy(results->algo.data, &choice, sizeof choice);
    results->workspaceSize = WORKSPACE;
    *ret_count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- a product ------------------------------------------------------------------------------- */

struct product {
    struct choice sizes;
    struct hostcuda_product how;
    struct hostcuda_layout a, b, c;
    const void *a_data, *b_data;
    void *c_data, *workspace;
    float beta;
};

static float get(cudaDataType_t type, const void *data, int64_t at)
{
    if (type == CUDA_R_32F)
        return ((const float *)data)[at];
    return type == CUDA_R_16BF ? ct_bf16_to_f32(((const uint16_t *)data)[at])
                               : ct_f16_to_f32(((const uint16_t *)data)[at]);
}

static void set(cudaDataType_t type, void *data, int64_t at, float value)
{
    if (type == CUDA_R_32F)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] =
            type == CUDA_R_16BF ? ct_bf16_from_f32(value) : ct_f16_from_f32(value);
}

/* Element (i, j) of the result: a chain of fused multiply-adds a block of K, blocks in order. */
static float sum_of(const struct product *p, int64_t i, int64_t j, float before)
{
    int64_t a_at = p->how.transposed[0] ? i * p->a.step : i,
            a_step = p->how.transposed[0] ? 1 : p->a.step;
    int64_t b_at = p->how.transposed[1] ? j : j * p->b.step,
            b_step = p->how.transposed[1] ? p->b.step : 1;
    float sum = before;

    for (int64_t block = 0; block < p->sizes.k; block += BLOCK) {
        float part = 0;

        for (int64_t k = block; k < CT_MIN(block + BLOCK, p->sizes.k); k++)
            part = fmaf(get(p->b.type, p->b_data, b_at + k * b_step),
                        get(p->a.type, p->a_data, a_at + k * a_step), part);
        sum = block == 0 && p->beta == 0 ? part : sum + part;
    }
    return sum;
}

static double tanh_of_gelu(double x)
{
    return tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

static float gelu(float x)
{
    return (float)(0.5 * (double)x * (1 + tanh_of_gelu((double)x)));
}

static float gelu_slope(float x)
{
    double at = (double)x, t = tanh_of_gelu(at);

    return (float)(0.5 * (1 + t) +
                   0.5 * at * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * at * at));
}

/* What the epilogue makes of the sum for element (i, j). */
static float end(const struct product *p, int64_t i, int64_t j, float sum)
{
    int64_t at = j * p->how.aux_step + i;

    if (has_bias(&p->how))
        sum += get((cudaDataType_t)p->how.bias_type, p->how.bias, i);
    if (has_gelu(&p->how)) {
        set(p->c.type, p->how.aux, at, sum);
        return gelu(sum);
    }
    return has_aux(&p->how) ? sum * gelu_slope(get(p->c.type, p->how.aux, at)) : sum;
}

static void run(void *context)
{
    const struct product *p = context;

    memset(p->workspace, UNSET_BYTE, WORKSPACE);
    for (int64_t j = 0; j < p->sizes.n; j++)
        for (int64_t i = 0; i < p->sizes.m; i++) {
            int64_t at = j * p->c.step + i;
            float sum = sum_of(p, i, j, p->beta != 0 ? get(p->c.type, p->c_data, at) : 0);

            set(p->c.type, p->c_data, at, end(p, i, j, sum));
        }
}

static bool is_aligned(const void *data, uint32_t alignment)
{
    return alignment == 0 || (uintptr_t)data % alignment == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    struct choice chosen, wanted;
    struct product *p = calloc(1, sizeof *p);

    (void)handle;
    CT_ASSERT(p != NULL);
    memcpy(&chosen, algo->data, sizeof chosen);
    bool good = fit(desc, a_layout, b_layout, c_layout, &wanted) && c == d &&
                c_layout == d_layout && chosen.kind == ALGORITHM && chosen.m == wanted.m &&
                chosen.n == wanted.n && chosen.k == wanted.k &&
                chosen.epilogue == wanted.epilogue && chosen.aux_step == wanted.aux_step &&
                (!has_aux(desc) || hostcuda_is_reachable(desc->aux)) &&
                (!has_bias(desc) || hostcuda_is_reachable(desc->bias)) &&
                is_aligned(a, chosen.alignment[0]) && is_aligned(b, chosen.alignment[1]) &&
                is_aligned(c, chosen.alignment[2]) && workspace_bytes >= WORKSPACE &&
                *(const float *)alpha == 1 && hostcuda_is_reachable(a) &&
                hostcuda_is_reachable(b) && hostcuda_is_reachable(c);
    if (!good) {
        free(p);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *p = (struct product){.sizes = chosen,
                          .how = *desc,
                          .a = *a_layout,
                          .b = *b_layout,
                          .c = *c_layout,
                          .a_data = hostcuda_near(a),
                          .b_data = hostcuda_near(b),
                          .c_data = hostcuda_near(d),
                          .workspace = hostcuda_near(workspace),
                          .beta = *(const float *)beta};
    p->how.bias = has_bias(desc) ? hostcuda_near(desc->bias) : NULL;
    p->how.aux = has_aux(desc) ? hostcuda_near(desc->aux) : NULL;
    return hostcuda_push_launch(stream, (struct hostcuda_work){run, free, p}) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
