/* Linear layers with their activation on the whole device, which runs on the host
 * (tests/lib/hostcuda), beside the CPU's; and what the fake cuBLASLt refuses there as NVIDIA's
 * does. */
#include "host.h"
#include "kit.h"

#include "base/assert.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/device.h"

#include <criterion/criterion.h>
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

TestSuite(linear, .timeout = 60);

static const enum ct_op_kind ops[] = {CT_OP_LINEAR_GELU, CT_OP_LINEAR_DX_GELU};
static const enum ct_dtype types[] = {CT_F32, CT_BF16, CT_F16};

/* ---- the device beside the CPU -------------------------------------------------------------- */

enum { ARENA_BYTES = 1 << 22 };

struct rig {
    struct ct_device *gpu;
    char *arena;
    size_t bytes;
};

static void rig_init(struct rig *rig)
{
    struct ct_error err = {0};
    void *arena = NULL;

    *rig = (struct rig){0};
    cr_assert_eq(ct_cuda_open(0, &rig->gpu, &err), 0, "%s", err.text);
    cr_assert_eq(ct_device_alloc(rig->gpu, ARENA_BYTES, &arena, &err), 0, "%s", err.text);
    rig->arena = arena;
}

static void rig_deinit(struct rig *rig)
{
    ct_device_release(rig->gpu, rig->arena, ARENA_BYTES);
    ct_device_free(rig->gpu);
}

static struct ct_tensor place(struct rig *rig, const struct ct_tensor *tensor)
{
    struct ct_tensor copy = *tensor;
    size_t bytes = ct_tensor_bytes(tensor);

    if (tensor->data == NULL)
        return copy;
    cr_assert(rig->bytes + bytes + 256 <= ARENA_BYTES);
    copy.data = rig->arena + rig->bytes;
    rig->bytes += (bytes + 255) / 256 * 256;
    ct_device_copy_in(rig->gpu, copy.data, tensor->data, bytes);
    return copy;
}

static struct ct_kernel_args place_all(struct rig *rig, const struct ct_kernel_args *args)
{
    struct ct_kernel_args far = *args;

    rig->bytes = 0;
    for (int i = 0; i < CT_OP_MAX_IN; i++)
        far.in[i] = place(rig, &args->in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        far.out[i] = place(rig, &args->out[i]);
    return far;
}

static void run_far(struct rig *rig, enum ct_op_kind op, enum ct_dtype dtype,
                    const struct ct_kernel_args *far)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_device_prepare(rig->gpu, op, dtype, far, &err), 0, "%s", err.text);
    ct_device_run(rig->gpu, op, dtype, far);
    cr_assert_eq(ct_device_finish(rig->gpu, &err), 0, "%s", err.text);
}

/* Two roundings of 16 bits where the device has one, of numbers below 32: their sums are short. */
static double bound_of(enum ct_dtype dtype)
{
    return dtype == CT_F32 ? 1e-5 : dtype == CT_BF16 ? 0x1p-6 : 0x1p-9;
}

static void compare(struct rig *rig, enum ct_op_kind op, enum ct_dtype dtype, struct kit_sizes size,
                    bool with_bias)
{
    struct kit kit;
    char what[96];

    kit_init(&kit, kit_seed(op, (uint64_t)size.m));
    struct ct_kernel_args args = kit_args(&kit, op, dtype, size);
    if (op == CT_OP_LINEAR_GELU && !with_bias)
        args.in[2].data = NULL;
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args.out[i].data != NULL)
            memset(args.out[i].data, 0xff, ct_tensor_bytes(&args.out[i]));
    struct ct_kernel_args far = place_all(rig, &args);

    run_far(rig, op, dtype, &far);
    kit_run(CT_CPU_AUTO, 1, op, dtype, &args);
    (void)snprintf(what, sizeof what, "%s of %s, %lld x %lld x %lld", ct_op_info(op)->name,
                   ct_dtype_name(dtype), (long long)size.m, (long long)size.n, (long long)size.k);
    for (int i = 0; i < CT_OP_MAX_OUT; i++) {
        if (args.out[i].data == NULL)
            continue;
        struct ct_tensor back = kit_copy(&kit, &args.out[i], args.out[i].dtype);
        ct_device_copy_out(rig->gpu, back.data, far.out[i].data, ct_tensor_bytes(&back));
        kit_near(&back, &args.out[i], bound_of(dtype), what);
    }
    kit_deinit(&kit);
}

