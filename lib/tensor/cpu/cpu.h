/* Inside the CPU device.
 *
 *     ct_device_run -> cpu.c looks up how the op's work is split (enum ct_cpu_cut)
 *                      |- elements, rows, columns   thread_split.c gives parts of the range to
 *                      |                            threads, each runs the op's ct_cpu_part
 *                      |- sums                      thread_split.c, ct_cpu_sum, one binary tree
 *                      `- matrix products           gemm.c, tiles from ct_cpu_kernels.gemm
 *                         with 16-bit operands      narrow.c, the same kernels on widened blocks
 *
 * Kernels exist once as source (parts_body.h, gemm_body.h) and are compiled once an instruction
 * set: parts_avx512.c and its siblings. Vectors change the speed and never a bit: element-wise code
 * has no fused multiply-add, sums run in a fixed number of SIMD lanes and join in a fixed tree, and
 * a matrix product adds along K in one order (gemm.h). */
#ifndef CT_TENSOR_CPU_CPU_H
#define CT_TENSOR_CPU_CPU_H

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/narrow.h"
#include "tensor/cpu/pool.h"
#include "tensor/device.h"

/* Do units first .. first + count - 1 of an op: elements, rows or columns. */
typedef void (*ct_cpu_part)(const struct ct_kernel_args *args, int64_t first, int64_t count);

/* The same for an op that sums into out[0]: returns the sum over these units. */
typedef double (*ct_cpu_sum)(const struct ct_kernel_args *args, int64_t first, int64_t count);

/* A part that runs matrix products of its own: `workspace` is theirs (gemm.h), `scratch` holds
 * CT_CPU_SCRATCH bytes; both are the thread's. */
typedef void (*ct_cpu_block)(const struct ct_kernel_args *args, int64_t first, int64_t count,
                             void *workspace, void *scratch);

/* A thread's memory: for products, blocks, 16-bit operands. Untouched pages cost nothing. */
enum {
    CT_CPU_SCRATCH = 1 << 20,
    CT_CPU_WORKSPACE = CT_GEMM_WORKSPACE + CT_CPU_SCRATCH + CT_NARROW_WORKSPACE
};

/* The kernels of one instruction set and dtype. An op has a part, a block or a sum; matrix products
 * have none of them. */
struct ct_cpu_kernels {
    ct_cpu_part part[CT_OP_COUNT];
    ct_cpu_block block[CT_OP_COUNT];
    ct_cpu_sum sum[CT_OP_COUNT];
    const struct ct_gemm_kernels *gemm;
};

extern const struct ct_cpu_kernels ct_cpu_kernels_f64, ct_cpu_kernels_portable, ct_cpu_kernels_neon,
    ct_cpu_kernels_avx2, ct_cpu_kernels_avx512;

/* The instruction sets of this architecture (cpu_sets_x86_64.c and its siblings), by enum
 * ct_cpu_isa; `runs` is NULL for another architecture's. */
struct ct_cpu_set {
    bool (*runs)(void); /* on this machine */
    const struct ct_cpu_kernels *f32;
    const struct ct_half_kernels *half;
};

extern const struct ct_cpu_set ct_cpu_sets[CT_CPU_ISAS];

struct ct_cpu {
    struct ct_device device; /* first: a ct_device * is a ct_cpu * */
    enum ct_cpu_isa isa;
    const struct ct_cpu_kernels *f32, *f64;
    const struct ct_half_kernels *half;       /* by enum ct_dtype */
    struct ct_operands operands[CT_OP_COUNT]; /* as op.def has them */
    struct ct_pool *pool;
    void *workspace; /* CT_CPU_WORKSPACE bytes a thread */
};

/* The range of an op: `count` units that cost `width` elements each; a sum adds the units of a leaf
 * one after the other. */
struct ct_cpu_range {
    int64_t count, width, leaf;
};

/* A running op: the work of threads on their units. */
struct ct_cpu_work {
    const struct ct_kernel_args *args;
    ct_cpu_part part; /* one of these */
    ct_cpu_block block;
    ct_cpu_sum sum;
    const struct ct_narrow *narrow; /* the op has 16-bit operands, its kernels have not */
};

/* Return the number of threads for `work` if each is to get at least `grain`. */
int ct_cpu_threads(const struct ct_cpu *cpu, int64_t work, int64_t grain);

/* Run the part or block over all units of `range`. */
void ct_cpu_split(struct ct_cpu *cpu, const struct ct_cpu_work *work, struct ct_cpu_range range);

/* Return the sum over all units of `range`: leaves joined by a binary tree whose shape depends on
 * count and leaf alone. */
double ct_cpu_tree_sum(struct ct_cpu *cpu, const struct ct_cpu_work *work,
                       struct ct_cpu_range range);

#endif
