/* Images of parts_body.h: convolutions as products of gathered windows, and pools.
 *
 *     x [samples, height, width, channels]    one row for each pixel of y: its window, line by line
 *      +---------+                            +------------------------------+
 *      | [k x k] |  --gather-->               | line 0 | line 1 | ... | line |   k * k * channels
 *      +---------+                            +------------------------------+
 *
 *     y = rows W^T + b        dW = dy^T rows        rows' = dy W, scattered: dx += rows'
 *
 * Rows are gathered a block at a time into the thread's scratch; a block's height depends on the
 * shapes alone. A line of a window lies contiguous in x, what sticks out of the image is zero. */

struct picture {
    int64_t samples, height, width, channels;
    int64_t out_height, out_width, out_channels;
    int64_t kernel, stride, pad;
    int64_t line, window; /* elements of a window's line; of a window */
    int64_t pixels;       /* of a sample of y */
    int64_t block;        /* rows gathered at a time */
};

static struct picture picture_of(const struct ct_kernel_args *args, struct ct_shape x,
                                 struct ct_shape y)
{
    struct picture p = {.samples = x.dim[0],
                        .height = x.dim[1],
                        .width = x.dim[2],
                        .channels = x.dim[3],
                        .out_height = y.dim[1],
                        .out_width = y.dim[2],
                        .out_channels = y.dim[3],
                        .kernel = (int64_t)args->attr.kernel,
                        .stride = (int64_t)args->attr.stride,
                        .pad = (int64_t)args->attr.pad};
    int64_t room;

    p.line = p.kernel * p.channels;
    p.window = p.kernel * p.line;
    p.pixels = p.out_height * p.out_width;
    room = CT_CPU_SCRATCH / (int64_t)sizeof(T) / CT_MAX(p.window, 1);
    p.block = CT_MAX(CT_MIN(room, CT_GEMM_KC), 1);
    return p;
}

/* Where a window begins: sample, and the image's line and column, which may be outside. */
struct place {
    int64_t sample, line, column;
};

static struct place place_of(const struct picture *p, int64_t row)
{
    int64_t pixel = row % p->pixels;

    return (struct place){row / p->pixels, pixel / p->out_width * p->stride - p->pad,
                          pixel % p->out_width * p->stride - p->pad};
}

/* The piece of line `k` of a window that lies in the image and in elements first .. first + count -
 * 1 of the window: `count` elements from `from` of x, at `to` of what is wanted. */
struct part {
    int64_t from, to, count;
};

static struct part part_of(const struct picture *p, struct place at, int64_t k, int64_t first,
                           int64_t count)
{
    int64_t line = at.line + k, start = at.column * p->channels, wide = p->width * p->channels;
    int64_t low = CT_MAX(CT_MAX(first - k * p->line, 0), -start);
    int64_t high = CT_MIN(CT_MIN(first + count - k * p->line, p->line), wide - start);

    if (line < 0 || line >= p->height || high <= low)
        return (struct part){0, 0, 0};
    return (struct part){((at.sample * p->height + line) * p->width) * p->channels + start + low,
                         k * p->line + low - first, high - low};
}

/* Elements first .. first + count - 1 of the windows of rows row .. row + rows - 1. */
static void gather(const struct picture *p, const T *x, int64_t row, int64_t rows, int64_t first,
                   int64_t count, T *to)
{
    for (int64_t r = 0; r < rows; r++, to += count) {
        struct place at = place_of(p, row + r);
        bool whole = at.line >= 0 && at.column >= 0 && at.line + p->kernel <= p->height &&
                     at.column + p->kernel <= p->width;

        if (!whole)
            memset(to, 0, (size_t)count * sizeof *to);
        for (int64_t k = first / p->line; k * p->line < first + count; k++) {
            struct part part = part_of(p, at, k, first, count);
            const T *from = x + part.from;
            T *into = to + part.to;

            EACH(j, part.count) into[j] = from[j];
        }
    }
}