/* Columns that an epilogue takes (multiples of 8), and others, which are two ops there. */
Test(linear, with_gelu_gives_the_cpus_results_with_an_epilogue_and_without)
{
    static const struct kit_sizes sizes[] = {
        {5, 16, 24, 0, 0}, {33, 8, 8, 0, 0}, {7, 9, 13, 0, 0}, {1, 1, 1, 0, 0}, {0, 8, 8, 0, 0}};
    struct rig rig;

    rig_init(&rig);
    for (size_t o = 0; o < CT_COUNT(ops); o++)
        for (size_t t = 0; t < CT_COUNT(types); t++)
            for (size_t i = 0; i < CT_COUNT(sizes); i++)
                for (int bias = 0; bias < 2; bias++)
                    compare(&rig, ops[o], types[t], sizes[i], bias != 0);
    rig_deinit(&rig);
}

/* How many kernels an op in f32 is, beside its product. */
static uint64_t kernels_of(struct rig *rig, enum ct_op_kind op, struct kit_sizes size)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args = kit_args(&kit, op, CT_F32, size);
    struct ct_kernel_args far = place_all(rig, &args);
    uint64_t before = hostcuda_launches();

    run_far(rig, op, CT_F32, &far);
    kit_deinit(&kit);
    return hostcuda_launches() - before;
}

Test(linear, with_gelu_is_one_product_where_columns_are_multiples_of_8)
{
    static const struct kit_sizes with = {5, 16, 24, 0, 0}, without = {5, 12, 20, 0, 0};
    struct rig rig;

    rig_init(&rig);
    for (size_t o = 0; o < CT_COUNT(ops); o++) {
        cr_assert_eq(kernels_of(&rig, ops[o], with), 0, "%s", ct_op_info(ops[o])->name);
        cr_assert_eq(kernels_of(&rig, ops[o], without), 1, "%s", ct_op_info(ops[o])->name);
    }
    rig_deinit(&rig);
}

/* ---- the fake ------------------------------------------------------------------------------- */

enum { M = 8, N = 3, ELEMENTS = 1024, CHUNK = 1 << 16 };

/* c[8, 3] = a[8, 8] b[8, 3], and what an epilogue wants. */
struct scene {
    cublasLtHandle_t library;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, c;
    cublasLtMatmulPreference_t preference;
    float *memory; /* of the device */
};

#define SET(scene, attribute, value)                                                          \
    cr_assert_eq(                                                                             \
        cublasLtMatmulDescSetAttribute((scene)->product, attribute, &(value), sizeof(value)), \
        CUBLAS_STATUS_SUCCESS)

