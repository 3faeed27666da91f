/* The parts of all ops but the matrix products, for one element type and instruction set.
 *
 * The file that includes this defines T (float or double); EXP, TANH, ERF, SQRT for it; KERNELS,
 * the name of the table that it fills, with GEMM, the table of its matrix products; and VECTORS
 * when loops are to become vector code. Everything is a plain loop: EACH says that its turns are
 * independent (operands may be the same buffer, never a shifted one). Sums keep LANES partial sums,
 * lane l taking the elements l, l + LANES, ..., and fold them 8, 4, 2, 1: the same additions at any
 * vector width. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/kernel/logarithm.h"

#include <math.h>
#include <string.h>

#ifndef VECTORS
#define INDEPENDENT
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define EACH(i, n) INDEPENDENT for (int64_t i = 0; i < (n); i++)

enum { LANES = 16, COLUMN_TILE = 256, LOSS_BLOCK = 256 };

/* Row `row` of an operand with `columns` columns, or element `row` with 1. */
#define IN(i, row, columns) ((const T *)args->in[i].data + (row) * (columns))
#define OUT(i, row, columns) ((T *)args->out[i].data + (row) * (columns))

/* The f64 [1] operand i, or `absent`. */
static double scalar(const struct ct_kernel_args *args, int i, double absent)
{
    return args->in[i].data == NULL ? absent : *(const double *)args->in[i].data;
}

/* ---- element-wise --------------------------------------------------------------------------- */

/* A part that maps one input, or two, with a function of the elements. */
#define MAP1(op, f)                                                                 \
    static void op(const struct ct_kernel_args *args, int64_t first, int64_t count) \
    {                                                                               \
        const T *x = IN(0, first, 1);                                               \
        T *y = OUT(0, first, 1);                                                    \
        EACH(i, count) y[i] = f(x[i]);                                              \
    }
#define MAP2(op, f)                                                                 \
    static void op(const struct ct_kernel_args *args, int64_t first, int64_t count) \
    {                                                                               \
        const T *a = IN(0, first, 1), *b = IN(1, first, 1);                         \
        T *y = OUT(0, first, 1);                                                    \
        EACH(i, count) y[i] = f(a[i], b[i]);                                        \
    }

static inline T relu_of(T x)
{
    return x < 0 ? 0 : x; /* NaN stays */
}

static inline T relu_slope(T dy, T y)
{
    return y <= 0 ? 0 : dy;
}

static inline T gelu_of(T x)
{
    return (T)0.5 * x * (1 + ERF(x * (T)0.70710678118654752440));
}

static inline T gelu_slope(T dy, T x)
{
    T cdf = (T)0.5 * (1 + ERF(x * (T)0.70710678118654752440));
    T density = (T)0.39894228040143267794 * EXP(x * x * (T)-0.5);

    return dy * (cdf + x * density);
}

static inline T sigmoid_of(T x)
{
    return 1 / (1 + EXP(-x));
}

/* (1 + tanh u) / 2 is the sigmoid of this: 2 u. */
static inline T gelu_tanh_inner(T x)
{
    return (T)(2 * 0.79788456080286535588) * (x + (T)0.044715 * x * x * x);
}

static inline T gelu_tanh_of(T x)
{
    return x * sigmoid_of(gelu_tanh_inner(x));
}

static inline T gelu_tanh_slope(T dy, T x)
{
    T s = sigmoid_of(gelu_tanh_inner(x));
    T inner_slope = (T)(2 * 0.79788456080286535588) * (1 + (T)(3 * 0.044715) * x * x);

    return dy * (s + x * (s * (1 - s)) * inner_slope);
}

static inline T tanh_slope(T dy, T y)
{
    return dy * (1 - y * y);
}

static inline T sum_of(T a, T b)
{
    return a + b;
}

static inline T product_of(T a, T b)
{
    return a * b;
}

static inline T same(T x)
{
    return x;
}

MAP1(relu, relu_of)
MAP2(relu_bw, relu_slope)
MAP1(gelu, gelu_of)
MAP2(gelu_bw, gelu_slope)
MAP1(gelu_tanh, gelu_tanh_of)
MAP2(gelu_tanh_bw, gelu_tanh_slope)
MAP1(tanh_, TANH)
MAP2(tanh_bw, tanh_slope)
MAP2(add, sum_of)
MAP2(mul, product_of)
MAP1(copy, same)

static void swiglu(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *gate = IN(0, first, 1), *up = IN(1, first, 1);
    T *y = OUT(0, first, 1);

    EACH(i, count) y[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
}

static void swiglu_bw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *dy = IN(0, first, 1), *gate = IN(1, first, 1), *up = IN(2, first, 1);
    T *dgate = OUT(0, first, 1), *dup = OUT(1, first, 1);

    EACH(i, count)
    {
        T d = dy[i], x = gate[i], s = sigmoid_of(x);

        dup[i] = d * (x * s);
        dgate[i] = d * up[i] * (s + x * s * (1 - s));
    }
}

static void scale(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *x = IN(0, first, 1);
    T *y = OUT(0, first, 1), alpha = (T)args->attr.alpha;

    EACH(i, count) y[i] = alpha * x[i];
}

