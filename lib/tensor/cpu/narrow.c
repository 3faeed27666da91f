/* See narrow.h. How an op is cut into pieces depends on which elements of its operands belong
 * together: those of one row, a column of many rows, a head of a sequence. */
#include "tensor/cpu/narrow.h"

#include "base/assert.h"
#include "tensor/cpu/cpu.h"

enum {
    CHUNK = 8192,   /* elements of an operand that are widened at a time */
    TILE = 256,     /* columns at a time, for sums over rows */
    BLOCK_M = 256,  /* of a product: rows, columns and terms at a time */
    BLOCK_N = 512,  /*   */
    BLOCK_K = 1024, /*   */
    ROW_SLACK = 16, /* rows a power of two apart would share sets of the cache */
    ALIGN_FLOATS = 16
};
_Static_assert(BLOCK_K % CT_GEMM_KC == 0, "a product may be cut there without another sum");
/* Widened blocks of a and b, either way around. */
enum {
    A_FLOATS = (BLOCK_M + ROW_SLACK) * (BLOCK_K + ROW_SLACK),
    B_FLOATS = (BLOCK_N + ROW_SLACK) * (BLOCK_K + ROW_SLACK)
};
_Static_assert((BLOCK_M * BLOCK_N + A_FLOATS + B_FLOATS) * 4 <= CT_NARROW_WORKSPACE,
               "the blocks of a product fit");
_Static_assert((4 + 3) * 4 * (CT_NARROW_MAX_COLUMNS + ALIGN_FLOATS) <= CT_NARROW_WORKSPACE,
               "a row of every operand fits");
_Static_assert((3 + 1 + 1 + 3 + 1) * 4 * (CT_NARROW_MAX_COLUMNS + ALIGN_FLOATS) <=
                   CT_NARROW_WORKSPACE,
               "qkv, y, dy, dqkv and lse of a head fit");

/* Of an op that ct_op_narrows. */
enum way {
    WAY_NONE,
    WAY_ROWS,    /* row by row, or element by element: operands of the same letter in front */
    WAY_COLUMNS, /* columns of [M, K] operands, added over the rows in blocks of CT_GEMM_KC */
    WAY_TOKENS,  /* columns, rows added in their order */
    WAY_PLACES,  /* places of sequences, added in the order of the sequences */
    WAY_HEADS,
    WAY_PRODUCT,
    WAY_PARTS /* as the ops that it stands for: cpu.c divides it before it comes here */
};

static const enum way ways[CT_OP_COUNT] = {
#define OTHER(op, cut, way) [CT_OP_##op] = WAY_##way,
#include "tensor/cpu/cpu_kernel.def"
};

/* Each op has its row, with a way where op.def says that it narrows. */
enum {
#define OP(id, name, operands, in_place, updates, narrows, attributes) NARROWS_##id = (narrows),
#include "tensor/op.def"
#undef OP
    CPU_ROWS = 0
#define OTHER(op, cut, way) +1
#include "tensor/cpu/cpu_kernel.def"
};
_Static_assert((int)CPU_ROWS == (int)CT_OP_COUNT,
               "an op of op.def has no row in cpu_kernel.def, or two");
#define OTHER(op, cut, way) _Static_assert((WAY_##way != WAY_NONE) == NARROWS_##op, #op " narrows");

/* ---- pieces --------------------------------------------------------------------------------- */

/* The op on float operands, made piece by piece; `free` is what is left of the workspace. */
struct chunk {
    const struct ct_cpu_work *work;
    struct ct_kernel_args args;
    float *free;
    char *workspace;
};

static struct chunk chunk_of(const struct ct_cpu_work *work, char *workspace)
{
    return (struct chunk){.work = work,
                          .args = *work->args,
                          .free = (float *)(void *)(workspace + CT_GEMM_WORKSPACE + CT_CPU_SCRATCH),
                          .workspace = workspace};
}

