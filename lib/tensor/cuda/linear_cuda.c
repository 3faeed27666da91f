/* Linear layers by cuBLASLt.
 *
 *     prepare    product.h's key of the operands -> a choice: descriptors, an algorithm, workspace
 *     launch     the choice of the key, with the pointers of the operands
 *
 * The algorithm is one that cuBLASLt's heuristic names, by its rank: the same one for the same
 * shapes, library and GPU, in every run, so the bits repeat. Sums over K are f32, split at most
 * into parts that lie in the workspace and are added in their order.
 *
 * linear_gelu and linear_dx_gelu are products with an epilogue, which wants columns of aux that are
 * multiples of 8 elements (cuBLAS Library, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD). Where cuBLASLt
 * has no such product, they are two ops: a plain product, then a kernel of element.cu.
 *
 * The bias is f32. Where cuBLASLt has no epilogue that adds such a bias to a result of 16 bits, it
 * is rounded to these first, in front of the workspace. */
#include "tensor/cuda/linear.h"
#include "tensor/cuda/product.h"

#include "base/assert.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

struct choice {
    struct ct_product_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;    /* of the algorithm */
    size_t rounded_bias; /* bytes in front of that; 0: the bias is taken as it is */
};

struct ct_cuda_linear {
    cublasLtHandle_t library;
    struct choice *choices;
    int count, room;
};