static void scene_init(struct scene *s)
{
    const uint64_t workspace = CHUNK;

    *s = (struct scene){0};
    cr_assert_eq(cudaMalloc((void **)&s->memory, ELEMENTS * sizeof(float)), cudaSuccess);
    cublasLtCreate(&s->library);
    cublasLtMatmulDescCreate(&s->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&s->a, CUDA_R_32F, M, M, M);
    cublasLtMatrixLayoutCreate(&s->c, CUDA_R_32F, M, N, M);
    cublasLtMatmulPreferenceCreate(&s->preference);
    cublasLtMatmulPreferenceSetAttribute(s->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
}

static void scene_deinit(struct scene *s)
{
    cublasLtMatmulPreferenceDestroy(s->preference);
    cublasLtMatrixLayoutDestroy(s->c);
    cublasLtMatrixLayoutDestroy(s->a);
    cublasLtMatmulDescDestroy(s->product);
    cublasLtDestroy(s->library);
    cudaFree(s->memory);
}

static void end_with(struct scene *s, int epilogue, const void *bias, void *aux, int64_t step)
{
    const int32_t type = CUDA_R_32F, kind = epilogue;

    SET(s, CUBLASLT_MATMUL_DESC_EPILOGUE, kind);
    SET(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    SET(s, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    SET(s, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    SET(s, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, step);
}

static bool choose(const struct scene *s, cublasLtMatmulAlgo_t *ret_algorithm)
{
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(s->library, s->product, s->a, s->c, s->c,
                                                           s->c, s->preference, 1, &result, &count);

    if (status != CUBLAS_STATUS_SUCCESS || count != 1)
        return false;
    *ret_algorithm = result.algo;
    return true;
}

static bool multiply(const struct scene *s, const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1, zero = 0;
    float *c = s->memory + 128;
    void *workspace = NULL;

    cr_assert_eq(cudaMalloc(&workspace, CHUNK), cudaSuccess);
    cublasStatus_t status =
        cublasLtMatmul(s->library, s->product, &one, s->memory, s->a, s->memory + 64, s->c, &zero,
                       c, s->c, c, s->c, algorithm, workspace, CHUNK, NULL);
    cudaFree(workspace);
    return status == CUBLAS_STATUS_SUCCESS;
}

Test(linear, double_of_cublaslt_knows_no_algorithm_for_an_epilogue_without_what_it_needs)
{
    enum { RELU = 2 };
    cublasLtMatmulAlgo_t algorithm;
    struct scene s;

    scene_init(&s);
    float *bias = s.memory + 192, *aux = s.memory + 256;
    const struct {
        int epilogue;
        const float *bias;
        void *aux;
        int64_t step;
        bool good;
    } ways[] = {
        {CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL, 0, true},
        {CUBLASLT_EPILOGUE_GELU_AUX, NULL, aux, M, true},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias, aux, 2 * M, true},
        {CUBLASLT_EPILOGUE_DGELU, NULL, aux, M, true},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, NULL, aux, M, false},
        {CUBLASLT_EPILOGUE_GELU_AUX, NULL, NULL, M, false},
        {CUBLASLT_EPILOGUE_GELU_AUX, NULL, aux, 0, false},
        {CUBLASLT_EPILOGUE_DGELU, NULL, aux, M + 4, false},
        {CUBLASLT_EPILOGUE_DGELU, NULL, aux, M - 8, false},
        {CUBLASLT_EPILOGUE_DGELU, NULL, aux + 1, M, false},
        {RELU, NULL, aux, M, false},
    };

    for (size_t i = 0; i < CT_COUNT(ways); i++) {
        end_with(&s, ways[i].epilogue, ways[i].bias, ways[i].aux, ways[i].step);
        cr_assert_eq(choose(&s, &algorithm), ways[i].good, "way %zu", i);
    }
    scene_deinit(&s);
}

Test(linear, double_of_cublaslt_runs_an_algorithm_with_its_own_epilogue_and_aux_alone)
{
    cublasLtMatmulAlgo_t algorithm;
    struct scene s;

    scene_init(&s);
    float *aux = s.memory + 256;
    end_with(&s, CUBLASLT_EPILOGUE_GELU_AUX, NULL, aux, M);
    cr_assert(choose(&s, &algorithm));
    cr_assert(multiply(&s, &algorithm));
    end_with(&s, CUBLASLT_EPILOGUE_GELU_AUX, NULL, aux, 2 * M);
    cr_assert_not(multiply(&s, &algorithm), "columns of aux further apart");
    end_with(&s, CUBLASLT_EPILOGUE_DGELU, NULL, aux, M);
    cr_assert_not(multiply(&s, &algorithm), "another epilogue");
    end_with(&s, CUBLASLT_EPILOGUE_GELU_AUX, NULL, &s, M);
    cr_assert_not(multiply(&s, &algorithm), "memory of the host");
    scene_deinit(&s);
}