static void scatter(const struct picture *p, T *x, int64_t row, int64_t rows, const T *from)
{
    for (int64_t r = 0; r < rows; r++, from += p->window) {
        struct place at = place_of(p, row + r);

        for (int64_t k = 0; k < p->kernel; k++) {
            struct part part = part_of(p, at, k, 0, p->window);
            const T *source = from + part.to;
            T *into = x + part.from;

            EACH(j, part.count) into[j] += source[j];
        }
    }
}

/* By rows of y. */
static void conv2d(const struct ct_kernel_args *args, int64_t first, int64_t count, void *workspace,
                   void *scratch)
{
    struct picture p = picture_of(args, args->in[0].shape, args->out[0].shape);

    for (int64_t row = first; row < first + count; row += p.block) {
        int64_t rows = CT_MIN(p.block, first + count - row);
        struct ct_gemm g = {.m = rows,
                            .n = p.out_channels,
                            .k = p.window,
                            .a = scratch,
                            .b = args->in[1].data,
                            .c = OUT(0, row, p.out_channels),
                            .a_row = p.window,
                            .a_k = 1,
                            .b_k = 1,
                            .b_col = p.window,
                            .c_row = p.out_channels,
                            .bias = args->in[2].data};

        gather(&p, IN(0, 0, 1), row, rows, 0, p.window, scratch);
        GEMM.run(&g, workspace);
    }
}

/* By elements of a window: columns of dW as [out_channels, window]. */
static void conv2d_dw(const struct ct_kernel_args *args, int64_t first, int64_t count,
                      void *workspace, void *scratch)
{
    struct picture p = picture_of(args, args->in[1].shape, args->in[0].shape);
    int64_t all = p.samples * p.pixels, row = 0;

    do { /* once even without rows: dW is written */
        int64_t rows = CT_MIN(p.block, all - row);
        struct ct_gemm g = {.m = p.out_channels,
                            .n = count,
                            .k = rows,
                            .a = IN(0, row, p.out_channels),
                            .b = scratch,
                            .c = OUT(0, first, 1),
                            .a_row = 1,
                            .a_k = p.out_channels,
                            .b_k = count,
                            .b_col = 1,
                            .c_row = p.window,
                            .accumulate = args->attr.accumulate || row > 0};

        gather(&p, IN(1, 0, 1), row, rows, first, count, scratch);
        GEMM.run(&g, workspace);
        row += rows;
    } while (row < all);
}

/* By samples. */
static void conv2d_dx(const struct ct_kernel_args *args, int64_t first, int64_t count,
                      void *workspace, void *scratch)
{
    struct picture p = picture_of(args, args->out[0].shape, args->in[0].shape);
    int64_t sample = p.height * p.width * p.channels, end = (first + count) * p.pixels;

    memset(OUT(0, first, sample), 0, (size_t)(count * sample) * sizeof(T));
    for (int64_t row = first * p.pixels; row < end; row += p.block) {
        int64_t rows = CT_MIN(p.block, end - row);
        struct ct_gemm g = {.m = rows,
                            .n = p.window,
                            .k = p.out_channels,
                            .a = IN(0, row, p.out_channels),
                            .b = args->in[1].data,
                            .c = scratch,
                            .a_row = p.out_channels,
                            .a_k = 1,
                            .b_k = p.window,
                            .b_col = 1,
                            .c_row = p.window};

        GEMM.run(&g, workspace);
        scatter(&p, OUT(0, 0, 1), row, rows, scratch);
    }
}

/* ---- pools ---------------------------------------------------------------------------------- */

/* The pixel of x at line i and column j of the window at `at`, or -1 outside of the image. */
static int64_t pixel_at(const struct picture *p, struct place at, int64_t i, int64_t j)
{
    int64_t line = at.line + i, column = at.column + j;

    if (line < 0 || line >= p->height || column < 0 || column >= p->width)
        return -1;
    return (at.sample * p->height + line) * p->width + column;
}

/* b when it is larger, or no number. */
static inline T largest(T a, T b)
{
    return b > a || b != b ? b : a;
}

