/* The CPU device (device.h): its making, its memory, and which way each op goes (cpu.h). */
#include "tensor/cpu/cpu.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- instruction sets ----------------------------------------------------------------------- */

static const char *const names[CT_CPU_ISAS] = {
    [CT_CPU_AUTO] = "auto", [CT_CPU_PORTABLE] = "portable", [CT_CPU_NEON] = "neon",
    [CT_CPU_AVX2] = "avx2", [CT_CPU_AVX512] = "avx512",
};

bool ct_cpu_isa_runs(enum ct_cpu_isa isa)
{
    return (size_t)isa < CT_CPU_ISAS && ct_cpu_sets[isa].runs != NULL && ct_cpu_sets[isa].runs();
}

enum ct_cpu_isa ct_cpu_isa_best(void)
{
    enum ct_cpu_isa best = CT_CPU_ISAS - 1;

    while (!ct_cpu_isa_runs(best))
        best--;
    return best;
}

const char *ct_cpu_isa_name(enum ct_cpu_isa isa)
{
    return (size_t)isa < CT_CPU_ISAS ? names[isa] : "absent";
}

/* ---- memory --------------------------------------------------------------------------------- */

enum { HUGE_PAGE = 2 << 20 };

/* Pages come zeroed and unused ones cost nothing; big arenas ask for huge pages. */
static void *cpu_alloc(struct ct_device *device, size_t bytes)
{
    (void)device;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void cpu_release(struct ct_device *device, void *memory, size_t bytes)
{
    (void)device;
    CT_ASSERT(munmap(memory, bytes) == 0);
}

static void cpu_copy(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

/* ---- ops ------------------------------------------------------------------------------------ */

/* How an op's work is cut: by elements of output 0 or input 0 (a number a row there), by rows of
 * input 0 or output 0, by columns of input 0 or output 0, by heads of sequences or of a cache, by
 * samples of output 0, by elements of a window, by blocks, not at all, as a matrix product, or as
 * the ops that it stands for. */
enum cut {
    CUT_ELEMENTS,
    CUT_IN_ELEMENTS,
    CUT_ROW_SUMS,
    CUT_ROWS,
    CUT_OUT_ROWS,
    CUT_COLUMNS,
    CUT_OUT_COLUMNS,
    CUT_HEADS,
    CUT_CACHED,
    CUT_SAMPLES,
    CUT_WINDOW,
    CUT_BLOCKS,
    CUT_NOT,
    CUT_PRODUCT,
    CUT_PARTS
};

static const enum cut cuts[CT_OP_COUNT] = {
#define OTHER(op, cut, way) [CT_OP_##op] = CUT_##cut,
#include "tensor/cpu/cpu_kernel.def"
};

enum { LEAF_ELEMENTS = 1024, LEAF_ROWS = 8 };

/* A head of a sequence costs some sequence^2 columns of products. */
static struct ct_cpu_range heads_of(const struct ct_kernel_args *args, int64_t rows)
{
    int64_t sequence = (int64_t)args->attr.sequence, heads = (int64_t)args->attr.heads;

    return (struct ct_cpu_range){rows / sequence * heads, sequence * sequence, 0};
}

static struct ct_cpu_range blocks_of(const struct ct_kernel_args *args, int64_t elements)
{
    int64_t block = (int64_t)(args->attr.rows * args->attr.columns);

    return (struct ct_cpu_range){elements / block, block, 0};
}

static struct ct_cpu_range range_of(enum ct_op_kind op, const struct ct_kernel_args *args)
{
    struct ct_shape in = args->in[0].shape, out = args->out[0].shape;

    switch (cuts[op]) {
    case CUT_ELEMENTS:
        return (struct ct_cpu_range){ct_shape_elements(out), 1, 0};
    case CUT_IN_ELEMENTS:
        return (struct ct_cpu_range){ct_shape_elements(in), 1, LEAF_ELEMENTS};
    case CUT_ROW_SUMS:
        return (struct ct_cpu_range){ct_shape_elements(in), 1, LEAF_ROWS};
    case CUT_ROWS:
        return (struct ct_cpu_range){ct_shape_rows(in), ct_shape_columns(in), LEAF_ROWS};
    case CUT_OUT_ROWS:
        return (struct ct_cpu_range){ct_shape_rows(out), ct_shape_columns(out), 0};
    case CUT_COLUMNS:
        return (struct ct_cpu_range){ct_shape_columns(in), ct_shape_rows(in), 0};
    case CUT_OUT_COLUMNS:
        return (struct ct_cpu_range){ct_shape_columns(out), ct_shape_rows(out), 0};
    case CUT_SAMPLES:
        return (struct ct_cpu_range){out.dim[0],
                                     out.dim[0] == 0 ? 0 : ct_shape_elements(out) / out.dim[0], 0};
    case CUT_WINDOW:
        return (struct ct_cpu_range){ct_shape_elements(out) / ct_shape_columns(in),
                                     ct_shape_elements(in), 0};
    case CUT_BLOCKS:
        return blocks_of(args, ct_shape_elements(in));
    case CUT_HEADS:
        return heads_of(args, ct_shape_rows(in));
    case CUT_CACHED: /* as if all of the cache were read */
        return (struct ct_cpu_range){(int64_t)args->attr.heads,
                                     ct_shape_rows(in) * ct_shape_elements(args->out[1].shape) /
                                         (int64_t)args->attr.heads,
                                     0};
    default:
        return (struct ct_cpu_range){1, 1, 0};
    }
}

/* linear: y[M,N] = x[M,K] W[N,K]^T; linear_dx: dx[M,K] = dy[M,N] W[N,K]; linear_dw: dW[N,K] =
 * dy[M,N]^T x[M,K]. A transposed operand is one whose strides are exchanged. */
static struct ct_gemm product_of(enum ct_op_kind op, const struct ct_kernel_args *args)
{
    const struct ct_tensor *a = &args->in[0], *b = &args->in[1], *c = &args->out[0];
    int64_t a_columns = ct_shape_columns(a->shape), b_columns = ct_shape_columns(b->shape);
    struct ct_gemm g = {.m = ct_shape_rows(c->shape),
                        .n = ct_shape_columns(c->shape),
                        .k = op == CT_OP_LINEAR_DW ? ct_shape_rows(a->shape) : a_columns,
                        .a = a->data,
                        .b = b->data,
                        .c = c->data,
                        .a_row = a_columns,
                        .a_k = 1,
                        .b_k = b_columns,
                        .b_col = 1,
                        .c_row = ct_shape_columns(c->shape)};

    if (op == CT_OP_LINEAR) {
        g.b_k = 1;
        g.b_col = b_columns;
        g.bias = args->in[2].data;
    } else if (op == CT_OP_LINEAR_DW) {
        g.a_row = 1;
        g.a_k = a_columns;
        g.accumulate = args->attr.accumulate;
    }
    return g;
}

static const struct ct_cpu_kernels *kernels_of(const struct ct_device *device, enum ct_dtype dtype)
{
    const struct ct_cpu *cpu = (const struct ct_cpu *)device;

    return ct_dtype_wide(dtype) == CT_F32 ? cpu->f32 : dtype == CT_F64 ? cpu->f64 : NULL;
}

static bool cpu_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype)
{
    const struct ct_cpu_kernels *kernels = kernels_of(device, dtype);

    if (ct_dtype_is_narrow(dtype) && !ct_op_narrows(op))
        return false;
    return kernels != NULL &&
           (kernels->part[op] != NULL || kernels->block[op] != NULL || kernels->sum[op] != NULL ||
            cuts[op] == CUT_PRODUCT || cuts[op] == CUT_PARTS);
}

static void run_parts(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                      const struct ct_kernel_args *args)
{
    struct ct_op_part parts[CT_OP_MAX_PARTS];
    int count = ct_op_parts(op, args, parts);

    for (int i = 0; i < count; i++)
        ct_device_run(device, parts[i].op, dtype, &parts[i].args);
}

static void cpu_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                    const struct ct_kernel_args *args)
{
    struct ct_cpu *cpu = (struct ct_cpu *)device;
    const struct ct_cpu_kernels *kernels = kernels_of(device, dtype);
    const struct ct_narrow narrow = {op, &cpu->half[dtype], &cpu->operands[op]};
    const struct ct_cpu_work work = {.args = args,
                                     .part = kernels->part[op],
                                     .block = kernels->block[op],
                                     .sum = kernels->sum[op],
                                     .narrow = ct_dtype_is_narrow(dtype) ? &narrow : NULL};

    CT_ASSERT(cpu_has(device, op, dtype));
    if (cuts[op] == CUT_PRODUCT) {
        struct ct_gemm gemm = product_of(op, args);

        if (work.narrow != NULL)
            ct_cpu_gemm_narrow(cpu, kernels->gemm, &gemm, narrow.half,
                               args->out[0].dtype == CT_F32);
        else
            ct_cpu_gemm(cpu, kernels->gemm, &gemm);
    } else if (cuts[op] == CUT_PARTS) {
        run_parts(device, op, dtype, args);
    } else if (work.sum != NULL) {
        double sum = ct_cpu_tree_sum(cpu, &work, range_of(op, args));
        double *out = args->out[0].data;

        *out = args->attr.accumulate ? *out + sum : sum;
    } else {
        ct_cpu_split(cpu, &work, range_of(op, args));
    }
}

