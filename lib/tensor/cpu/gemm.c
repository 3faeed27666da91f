/* The three products of a linear layer as one (gemm.h), and their cutting for threads. */
#include "tensor/cpu/gemm.h"

#include "base/assert.h"
#include "tensor/cpu/cpu.h"

enum {
    GRAIN = 1 << 18,   /* multiply-adds that are worth waking a thread for */
    ALIGN_COLUMNS = 32 /* whole slivers of any instruction set */
};

struct shared {
    const struct ct_gemm_kernels *kernels;
    const struct ct_gemm *gemm;
    const struct ct_half_kernels *half; /* of a and b that have 16 bits, or NULL */
    size_t element, sum, bias;          /* bytes of one of a and b, of c, of the bias */
    char *workspace;
    int64_t rows, columns; /* of the piece of c that one index computes */
};

static const void *at(const void *base, int64_t elements, size_t element)
{
    return (const char *)base + elements * (int64_t)element;
}

/* Piece `index` of c: pieces lie beside each other (columns) or above each other (rows). */
static void run_part(void *context, int index)
{
    const struct shared *shared = context;
    const struct ct_gemm *whole = shared->gemm;
    int64_t row = shared->rows < whole->m ? index * shared->rows : 0;
    int64_t column = shared->columns < whole->n ? index * shared->columns : 0;
    struct ct_gemm part = *whole;

    part.m = CT_MIN(shared->rows, whole->m - row);
    part.n = CT_MIN(shared->columns, whole->n - column);
    if (part.m <= 0 || part.n <= 0)
        return;
    part.a = at(whole->a, row * whole->a_row, shared->element);
    part.b = at(whole->b, column * whole->b_col, shared->element);
    part.c = (char *)whole->c + (row * whole->c_row + column) * (int64_t)shared->sum;
    if (whole->bias != NULL)
        part.bias = at(whole->bias, column, shared->bias);
    char *workspace = shared->workspace + (size_t)index * CT_CPU_WORKSPACE;

    if (shared->half == NULL)
        shared->kernels->run(&part, workspace);
    else
        ct_narrow_gemm(shared->kernels, &part, shared->half, shared->sum == sizeof(float),
                       workspace);
}

static void run(struct ct_cpu *cpu, struct shared shared)
{
    const struct ct_gemm *gemm = shared.gemm;
    int threads = ct_cpu_threads(cpu, gemm->m * gemm->n * CT_MAX(gemm->k, 1), GRAIN);

    if (gemm->m == 0 || gemm->n == 0)
        return;
    shared.workspace = cpu->workspace;
    shared.rows = gemm->m;
    shared.columns = gemm->n;
    if (threads > 1 && gemm->n >= gemm->m)
        shared.columns =
            ((gemm->n + threads - 1) / threads + ALIGN_COLUMNS - 1) / ALIGN_COLUMNS * ALIGN_COLUMNS;
    else if (threads > 1)
        shared.rows = (gemm->m + threads - 1) / threads;
    ct_pool_run(cpu->pool, threads, run_part, &shared);
}

void ct_cpu_gemm(struct ct_cpu *cpu, const struct ct_gemm_kernels *kernels,
                 const struct ct_gemm *gemm)
{
    size_t element = kernels == &ct_gemm_f64 ? sizeof(double) : sizeof(float);

    run(cpu,
        (struct shared){
            .kernels = kernels, .gemm = gemm, .element = element, .sum = element, .bias = element});
}

void ct_cpu_gemm_narrow(struct ct_cpu *cpu, const struct ct_gemm_kernels *kernels,
                        const struct ct_gemm *gemm, const struct ct_half_kernels *half, bool wide)
{
    run(cpu, (struct shared){.kernels = kernels,
                             .gemm = gemm,
                             .half = half,
                             .element = sizeof(uint16_t),
                             .sum = wide ? sizeof(float) : sizeof(uint16_t),
                             .bias = sizeof(float)});
}