static cudaDataType_t type_of(enum ct_dtype dtype)
{
    if (dtype == CT_BF16)
        return CUDA_R_16BF;
    return dtype == CT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void forget(struct choice *choice)
{
    if (choice->c != NULL)
        cublasLtMatrixLayoutDestroy(choice->c);
    if (choice->b != NULL)
        cublasLtMatrixLayoutDestroy(choice->b);
    if (choice->a != NULL)
        cublasLtMatrixLayoutDestroy(choice->a);
    if (choice->product != NULL)
        cublasLtMatmulDescDestroy(choice->product);
}

static void linear_free(struct ct_cuda_linear *linear)
{
    if (linear == NULL)
        return;
    for (int i = 0; i < linear->count; i++)
        forget(&linear->choices[i]);
    if (linear->library != NULL)
        cublasLtDestroy(linear->library);
    free(linear->choices);
    free(linear);
}

/* ---- choosing ------------------------------------------------------------------------------- */

static const struct choice *find(const struct ct_cuda_linear *linear,
                                 const struct ct_product_key *key)
{
    for (int i = 0; i < linear->count; i++)
        if (memcmp(&linear->choices[i].key, key, sizeof *key) == 0)
            return &linear->choices[i];
    return NULL;
}

/* One attribute of a description or a preference; the first failure stays. */
#define SET(rc, function, object, attribute, value)                      \
    do {                                                                 \
        if ((rc) == CUBLAS_STATUS_SUCCESS)                               \
            (rc) = function(object, attribute, &(value), sizeof(value)); \
    } while (0)

static cublasLtEpilogue_t epilogue_of(const struct ct_product *p)
{
    if (p->end == CT_PRODUCT_DGELU)
        return CUBLASLT_EPILOGUE_DGELU;
    if (p->end == CT_PRODUCT_GELU)
        return p->bias != NULL ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return p->bias != NULL ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Its epilogue, with the addresses at hand: algorithms are asked for by their alignment. */
static cublasStatus_t describe_end(cublasLtMatmulDesc_t product, const struct ct_product *p,
                                   bool round_bias)
{
    const cublasLtEpilogue_t epilogue = epilogue_of(p);
    const int32_t bias = (int32_t)type_of(round_bias ? p->out : ct_dtype_wide(p->out));
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;

    SET(rc, cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (p->bias != NULL) {
        SET(rc, cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
            p->bias);
        SET(rc, cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
    }
    if (p->aux != NULL) {
        SET(rc, cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
            p->aux);
        SET(rc, cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
            p->aux_step);
    }
    return rc;
}

static cublasStatus_t describe(struct choice *choice, const struct ct_product *p, bool round_bias)
{
    const cublasOperation_t a = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t rc = cublasLtMatmulDescCreate(&choice->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    SET(rc, cublasLtMatmulDescSetAttribute, choice->product, CUBLASLT_MATMUL_DESC_TRANSA, a);
    SET(rc, cublasLtMatmulDescSetAttribute, choice->product, CUBLASLT_MATMUL_DESC_TRANSB, b);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = describe_end(choice->product, p, round_bias);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutCreate(&choice->a, type_of(p->in),
                                        (uint64_t)(p->a_transposed ? p->k : p->m),
                                        (uint64_t)(p->a_transposed ? p->m : p->k), p->a_step);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutCreate(&choice->b, type_of(p->in),
                                        (uint64_t)(p->b_transposed ? p->n : p->k),
                                        (uint64_t)(p->b_transposed ? p->k : p->n), p->b_step);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutCreate(&choice->c, type_of(p->out), (uint64_t)p->m, (uint64_t)p->n,
                                        p->c_step);
    return rc;
}

/* Which of the algorithms that the heuristic names is taken: the first; with DGELU the third, or
 * the last there is. In runs on H100s (cuBLAS 13.0, the shapes of GPT-2 124M) the third took 3.99
 * to 4.50 ms a step there, the first 4.24 to 4.62; elsewhere the first was the fastest of four. */
enum { RANK_DGELU = 2, RANKS = 8 };

/* Fails when the library has no algorithm. */
static cublasStatus_t pick(const struct ct_cuda_linear *linear, struct choice *choice)
{
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t workspace = CT_CUDA_WORKSPACE - choice->rounded_bias;
    const uint32_t a = choice->key.a_align, b = choice->key.b_align, c = choice->key.c_align;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t results[RANKS], *result = results;
    int rank = choice->key.end == CT_PRODUCT_DGELU ? RANK_DGELU : 0, found = 0;
    cublasStatus_t rc = cublasLtMatmulPreferenceCreate(&preference);

    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a);
    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b);
    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
    SET(rc, cublasLtMatmulPreferenceSetAttribute, preference,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulAlgoGetHeuristic(linear->library, choice->product, choice->a, choice->b,
                                            choice->c, choice->c, preference, RANKS, results,
                                            &found);
    if (found > 0)
        result = &results[CT_MIN(rank, found - 1)];
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : result->state;
    if (rc == CUBLAS_STATUS_SUCCESS) {
        choice->algorithm = result->algo;
        choice->workspace = result->workspaceSize;
    }
    if (preference != NULL)
        cublasLtMatmulPreferenceDestroy(preference);
    return rc;
}

/* With the bias as it is; where that fails, with one rounded to a result of 16 bits. */
static cublasStatus_t choose(const struct ct_cuda_linear *linear, const struct ct_product *p,
                             struct choice *choice)
{
    const struct ct_product_key key = ct_product_key_of(p);
    cublasStatus_t rc = CUBLAS_STATUS_NOT_SUPPORTED;

    for (int round_bias = 0; round_bias < 2 && rc != CUBLAS_STATUS_SUCCESS; round_bias++) {
        if (round_bias && (p->bias == NULL || !ct_dtype_is_narrow(p->out)))
            break;
        forget(choice);
        *choice = (struct choice){.key = key};
        if (round_bias)
            choice->rounded_bias = ct_linear_bias_bytes(p->m);
        rc = describe(choice, p, round_bias);
        if (rc == CUBLAS_STATUS_SUCCESS)
            rc = pick(linear, choice);
    }
    return rc;
}

static int make(struct ct_cuda_queue *queue, struct ct_error *err)
{
    struct ct_cuda_linear *linear = calloc(1, sizeof *linear);

    if (linear == NULL)
        return ct_error_set(err, CT_ENOMEM, "cuda: no memory for cuBLASLt's state");
    cublasStatus_t rc = cublasLtCreate(&linear->library);

    if (rc != CUBLAS_STATUS_SUCCESS) {
        linear_free(linear);
        return ct_error_set(err, CT_EDEVICE, "cuda: cuBLASLt does not start: %s",
                            cublasLtGetStatusString(rc));
    }
    queue->linear = linear;
    queue->linear_free = linear_free;
    return 0;
}

static int add_room(struct ct_cuda_linear *linear, struct ct_error *err)
{
    int room = linear->room == 0 ? 16 : 2 * linear->room;
    struct choice *choices = linear->choices;

    if (linear->count < linear->room)
        return 0;
    choices = realloc(choices, (size_t)room * sizeof *choices);
    if (choices == NULL)
        return ct_error_set(err, CT_ENOMEM, "cuda: no memory for %d products", room);
    linear->choices = choices;
    linear->room = room;
    return 0;
}

static int prepare(struct ct_cuda_queue *queue, const struct ct_product *p, size_t *ret_bytes,
                   struct ct_error *err)
{
    const struct ct_product_key key = ct_product_key_of(p);
    int rc = queue->linear == NULL ? make(queue, err) : 0;
    struct ct_cuda_linear *linear = queue->linear;

    if (rc != 0 || linear == NULL || p->m == 0 || p->n == 0)
        return rc;
    if (p->k == 0)
        return p->bias == NULL ? 0
                               : ct_error_set(err, CT_EUNSUPPORTED, "linear: rows of x are empty");
    if (find(linear, &key) == NULL) {
        struct choice choice = {.product = NULL};

        rc = add_room(linear, err);
        if (rc != 0)
            return rc;
        cublasStatus_t status = choose(linear, p, &choice);

        if (status != CUBLAS_STATUS_SUCCESS) {
            forget(&choice);
            return ct_error_set(
                err, CT_EUNSUPPORTED,
                "cuda: cuBLASLt has no product of %s [%lld, %lld] by [%lld, %lld]: %s",
                ct_dtype_name(p->in), (long long)p->m, (long long)p->k, (long long)p->k,
                (long long)p->n, cublasLtGetStatusString(status));
        }
        linear->choices[linear->count++] = choice;
    }
    const struct choice *choice = find(linear, &key);

    *ret_bytes = choice->rounded_bias + choice->workspace;
    return 0;
}

/* ---- launching ------------------------------------------------------------------------------ */

static void run(struct ct_cuda_queue *queue, const struct ct_product *p)
{
    const struct ct_product_key key = ct_product_key_of(p);
    const float one = 1, beta = p->accumulate ? 1 : 0;

    if (p->m == 0 || p->n == 0)
        return;
    if (p->k == 0) {
        if (!p->accumulate)
            cudaMemsetAsync(p->c, 0, (size_t)(p->m * p->n) * ct_dtype_size(p->out), queue->stream);
        return;
    }
    const struct choice *choice = find(queue->linear, &key);
    const void *bias = p->bias;

    CT_ASSERT(choice != NULL); /* it was prepared */
    if (choice->rounded_bias > 0) {
        ct_linear_round_bias(queue->workspace, p->bias, p->m, p->out, queue->stream);
        bias = queue->workspace;
    }
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;

    if (bias != NULL)
        SET(rc, cublasLtMatmulDescSetAttribute, choice->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
            bias);
    if (p->aux != NULL)
        SET(rc, cublasLtMatmulDescSetAttribute, choice->product,
            CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmul(queue->linear->library, choice->product, &one, p->a, choice->a, p->b,
                            choice->b, &beta, p->c, choice->c, p->c, choice->c, &choice->algorithm,
                            (char *)queue->workspace + choice->rounded_bias, choice->workspace,
                            queue->stream);
    if (rc != CUBLAS_STATUS_SUCCESS)
        ct_cuda_note(queue, "cublasLtMatmul: %s", cublasLtGetStatusString(rc));
}

#define LINEAR(op, name)                                                               \
    int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                 const struct ct_kernel_args *args, size_t *ret_bytes, \
                                 struct ct_error *err)                                 \
    {                                                                                  \
        const struct ct_product p = ct_product_of(op, dtype, args);                    \
                                                                                       \
        return prepare(queue, &p, ret_bytes, err);                                     \
    }                                                                                  \
                                                                                       \
    void ct_cuda_##name(struct ct_cuda_queue *queue, enum ct_dtype dtype,              \
                        const struct ct_kernel_args *args)                             \
    {                                                                                  \
        const struct ct_product p = ct_product_of(op, dtype, args);                    \
                                                                                       \
        run(queue, &p);                                                                \
    }
LINEAR(CT_OP_LINEAR, linear)
LINEAR(CT_OP_LINEAR_DX, linear_dx)
LINEAR(CT_OP_LINEAR_DW, linear_dw)

/* ---- with an activation --------------------------------------------------------------------- */

/* With the epilogue, or else what its product alone needs. */
static int prepare_gelu(struct ct_cuda_queue *queue, enum ct_op_kind op, enum ct_dtype dtype,
                        const struct ct_kernel_args *args, size_t *ret_bytes, struct ct_error *err)
{
    struct ct_product p = ct_product_of(op, dtype, args);
    struct ct_op_part parts[CT_OP_MAX_PARTS];
    struct ct_error why = {0};
    int rc = prepare(queue, &p, ret_bytes, &why);

    if (rc == CT_EUNSUPPORTED) {
        (void)ct_op_parts(op, args, parts);
        p = ct_product_of(parts[0].op, dtype, &parts[0].args);
        return prepare(queue, &p, ret_bytes, err);
    }
    return rc == 0 ? 0 : ct_error_set(err, rc, "%s", why.text);
}

/* No choice of the product with its epilogue: there is none, or nothing to add up. */
static void run_gelu(struct ct_cuda_queue *queue, enum ct_op_kind op, enum ct_dtype dtype,
                     const struct ct_kernel_args *args)
{
    struct ct_product p = ct_product_of(op, dtype, args);
    const struct ct_product_key key = ct_product_key_of(&p);
    struct ct_op_part parts[CT_OP_MAX_PARTS];

    if (p.m == 0 || p.n == 0)
        return;
    if (find(queue->linear, &key) != NULL) {
        run(queue, &p);
        return;
    }
    (void)ct_op_parts(op, args, parts);
    p = ct_product_of(parts[0].op, dtype, &parts[0].args);
    run(queue, &p);
    ct_cuda_kernels[parts[1].op].launch(queue, dtype, &parts[1].args);
}

#define LINEAR_GELU(op, name)                                                          \
    int ct_cuda_##name##_prepare(struct ct_cuda_queue *queue, enum ct_dtype dtype,     \
                                 const struct ct_kernel_args *args, size_t *ret_bytes, \
                                 struct ct_error *err)                                 \
    {                                                                                  \
        return prepare_gelu(queue, op, dtype, args, ret_bytes, err);                   \
    }                                                                                  \
                                                                                       \
    void ct_cuda_##name(struct ct_cuda_queue *queue, enum ct_dtype dtype,              \
                        const struct ct_kernel_args *args)                             \
    {                                                                                  \
        run_gelu(queue, op, dtype, args);                                              \
    }
LINEAR_GELU(CT_OP_LINEAR_GELU, linear_gelu)
LINEAR_GELU(CT_OP_LINEAR_DX_GELU, linear_dx_gelu)