static float *allocate(struct chunk *chunk, int64_t count)
{
    float *memory = chunk->free;

    chunk->free += (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    return memory;
}

static const uint16_t *halves(const struct ct_tensor *tensor, int64_t element)
{
    return (const uint16_t *)tensor->data + element;
}

static void widen(const struct chunk *chunk, float *to, const struct ct_tensor *from, int64_t first,
                  int64_t count)
{
    chunk->work->narrow->half->widen(to, halves(from, first), count);
}

static void narrow(const struct chunk *chunk, const struct ct_tensor *to, int64_t first,
                   const float *from, int64_t count)
{
    chunk->work->narrow->half->narrow((uint16_t *)to->data + first, from, count);
}

/* The tensor from element `first` on, in its own type. */
static struct ct_tensor from_element(const struct ct_tensor *tensor, int64_t first,
                                     struct ct_shape shape)
{
    char *data = (char *)tensor->data + (size_t)first * ct_dtype_size(tensor->dtype);

    return (struct ct_tensor){tensor->dtype, shape, data};
}

static struct ct_tensor wide_tensor(float *data, struct ct_shape shape)
{
    return (struct ct_tensor){CT_F32, shape, data};
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Whether the op's units run through the operand: elements of [n], rows of [M], [M,K]. */
static bool is_cut(const struct ct_operand *operand, const struct ct_tensor *tensor)
{
    return tensor->data != NULL && (operand->dim[0] == 'n' || operand->dim[0] == 'M');
}

static int64_t unit_of(const struct ct_operand *operand, const struct ct_tensor *tensor)
{
    return operand->dims == 2 ? ct_shape_columns(tensor->shape) : 1;
}

static struct ct_shape units(const struct ct_operand *operand, int64_t count, int64_t unit)
{
    return operand->dims == 2 ? ct_shape2(count, unit) : ct_shape1(count);
}

/* Units first .. first + count - 1 of an operand, widened when it is narrow and `reads`. */
static struct ct_tensor cut(struct chunk *chunk, const struct ct_operand *operand,
                            const struct ct_tensor *whole, int64_t first, int64_t count, bool reads)
{
    int64_t unit = is_cut(operand, whole) ? unit_of(operand, whole) : 0;

    if (unit == 0)
        return *whole;
    if (!ct_dtype_is_narrow(whole->dtype))
        return from_element(whole, first * unit, units(operand, count, unit));
    float *data = allocate(chunk, count * unit);
    if (reads)
        widen(chunk, data, whole, first * unit, count * unit);
    return wide_tensor(data, units(operand, count, unit));
}

static struct chunk cut_rows(const struct ct_cpu_work *work, int64_t first, int64_t count,
                             char *workspace)
{
    const struct ct_operands *operands = work->narrow->operands;
    struct chunk chunk = chunk_of(work, workspace);
    bool updates = ct_op_info(work->narrow->op)->updates;

    for (int i = 0; i < operands->in_count; i++)
        chunk.args.in[i] = cut(&chunk, &operands->in[i], &work->args->in[i], first, count, true);
    for (int i = 0; i < operands->out_count; i++)
        chunk.args.out[i] =
            cut(&chunk, &operands->out[i], &work->args->out[i], first, count, updates);
    chunk.args.attr.first += (uint64_t)first; /* the number of the first unit */
    return chunk;
}

static void keep_rows(const struct chunk *chunk, int64_t first)
{
    const struct ct_operands *operands = chunk->work->narrow->operands;

    for (int i = 0; i < operands->out_count; i++) {
        const struct ct_tensor *to = &chunk->work->args->out[i], *from = &chunk->args.out[i];
        if (to->data != NULL && ct_dtype_is_narrow(to->dtype))
            narrow(chunk, to, first * unit_of(&operands->out[i], to), from->data,
                   ct_shape_elements(from->shape));
    }
}

static int64_t widest(const struct ct_cpu_work *work)
{
    const struct ct_operands *operands = work->narrow->operands;
    int64_t most = 1;

    for (int i = 0; i < operands->in_count; i++)
        if (is_cut(&operands->in[i], &work->args->in[i]))
            most = CT_MAX(most, unit_of(&operands->in[i], &work->args->in[i]));
    for (int i = 0; i < operands->out_count; i++)
        if (is_cut(&operands->out[i], &work->args->out[i]))
            most = CT_MAX(most, unit_of(&operands->out[i], &work->args->out[i]));
    return most;
}

static void by_rows(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    int64_t step = CT_MAX(CHUNK / widest(work), 1), end = first + count;

    for (; first < end; first += step) {
        int64_t some = CT_MIN(step, end - first);
        struct chunk chunk = cut_rows(work, first, some, workspace);

        work->part(&chunk.args, 0, some);
        keep_rows(&chunk, first);
    }
}

/* Row by row, added in the order of a leaf (thread_split.c). */
double ct_narrow_sum(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    double sum = 0;

    for (int64_t row = first; row < first + count; row++) {
        struct chunk chunk = cut_rows(work, row, 1, workspace);

        sum += work->sum(&chunk.args, 0, 1);
    }
    return sum;
}

/* ---- sums over rows ------------------------------------------------------------------------- */

/* Columns [column, column + columns) of rows row .. row + rows - 1 of the [M, K] input i. */
static void widen_tile(struct chunk *chunk, int i, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const struct ct_tensor *x = &chunk->work->args->in[i];
    int64_t width = ct_shape_columns(x->shape);

    if (!ct_dtype_is_narrow(x->dtype)) { /* statistics of the rows */
        chunk->args.in[i] = from_element(x, row * width, ct_shape2(rows, width));
        return;
    }
    float *data = allocate(chunk, rows * columns);
    for (int64_t r = 0; r < rows; r++)
        widen(chunk, data + r * columns, x, (row + r) * width + column, columns);
    chunk->args.in[i] = wide_tensor(data, ct_shape2(rows, columns));
}

static void by_columns(const struct ct_cpu_work *work, int64_t first, int64_t count,
                       char *workspace)
{
    int64_t all = ct_shape_rows(work->args->in[0].shape), end = first + count;

    for (; first < end; first += TILE) {
        int64_t columns = CT_MIN(TILE, end - first), row = 0;

        do { /* once even without rows: the sums are written */
            struct chunk chunk = chunk_of(work, workspace);
            int64_t rows = CT_MIN(CT_GEMM_KC, all - row);

            for (int i = 0; i < work->narrow->operands->in_count; i++)
                widen_tile(&chunk, i, row, rows, first, columns);
            chunk.args.out[0] = from_element(&work->args->out[0], first, ct_shape1(columns));
            chunk.args.attr.accumulate = work->args->attr.accumulate || row > 0;
            work->part(&chunk.args, 0, columns);
            row += CT_GEMM_KC;
        } while (row < all);
    }
}

/* embedding_dw: all columns keep their place, only those of the part are widened. */
static void by_tokens(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    const struct ct_tensor *ids = &work->args->in[0], *dy = &work->args->in[1];
    int64_t all = ct_shape_rows(dy->shape), width = ct_shape_columns(dy->shape), row = 0;
    int64_t step = CT_MAX(CHUNK / CT_MAX(width, 1), 1);

    do {
        struct chunk chunk = chunk_of(work, workspace);
        int64_t rows = CT_MIN(step, all - row);
        float *data = allocate(&chunk, rows * width);

        for (int64_t r = 0; r < rows; r++)
            widen(&chunk, data + r * width + first, dy, (row + r) * width + first, count);
        chunk.args.in[0] = from_element(ids, row, ct_shape1(rows));
        chunk.args.in[1] = wide_tensor(data, ct_shape2(rows, width));
        chunk.args.attr.accumulate = work->args->attr.accumulate || row > 0;
        work->part(&chunk.args, first, count);
        row += step;
    } while (row < all);
}

/* embedding_dp: a few places at a time, of one sequence after the other. */
static void by_places(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    const struct ct_tensor *dy = &work->args->in[0], *dp = &work->args->out[0];
    int64_t all = ct_shape_rows(dy->shape), width = ct_shape_columns(dy->shape);
    int64_t sequence = (int64_t)work->args->attr.sequence, end = first + count;

    for (int64_t step = CT_MAX(CHUNK / CT_MAX(width, 1), 1); first < end; first += step) {
        int64_t places = CT_MIN(step, end - first), row = first;
        int64_t rows = all == 0 ? 0 : CT_MAX(CT_MIN(places, sequence - first), 0);

        do {
            struct chunk chunk = chunk_of(work, workspace);
            float *data = allocate(&chunk, rows * width);

            widen(&chunk, data, dy, rows == 0 ? 0 : row * width, rows * width);
            chunk.args.in[0] = wide_tensor(data, ct_shape2(rows, width));
            chunk.args.out[0] = from_element(dp, first * width, ct_shape2(places, width));
            chunk.args.attr.sequence = (uint64_t)places;
            chunk.args.attr.accumulate = work->args->attr.accumulate || row > first;
            work->part(&chunk.args, 0, places);
            row += sequence;
        } while (row < all);
    }
}

/* ---- heads ---------------------------------------------------------------------------------- */

/* One head of one sequence: its columns of `parts` blocks of [rows, parts * columns]. */
struct head {
    int64_t row, rows;
    int64_t column, columns; /* within a block */
    int64_t width;           /* of a block */
};

static void widen_head(struct chunk *chunk, struct ct_tensor *to, const struct ct_tensor *from,
                       const struct head *h, int parts)
{
    float *data = allocate(chunk, h->rows * h->columns * parts);

    for (int64_t r = 0; r < h->rows; r++)
        for (int p = 0; p < parts; p++)
            widen(chunk, data + (r * parts + p) * h->columns, from,
                  ((h->row + r) * parts + p) * h->width + h->column, h->columns);
    *to = wide_tensor(data, ct_shape2(h->rows, h->columns * parts));
}

static void narrow_head(const struct chunk *chunk, const struct ct_tensor *to,
                        const struct ct_tensor *from, const struct head *h, int parts)
{
    const float *data = from->data;

    for (int64_t r = 0; r < h->rows; r++)
        for (int p = 0; p < parts; p++)
            narrow(chunk, to, ((h->row + r) * parts + p) * h->width + h->column,
                   data + (r * parts + p) * h->columns, h->columns);
}

/* The head's column of lse [M, H], for the kernel or from it. */
static float *lse_of(const struct ct_tensor *lse, const struct head *h, int64_t heads)
{
    return (float *)lse->data + h->row * heads + h->column / h->columns;
}

static void attend(const struct ct_cpu_work *work, const struct head *h, char *workspace)
{
    const struct ct_kernel_args *args = work->args;
    struct chunk chunk = chunk_of(work, workspace);
    bool back = work->narrow->op == CT_OP_ATTENTION_BW;
    int64_t heads = (int64_t)args->attr.heads;
    float *lse = allocate(&chunk, h->rows),
          *all = lse_of(back ? &args->in[3] : &args->out[1], h, heads);
    struct ct_tensor own_lse = wide_tensor(lse, ct_shape2(h->rows, 1));

    chunk.args.attr.heads = 1;
    if (back) {
        for (int64_t r = 0; r < h->rows; r++)
            lse[r] = all[r * heads];
        widen_head(&chunk, &chunk.args.in[0], &args->in[0], h, 1);
        widen_head(&chunk, &chunk.args.in[1], &args->in[1], h, 3);
        widen_head(&chunk, &chunk.args.in[2], &args->in[2], h, 1);
        chunk.args.in[3] = own_lse;
    } else {
        widen_head(&chunk, &chunk.args.in[0], &args->in[0], h, 3);
        chunk.args.out[1] = own_lse;
    }
    int parts = back ? 3 : 1;
    chunk.args.out[0] = wide_tensor(allocate(&chunk, h->rows * h->columns * parts),
                                    ct_shape2(h->rows, h->columns * parts));
    work->block(&chunk.args, 0, 1, workspace, workspace + CT_GEMM_WORKSPACE);
    narrow_head(&chunk, &args->out[0], &chunk.args.out[0], h, parts);
    for (int64_t r = 0; r < h->rows && !back; r++)
        all[r * heads] = lse[r];
}

static void by_heads(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    int64_t sequence = (int64_t)work->args->attr.sequence, heads = (int64_t)work->args->attr.heads;
    bool back = work->narrow->op == CT_OP_ATTENTION_BW;
    int64_t width = ct_shape_columns(work->args->in[back].shape) / 3;

    for (int64_t unit = first; unit < first + count; unit++) {
        struct head h = {.row = unit / heads * sequence,
                         .rows = sequence,
                         .column = unit % heads * (width / heads),
                         .columns = width / heads,
                         .width = width};

        attend(work, &h, workspace);
    }
}

void ct_narrow_part(const struct ct_cpu_work *work, int64_t first, int64_t count, char *workspace)
{
    static void (*const parts[])(const struct ct_cpu_work *, int64_t, int64_t, char *) = {
        [WAY_ROWS] = by_rows,     [WAY_COLUMNS] = by_columns, [WAY_TOKENS] = by_tokens,
        [WAY_PLACES] = by_places, [WAY_HEADS] = by_heads,
    };

    parts[ways[work->narrow->op]](work, first, count, workspace);
}

/* ---- products ------------------------------------------------------------------------------- */

/* A block of an operand whose elements (line, k) are `line_step` and `k_step` apart, one of which
 * is 1: widened with the same one next to each other. */
struct block {
    float *at;
    int64_t line, k; /* its own steps */
};

static struct block widen_block(float *to, const struct ct_half_kernels *half, const uint16_t *from,
                                int64_t lines, int64_t depth, int64_t line_step, int64_t k_step)
{
    bool along_k = k_step == 1;
    int64_t runs = along_k ? lines : depth, length = along_k ? depth : lines;
    int64_t step = along_k ? line_step : k_step, own = length + ROW_SLACK;

    for (int64_t i = 0; i < runs; i++)
        half->widen(to + i * own, from + i * step, length);
    return (struct block){to, along_k ? own : 1, along_k ? 1 : own};
}

/* Rows row .. of c, columns column .. : `c` gets the sum, in float. */
static void multiply(const struct ct_gemm_kernels *kernels, const struct ct_gemm *g,
                     const struct ct_half_kernels *half, struct ct_gemm part, char *workspace)
{
    float *free = (float *)(void *)(workspace + CT_GEMM_WORKSPACE + CT_CPU_SCRATCH);
    float *a_memory = free + BLOCK_M * BLOCK_N;
    float *b_memory = a_memory + A_FLOATS;
    const uint16_t *a = part.a, *b = part.b;
    int64_t k = 0;

    do {
        int64_t depth = CT_MIN(g->k - k, BLOCK_K);
        struct block wide_a =
            widen_block(a_memory, half, a + k * g->a_k, part.m, depth, g->a_row, g->a_k);
        struct block wide_b =
            widen_block(b_memory, half, b + k * g->b_k, part.n, depth, g->b_col, g->b_k);
        struct ct_gemm step = {.m = part.m,
                               .n = part.n,
                               .k = depth,
                               .a = wide_a.at,
                               .b = wide_b.at,
                               .c = part.c,
                               .a_row = wide_a.line,
                               .a_k = wide_a.k,
                               .b_k = wide_b.k,
                               .b_col = wide_b.line,
                               .c_row = part.c_row,
                               .bias = k + depth == g->k ? part.bias : NULL,
                               .accumulate = g->accumulate || k > 0};

        kernels->run(&step, workspace);
        k += depth;
    } while (k < g->k);
}

void ct_narrow_gemm(const struct ct_gemm_kernels *kernels, const struct ct_gemm *g,
                    const struct ct_half_kernels *half, bool wide, char *workspace)
{
    float *sums = (float *)(void *)(workspace + CT_GEMM_WORKSPACE + CT_CPU_SCRATCH);

    for (int64_t column = 0; column < g->n; column += BLOCK_N)
        for (int64_t row = 0; row < g->m; row += BLOCK_M) {
            struct ct_gemm part = {.m = CT_MIN(BLOCK_M, g->m - row),
                                   .n = CT_MIN(BLOCK_N, g->n - column),
                                   .a = (const uint16_t *)g->a + row * g->a_row,
                                   .b = (const uint16_t *)g->b + column * g->b_col,
                                   .c = sums,
                                   .c_row = BLOCK_N,
                                   .bias = g->bias};

            if (g->bias != NULL)
                part.bias = (const float *)g->bias + column;
            if (wide) {
                part.c = (float *)g->c + row * g->c_row + column;
                part.c_row = g->c_row;
            }
            multiply(kernels, g, half, part, workspace);
            for (int64_t i = 0; i < part.m && !wide; i++)
                half->narrow((uint16_t *)g->c + (row + i) * g->c_row + column, sums + i * BLOCK_N,
                             part.n);
        }
}
