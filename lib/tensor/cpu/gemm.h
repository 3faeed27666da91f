/* Matrix products with one order of addition.
 *
 *     c[i, j] (+)= sum over k of a[i, k] b[k, j]  (+ bias[j])
 *
 * The sum runs in blocks of CT_GEMM_KC: within a block one chain of fused multiply-adds from 0,
 * acc = fma(a[i, k], b[k, j], acc) for ascending k; then c = c + acc, block by block (the first
 * block's acc is c itself unless it accumulates); the bias is added last. No other order exists:
 * whatever the tile, the packing, the threads or the instruction set, the bits are the same, and so
 * they are when rows or columns are computed apart, or K is split at a multiple of CT_GEMM_KC and
 * accumulated. */
#ifndef CT_TENSOR_CPU_GEMM_H
#define CT_TENSOR_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_GEMM_KC = 256,
    CT_GEMM_WORKSPACE = 3 << 18, /* bytes that a running product may use, for packing */
};

/* One product. Element (i, k) of a is a[i * a_row + k * a_k], (k, j) of b is b[k * b_k + j *
 * b_col], (i, j) of c is c[i * c_row + j], all counted in elements; in a and b one of the two
 * strides is 1. c overlaps nothing. */
struct ct_gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_row, a_k, b_k, b_col, c_row;
    const void *bias; /* n elements, or NULL */
    bool accumulate;
};

/* The kernels of one instruction set and dtype. */
struct ct_gemm_kernels {
    /* Compute on one thread, with CT_GEMM_WORKSPACE bytes aligned to CT_DEVICE_ALIGN. */
    void (*run)(const struct ct_gemm *gemm, void *workspace);
};

extern const struct ct_gemm_kernels ct_gemm_f64, ct_gemm_portable, ct_gemm_neon, ct_gemm_avx2,
    ct_gemm_avx512;

struct ct_cpu;

/* Run `gemm` on the threads of `cpu`. */
void ct_cpu_gemm(struct ct_cpu *cpu, const struct ct_gemm_kernels *kernels,
                 const struct ct_gemm *gemm);

struct ct_half_kernels;

/* The same with a and b of 16 bits; c is, too, or F32 when `wide`; the bias is F32. */
void ct_cpu_gemm_narrow(struct ct_cpu *cpu, const struct ct_gemm_kernels *kernels,
                        const struct ct_gemm *gemm, const struct ct_half_kernels *half, bool wide);

#endif