/* ---- making --------------------------------------------------------------------------------- */

static void cpu_free(struct ct_device *device)
{
    struct ct_cpu *cpu = (struct ct_cpu *)device;

    if (cpu->workspace != NULL)
        cpu_release(device, cpu->workspace, (size_t)ct_pool_threads(cpu->pool) * CT_CPU_WORKSPACE);
    ct_pool_free(cpu->pool);
    free(cpu);
}

static int cpu_beside(struct ct_device *device, struct ct_device **ret_device,
                      struct ct_error *err);

static const struct ct_device_table cpu_table = {
    .on_host = true,
    .name = "cpu",
    .free = cpu_free,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .has = cpu_has,
    .run = cpu_run,
    .beside = cpu_beside,
};

static int choose_threads(int wanted, int *ret_threads, struct ct_error *err)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int64_t threads = wanted;

    if (wanted == 0 && (text == NULL || ct_parse_i64(text, &threads) != 0 || threads < 1))
        threads = 1;
    if (threads < 1 || threads > CT_POOL_MAX_THREADS)
        return ct_error_set(err, CT_EUSAGE,
                            "%lld compute threads: give a number from 1 to %d (OMP_NUM_THREADS)",
                            (long long)threads, CT_POOL_MAX_THREADS);
    *ret_threads = (int)threads;
    return 0;
}