static void maxpool(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct picture p = picture_of(args, args->in[0].shape, args->out[0].shape);

    for (int64_t row = first; row < first + count; row++) {
        T *y = OUT(0, row, p.channels);

        EACH(c, p.channels) y[c] = -(T)INFINITY;
        for (int64_t k = 0; k < p.kernel * p.kernel; k++) {
            int64_t pixel = pixel_at(&p, place_of(&p, row), k / p.kernel, k % p.kernel);
            const T *x = IN(0, CT_MAX(pixel, 0), p.channels);

            if (pixel >= 0)
                EACH(c, p.channels) y[c] = largest(y[c], x[c]);
        }
    }
}

/* Give dy to the first pixel of the window that is as large as y; `left` is what is not given yet.
 */
static void give_back(const struct ct_kernel_args *args, const struct picture *p, int64_t row,
                      int64_t channel, int64_t channels)
{
    const T *y = IN(2, row, p->channels) + channel;
    T left[COLUMN_TILE];

    memcpy(left, IN(0, row, p->channels) + channel, (size_t)channels * sizeof *left);
    for (int64_t k = 0; k < p->kernel * p->kernel; k++) {
        int64_t pixel = pixel_at(p, place_of(p, row), k / p->kernel, k % p->kernel);

        if (pixel < 0)
            continue;
        const T *x = IN(1, pixel, p->channels) + channel;
        T *dx = OUT(0, pixel, p->channels) + channel;

        EACH(c, channels)
        {
            bool hit = x[c] == y[c] || x[c] != x[c];
            T given = hit ? left[c] : 0;

            dx[c] += given;
            left[c] = hit ? 0 : left[c];
        }
    }
}

/* By samples, as are the gradients of all pools. */
static void maxpool_bw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct picture p = picture_of(args, args->out[0].shape, args->in[0].shape);
    int64_t sample = p.height * p.width * p.channels;

    memset(OUT(0, first, sample), 0, (size_t)(count * sample) * sizeof(T));
    for (int64_t row = first * p.pixels; row < (first + count) * p.pixels; row++)
        for (int64_t channel = 0; channel < p.channels; channel += COLUMN_TILE)
            give_back(args, &p, row, channel, CT_MIN(p.channels - channel, COLUMN_TILE));
}

static void avgpool(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct picture p = picture_of(args, args->in[0].shape, args->out[0].shape);
    T share = 1 / (T)(p.kernel * p.kernel);

    for (int64_t row = first; row < first + count; row++) {
        T *y = OUT(0, row, p.channels);

        memset(y, 0, (size_t)p.channels * sizeof *y);
        for (int64_t k = 0; k < p.kernel * p.kernel; k++) {
            int64_t pixel = pixel_at(&p, place_of(&p, row), k / p.kernel, k % p.kernel);
            const T *x = IN(0, CT_MAX(pixel, 0), p.channels);

            if (pixel >= 0)
                EACH(c, p.channels) y[c] += x[c];
        }
        EACH(c, p.channels) y[c] *= share;
    }
}

static void avgpool_bw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct picture p = picture_of(args, args->out[0].shape, args->in[0].shape);
    int64_t sample = p.height * p.width * p.channels;
    T share = 1 / (T)(p.kernel * p.kernel);

    memset(OUT(0, first, sample), 0, (size_t)(count * sample) * sizeof(T));
    for (int64_t row = first * p.pixels; row < (first + count) * p.pixels; row++) {
        const T *dy = IN(0, row, p.channels);

        for (int64_t k = 0; k < p.kernel * p.kernel; k++) {
            int64_t pixel = pixel_at(&p, place_of(&p, row), k / p.kernel, k % p.kernel);
            T *dx = OUT(0, CT_MAX(pixel, 0), p.channels);

            if (pixel >= 0)
                EACH(c, p.channels) dx[c] += share * dy[c];
        }
    }
}

/* By blocks. */
static void swap(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = (int64_t)args->attr.rows, columns = (int64_t)args->attr.columns;

    for (int64_t block = first; block < first + count; block++) {
        const T *x = IN(0, block, rows * columns);
        T *y = OUT(0, block, rows * columns);

        for (int64_t j = 0; j < columns; j++)
            EACH(i, rows) y[j * rows + i] = x[i * columns + j];
    }
}
