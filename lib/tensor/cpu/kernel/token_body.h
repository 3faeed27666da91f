/* Tokens and their places, of parts_body.h. */
#include "tensor/cpu/kernel/rotary.h"

/* The row of W that `id` has here; -1 when it has none. */
static int64_t row_of(const struct ct_kernel_args *args, int64_t id, int64_t rows)
{
    int64_t row = id - (int64_t)args->attr.begin;

    if (args->attr.part)
        return id >= 0 && row >= 0 && row < rows ? row : -1;
    CT_ASSERT(id < rows);
    return id;
}

static void embedding(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);
    int64_t vocabulary = ct_shape_rows(args->in[1].shape);
    bool places = args->in[2].data != NULL;

    for (int64_t row = first; row < first + count; row++) {
        int64_t id = row_of(args, ((const int32_t *)args->in[0].data)[row], vocabulary);
        T *y = OUT(0, row, columns);

        if (id >= 0)
            memcpy(y, IN(1, id, columns), (size_t)columns * sizeof *y);
        else
            memset(y, 0, (size_t)columns * sizeof *y);
        if (places) {
            int64_t at = (row + (int64_t)args->attr.first) % (int64_t)args->attr.sequence;
            const T *place = IN(2, at, columns);

            EACH(j, columns) y[j] += place[j];
        }
    }
}

/* By columns of W: each thread walks all rows in order, so no two write one element. */
static void embedding_dw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = ct_shape_rows(args->in[1].shape), columns = ct_shape_columns(args->in[1].shape);
    int64_t vocabulary = ct_shape_rows(args->out[0].shape);

    for (int64_t id = 0; id < vocabulary && !args->attr.accumulate; id++)
        memset(OUT(0, id, columns) + first, 0, (size_t)count * sizeof(T));
    for (int64_t row = 0; row < rows; row++) {
        int64_t id = row_of(args, ((const int32_t *)args->in[0].data)[row], vocabulary);
        const T *dy = IN(1, row, columns) + first;

        if (id < 0)
            continue;
        T *dw = OUT(0, id, columns) + first;

        EACH(j, count) dw[j] += dy[j];
    }
}

/* By places. */
static void embedding_dp(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), columns = ct_shape_columns(args->in[0].shape);
    int64_t sequence = (int64_t)args->attr.sequence;

    for (int64_t place = first; place < first + count; place++) {
        T *dp = OUT(0, place, columns);

        if (!args->attr.accumulate)
            memset(dp, 0, (size_t)columns * sizeof *dp);
        int64_t begin = (place + sequence - (int64_t)args->attr.begin % sequence) % sequence;

        for (int64_t row = begin; place < sequence && row < rows; row += sequence) {
            const T *dy = IN(0, row, columns);

            EACH(j, columns) dp[j] += dy[j];
        }
    }
}

static void add_rows(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape), begin = (int64_t)args->attr.begin;

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        const T *place = IN(1, (row + begin) % (int64_t)args->attr.sequence, columns);
        T *y = OUT(0, row, columns);

        EACH(j, columns) y[j] = x[j] + place[j];
    }
}

/* Turn one head: pairs (x[i], x[i + half]). */
static void rotate(const T *x, T *y, int64_t half, const T *cosine, const T *sine)
{
    EACH(i, half)
    {
        T a = x[i], b = x[i + half];

        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
    }
}

static void rope(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape), width = columns / 3;
    int64_t size = width / (int64_t)args->attr.heads, half = size / 2;
    const int32_t *places = args->in[1].data;
    int64_t sequence = (int64_t)args->attr.sequence, start = (int64_t)args->attr.first;
    double wide[2][CT_HEAD_MAX_SIZE / 2];
    T cosine[CT_HEAD_MAX_SIZE / 2], sine[CT_HEAD_MAX_SIZE / 2];

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        T *y = OUT(0, row, columns);

        int64_t place = places != NULL ? places[row] : (row + start) % sequence;

        rotary_angles(args->attr.base, place, half, wide[0], wide[1]);
        for (int64_t i = 0; i < half; i++) {
            cosine[i] = (T)wide[0][i];
            sine[i] = (T)(args->attr.inverse ? -wide[1][i] : wide[1][i]);
        }
        for (int64_t head = 0; head < 2 * width; head += size)
            rotate(x + head, y + head, half, cosine, sine);
        if (y != x)
            memcpy(y + 2 * width, x + 2 * width, (size_t)width * sizeof *y);
    }
}