static int choose_isa(enum ct_cpu_isa wanted, enum ct_cpu_isa *ret_isa, struct ct_error *err)
{
    if (wanted == CT_CPU_AUTO)
        wanted = ct_cpu_isa_best();
    else if (!ct_cpu_isa_runs(wanted))
        return ct_error_set(err, CT_EUNSUPPORTED, "this machine has no %s; its best is %s",
                            ct_cpu_isa_name(wanted), ct_cpu_isa_name(ct_cpu_isa_best()));
    *ret_isa = wanted;
    return 0;
}

int ct_device_cpu_new(const struct ct_cpu_options *options, struct ct_device **ret_device,
                      struct ct_error *err)
{
    const struct ct_cpu_options wanted = options != NULL ? *options : (struct ct_cpu_options){0};
    enum ct_cpu_isa isa = CT_CPU_PORTABLE;
    int threads = 1;
    int rc = choose_threads(wanted.threads, &threads, err);

    if (rc == 0)
        rc = choose_isa(wanted.isa, &isa, err);
    if (rc != 0)
        return rc;
    struct ct_cpu *cpu = calloc(1, sizeof *cpu);

    if (cpu != NULL) {
        cpu->device.table = &cpu_table;
        cpu->isa = isa;
        cpu->f32 = ct_cpu_sets[isa].f32;
        cpu->f64 = &ct_cpu_kernels_f64;
        cpu->half = ct_cpu_sets[isa].half;
        for (int op = 0; op < CT_OP_COUNT; op++)
            ct_op_operands((enum ct_op_kind)op, &cpu->operands[op]);
        cpu->pool = ct_pool_new(threads);
        if (cpu->pool != NULL)
            cpu->workspace = cpu_alloc(&cpu->device, (size_t)threads * CT_CPU_WORKSPACE);
        if (cpu->workspace != NULL) {
            *ret_device = &cpu->device;
            return 0;
        }
        cpu_free(&cpu->device);
    }
    return ct_error_set(err, CT_ENOMEM, "no memory or threads for a CPU device with %d threads",
                        threads);
}

/* What runs beside takes no core from what computes. */
static int cpu_beside(struct ct_device *device, struct ct_device **ret_device, struct ct_error *err)
{
    const struct ct_cpu_options options = {.threads = 1, .isa = ((struct ct_cpu *)device)->isa};

    return ct_device_cpu_new(&options, ret_device, err);
}