static void axpy(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *x = IN(0, first, 1);
    T *y = OUT(0, first, 1), alpha = (T)args->attr.alpha;

    EACH(i, count) y[i] = y[i] + alpha * x[i];
}

static void fill(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    T *y = OUT(0, first, 1), alpha = (T)args->attr.alpha;

    EACH(i, count) y[i] = alpha;
}

/* ---- linear_db: by columns, rows added in the order of a matrix product (gemm.h) ------------ */

static void add_row_block(T *total, const T *dy, int64_t rows, int64_t row_size, int64_t columns)
{
    T acc[COLUMN_TILE] = {0};

    for (int64_t row = 0; row < rows; row++, dy += row_size)
        EACH(j, columns) acc[j] += dy[j];
    EACH(j, columns) total[j] += acc[j];
}

static void linear_db(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), row_size = ct_shape_columns(args->in[0].shape);
    T *db = OUT(0, 0, 1);

    if (!args->attr.accumulate)
        memset(db + first, 0, (size_t)count * sizeof *db);
    for (int64_t end = first + count; first < end; first += COLUMN_TILE) {
        int64_t columns = CT_MIN(end - first, COLUMN_TILE);

        for (int64_t row = 0; row < rows; row += CT_GEMM_KC)
            add_row_block(db + first, IN(0, row, row_size) + first, CT_MIN(rows - row, CT_GEMM_KC),
                          row_size, columns);
    }
}

/* ---- sums over a row ------------------------------------------------------------------------ */

static inline T larger(T a, T b)
{
    return a < b ? b : a;
}

static T fold_max(T *lane)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] = larger(lane[l], lane[l + width]);
    return lane[0];
}

static T fold_sum(T *lane)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

/* Sums over j of f, an expression of j: whole groups of lanes, then the rest. */
#define ROW_SUM(name, f, ...)                                  \
    static T name(int64_t columns, __VA_ARGS__)                \
    {                                                          \
        T sum[LANES] = {0};                                    \
        int64_t whole = columns / LANES * LANES;               \
                                                               \
        for (int64_t group = 0; group < whole; group += LANES) \
            EACH(l, LANES)                                     \
            {                                                  \
                int64_t j = group + l;                         \
                sum[l] += f;                                   \
            }                                                  \
        for (int64_t j = whole; j < columns; j++)              \
            sum[j - whole] += f;                               \
        return fold_sum(sum);                                  \
    }

ROW_SUM(row_total, x[j], const T *x)
ROW_SUM(row_dot, a[j] * b[j], const T *a, const T *b)

/* The last, partial group of lanes of a row, filled up with -infinity: e^-infinity adds nothing. */
static void load_tail(T tail[LANES], const T *x, int64_t count)
{
    for (int l = 0; l < LANES; l++)
        tail[l] = l < count ? x[l] : -(T)INFINITY;
}

static T row_max(const T *x, int64_t columns)
{
    T best[LANES], tail[LANES];
    int64_t whole = columns / LANES * LANES;

    load_tail(best, x + whole, columns - whole);
    for (int64_t j = 0; j < whole; j += LANES) {
        memcpy(tail, x + j, sizeof tail);
        EACH(l, LANES) best[l] = larger(best[l], tail[l]);
    }
    return fold_max(best);
}

/* The sum of exp(x[j] - max): blocks of LOSS_BLOCK elements in T, their sums in double. */
static double row_sum_exp(const T *x, int64_t columns, T max)
{
    double total = 0;

    for (int64_t block = 0; block < columns; block += LOSS_BLOCK) {
        int64_t end = CT_MIN(block + LOSS_BLOCK, columns);
        T sum[LANES] = {0}, tail[LANES];
        int64_t j = block;

        for (; j + LANES <= end; j += LANES)
            EACH(l, LANES) sum[l] += EXP(x[j + l] - max);
        if (j < end) {
            load_tail(tail, x + j, end - j);
            EACH(l, LANES) sum[l] += EXP(tail[l] - max);
        }
        total += (double)fold_sum(sum);
    }
    return total;
}

#include "tensor/cpu/kernel/attention_body.h"
#include "tensor/cpu/kernel/batch_body.h"
#include "tensor/cpu/kernel/image_body.h"
#include "tensor/cpu/kernel/loss_body.h"
#include "tensor/cpu/kernel/norm_body.h"
#include "tensor/cpu/kernel/optim_body.h"
#include "tensor/cpu/kernel/random_body.h"
#include "tensor/cpu/kernel/token_body.h"

const struct ct_cpu_kernels KERNELS = {
    .part =
        {
#define PART(op, function, cut, way) [CT_OP_##op] = function,
#define BLOCK(op, function, cut, way)
#define SUM(op, function, cut, way)
#include "tensor/cpu/cpu_kernel.def"
        },
    .block =
        {
#define PART(op, function, cut, way)
#define BLOCK(op, function, cut, way) [CT_OP_##op] = function,
#define SUM(op, function, cut, way)
#include "tensor/cpu/cpu_kernel.def"
        },
    .sum =
        {
#define PART(op, function, cut, way)
#define BLOCK(op, function, cut, way)
#define SUM(op, function, cut, way) [CT_OP_##op] = function,
#include "tensor/cpu/cpu_kernel.def"
        },
    .gemm = &GEMM,
};
