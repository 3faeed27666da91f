/* The products of linear layers as cuBLAS sees them: column by column. A row-major matrix [R, C] is
 * there a column-major [C, R] with C elements between columns, so nothing is ever copied:
 *
 *     op          row-major                        c [m, n]      = a [m, k]        b [k, n]
 *     linear      y[M,N]   = x[M,K] W[N,K]^T       y [N, M]        W turned          x
 *     linear_dx   dx[M,K]  = dy[M,N] W[N,K]        dx [K, M]       W                 dy
 *     linear_dw   dW[N,K] (+)= dy[M,N]^T x[M,K]    dW [K, N]       x                 dy turned
 *
 *     linear_gelu      y  = gelu_tanh(pre)           as linear       aux: pre = x W^T + b, written
 *     linear_dx_gelu   dx = (dy W) gelu_tanh'(pre)   as linear_dx    aux: pre, read
 *
 * The bias of linear is one number a row of c; aux is a matrix like c. Pure: which algorithm
 * computes it is linear_cuda.c's choice, once for every key. */
#ifndef CT_TENSOR_CUDA_PRODUCT_H
#define CT_TENSOR_CUDA_PRODUCT_H

#include "tensor/op.h"

/* What becomes of a product's result before it is stored. */
enum ct_product_end { CT_PRODUCT_PLAIN, CT_PRODUCT_GELU, CT_PRODUCT_DGELU };

/* c = a b, or a turned (transposed) matrix; a_step: elements between columns as they lie there. */
struct ct_product {
    const void *a, *b, *bias; /* bias: NULL, or m numbers of `out` widened */
    void *c, *aux;            /* aux: NULL when `end` is plain */
    int64_t m, n, k;
    int64_t a_step, b_step, c_step, aux_step;
    bool a_transposed, b_transposed, accumulate;
    enum ct_product_end end;
    enum ct_dtype in, out;
};

/* Return the product of linear, linear_dx, linear_dw, linear_gelu or linear_dx_gelu; asserts that
 * `op` is one. */
struct ct_product ct_product_of(enum ct_op_kind op, enum ct_dtype dtype,
                                const struct ct_kernel_args *args);

/* What a choice of algorithm may depend on: two products with equal keys (memcmp) take the same. */
struct ct_product_key {
    int64_t m, n, k;
    int64_t aux_step; /* 0: no aux */
    int32_t in, out;
    uint16_t a_align, b_align, c_align; /* bytes, powers of 2 up to 256 */
    uint16_t bias_align, aux_align;     /* likewise; 0: there is none */
    uint8_t a_transposed, b_transposed, accumulate, end, unused[2];
};
_Static_assert(sizeof(struct ct_product_key) == 56, "no padding, for memcmp");

struct ct_product_key ct_product_key_of(const struct ct_product *product);

#endif
