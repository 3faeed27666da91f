/* Ops on 16-bit floats: the kernels for float do the work, on blocks that are widened before and
 * rounded after them.
 *
 *     x bf16 [ ... | chunk | ... ] --widen--> float --the op's part--> float --narrow--> y bf16
 *
 * So narrow(op(widen(x))) holds bit by bit, whatever the chunks: each result is that of the op on
 * F32 operands of the same values, rounded once. Chunks are small enough to stay in a cache, the
 * memory for them is the thread's (CT_CPU_WORKSPACE). */
#ifndef CT_TENSOR_CPU_NARROW_H
#define CT_TENSOR_CPU_NARROW_H

#include "tensor/cpu/gemm.h"
#include "tensor/op.h"

/* For one type and instruction set. The two arrays do not overlap. */
struct ct_half_kernels {
    void (*widen)(float *to, const uint16_t *from, int64_t count);
    void (*narrow)(uint16_t *to, const float *from, int64_t count);
};

/* By enum ct_dtype; those of the wider types are empty. */
extern const struct ct_half_kernels ct_half_portable[CT_DTYPE_COUNT], ct_half_neon[CT_DTYPE_COUNT],
    ct_half_avx2[CT_DTYPE_COUNT], ct_half_avx512[CT_DTYPE_COUNT];

/* Bytes of float chunks that a running op may need. */
enum { CT_NARROW_WORKSPACE = 12 << 20 };

/* The description of an op on 16-bit operands. */
struct ct_narrow {
    enum ct_op_kind op;
    const struct ct_half_kernels *half; /* of the op's T */
    const struct ct_operands *operands;
};

struct ct_cpu_work;

/* Do units first .. first + count - 1 of `work`, whose `narrow` is set; `workspace` is the
 * thread's. */
void ct_narrow_part(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace);

/* The same for an op that sums. */
double ct_narrow_sum(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace);

/* Multiply 16-bit a and b; c is of 16 bits too or, when `wide`, of F32. */
void ct_narrow_gemm(const struct ct_gemm_kernels *kernels, const struct ct_gemm *gemm,
                    const struct ct_half_kernels *half, bool wide, char *workspace);

#endif
