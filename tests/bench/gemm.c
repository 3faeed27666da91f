/* Matrix products: ours beside OpenBLAS, on one thread.
 *
 *     gemm [--isa portable|avx2|avx512] [--openblas FILE] [--coretype NAME] [--ms N]
 *
 * For each layer shape and each of the three products of a linear layer, both run in turns for N
 * milliseconds of this thread's time. A line gives the GFLOP/s of each (the lower quartile of the
 * turns' times, since the machine may be busy) and their ratio. OpenBLAS chooses its kernels unless
 * --coretype names them
 * ("Haswell" is its AVX2). Without libopenblas only ours is measured. */
#include "base/assert.h"
#include "tensor/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void cblas_sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
enum { MAX_TURNS = 4096 };

/* A layer: M samples, N outputs, K inputs. */
static const struct {
    int m, n, k;
} shapes[] = {
    {32, 64, 64},    {32, 10, 64},    {256, 64, 64},    {64, 256, 64},
    {64, 1024, 784}, {768, 128, 128}, {768, 512, 128},  {768, 128, 512},
    {128, 512, 784}, {256, 768, 768}, {256, 3072, 768}, {1024, 768, 3072},
};

static const struct {
    enum ct_op_kind op;
    const char *name;
} products[] = {{CT_OP_LINEAR, "y"}, {CT_OP_LINEAR_DX, "dx"}, {CT_OP_LINEAR_DW, "dW"}};

struct bench {
    struct ct_device *device;
    cblas_sgemm_fn *sgemm; /* NULL: not there */
    double budget_ns;
    int m, n, k;
    float *x, *w, *y; /* [M,K], [N,K], [M,N]; each product reads two and writes a fourth */
    float *out;
    double ours[MAX_TURNS], theirs[MAX_TURNS];
};

static struct ct_tensor matrix(float *data, int rows, int columns)
{
    return (struct ct_tensor){CT_F32, ct_shape2(rows, columns), data};
}

static void run_ours(struct bench *b, enum ct_op_kind op)
{
    struct ct_tensor x = matrix(b->x, b->m, b->k), w = matrix(b->w, b->n, b->k);
    struct ct_tensor y = matrix(b->y, b->m, b->n);
    struct ct_kernel_args args = {.in = {y, w}, .out = {matrix(b->out, b->m, b->k)}};

    if (op == CT_OP_LINEAR)
        args = (struct ct_kernel_args){.in = {x, w}, .out = {matrix(b->out, b->m, b->n)}};
    else if (op == CT_OP_LINEAR_DW)
        args = (struct ct_kernel_args){.in = {y, x}, .out = {matrix(b->out, b->n, b->k)}};
    ct_device_run(b->device, op, CT_F32, &args);
}

static void run_theirs(struct bench *b, enum ct_op_kind op)
{
    int m = b->m, n = b->n, k = b->k;

    if (op == CT_OP_LINEAR)
        b->sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1, b->x, k, b->w, k, 0, b->out, n);
    else if (op == CT_OP_LINEAR_DX)
        b->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, m, k, n, 1, b->y, n, b->w, k, 0, b->out, k);
    else
        b->sgemm(ROW_MAJOR, TRANS, NO_TRANS, n, k, m, 1, b->y, n, b->x, k, 0, b->out, k);
}

/* Time that this thread ran, whatever else the machine does. */
static double thread_ns(void)
{
    struct timespec now;

    CT_ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double time_ns(struct bench *b, enum ct_op_kind op,
                      void (*run)(struct bench *, enum ct_op_kind), int repeat)
{
    double start = thread_ns();

    for (int i = 0; i < repeat; i++)
        run(b, op);
    return (thread_ns() - start) / repeat;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The lower quartile of `count` times. */
static double typical(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, compare);
    return times[count / 4];
}

static void measure(struct bench *b, enum ct_op_kind op, const char *name)
{
    double flop = 2.0 * b->m * b->n * b->k;
    int repeat = (int)(4e6 / flop) + 1, turns = 0;

    run_ours(b, op);
    if (b->sgemm != NULL)
        run_theirs(b, op);
    for (double spent = 0; turns < MAX_TURNS && (spent < b->budget_ns || turns < 5); turns++) {
        b->ours[turns] = time_ns(b, op, run_ours, repeat);
        b->theirs[turns] = b->sgemm != NULL ? time_ns(b, op, run_theirs, repeat) : 0;
        spent += (b->ours[turns] + b->theirs[turns]) * repeat;
    }
    double ours = typical(b->ours, turns), theirs = typical(b->theirs, turns);

    printf("%5d x %4d x %4d  %-2s  %8.1f", b->m, b->n, b->k, name, flop / ours);
    if (b->sgemm != NULL)
        printf("  %8.1f  %5.2f", flop / theirs, theirs / ours);
    printf("\n");
}

static float *filled(int64_t count)
{
    float *x = aligned_alloc(CT_DEVICE_ALIGN, ((size_t)count * sizeof *x + 63) / 64 * 64);

    CT_ASSERT(x != NULL);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(i % 17) * 0.25f - 2;
    return x;
}

static void run_shape(struct bench *b, size_t shape)
{
    int64_t m = b->m = shapes[shape].m, n = b->n = shapes[shape].n, k = b->k = shapes[shape].k;

    b->x = filled(m * k);
    b->w = filled(n * k);
    b->y = filled(m * n);
    b->out = filled(CT_MAX(CT_MAX(m * k, n * k), m * n));
    for (size_t i = 0; i < CT_COUNT(products); i++)
        measure(b, products[i].op, products[i].name);
    free(b->x);
    free(b->w);
    free(b->y);
    free(b->out);
}

/* OpenBLAS on one thread; NULL where it is not installed. */
static cblas_sgemm_fn *load_openblas(const char *file, const char *coretype)
{
    (void)unsetenv("OPENBLAS_CORETYPE");
    if (coretype != NULL)
        (void)setenv("OPENBLAS_CORETYPE", coretype, 1);
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen(file, RTLD_NOW);
    char *(*name)(void) = NULL;
    cblas_sgemm_fn *sgemm = NULL;

    if (library == NULL)
        return NULL;
    *(void **)&name = dlsym(library, "openblas_get_config");
    *(void **)&sgemm = dlsym(library, "cblas_sgemm");
    if (name != NULL)
        printf("OpenBLAS: %s\n", name());
    return sgemm;
}

int main(int argc, char **argv)
{
    static struct bench bench = {.budget_ns = 200e6};
    const char *openblas = "libopenblas.so.0", *coretype = NULL;
    struct ct_cpu_options options = {.threads = 1};
    struct ct_error err = {0};

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--openblas") == 0)
            openblas = argv[i + 1];
        else if (strcmp(argv[i], "--coretype") == 0)
            coretype = argv[i + 1];
        else if (strcmp(argv[i], "--ms") == 0)
            bench.budget_ns = atof(argv[i + 1]) * 1e6;
        for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++)
            if (strcmp(argv[i + 1], ct_cpu_isa_name(isa)) == 0)
                options.isa = isa;
    }
    if (ct_device_cpu_new(&options, &bench.device, &err) != 0) {
        (void)fprintf(stderr, "gemm: %s\n", err.text);
        return ct_exit_status(err.code);
    }
    bench.sgemm = load_openblas(openblas, coretype);
    printf("%-26s  %8s  %8s  %5s\n", "  M x    N x    K  product", "ours", "OpenBLAS", "ratio");
    for (size_t i = 0; i < CT_COUNT(shapes); i++)
        run_shape(&bench, i);
    ct_device_free(bench.device);
    return 0;
}
