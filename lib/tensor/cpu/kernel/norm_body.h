/* Norms over the columns of parts_body.h. A row's sums run in LANES lanes, as all sums of rows do.
 */

ROW_SUM(row_squares, (x[j] - mean) * (x[j] - mean), const T *x, T mean)
ROW_SUM(row_dot3, dy[j] * g[j] * (x[j] - mean), const T *dy, const T *g, const T *x, T mean)

static T rstd_of(T squares, int64_t columns, double eps)
{
    return 1 / SQRT(squares / (T)columns + (T)eps);
}

static void layernorm(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *g = IN(1, 0, 1), *b = args->in[2].data;

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        T *y = OUT(0, row, columns), *stats = OUT(1, row, 2);
        T mean = row_total(columns, x) / (T)columns;
        T rstd = rstd_of(row_squares(columns, x, mean), columns, args->attr.eps);

        stats[0] = mean;
        stats[1] = rstd;
        if (b != NULL)
            EACH(j, columns) y[j] = (x[j] - mean) * rstd * g[j] + b[j];
        else
            EACH(j, columns) y[j] = (x[j] - mean) * rstd * g[j];
    }
}

static void rmsnorm(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *g = IN(1, 0, 1);

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        T *y = OUT(0, row, columns), *stats = OUT(1, row, 2);
        T rstd = rstd_of(row_squares(columns, x, 0), columns, args->attr.eps);

        stats[0] = 0;
        stats[1] = rstd;
        EACH(j, columns) y[j] = x[j] * rstd * g[j];
    }
}

/* With n = (x - mean) rstd: dx = rstd (dy g - mean(dy g) - n mean(dy g n)). */
static void layernorm_dx(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *g = IN(2, 0, 1);

    for (int64_t row = first; row < first + count; row++) {
        const T *dy = IN(0, row, columns), *x = IN(1, row, columns), *stats = IN(3, row, 2);
        T *dx = OUT(0, row, columns), mean = stats[0], rstd = stats[1];
        T shift = row_dot(columns, dy, g) / (T)columns;
        T slope = row_dot3(columns, dy, g, x, mean) * rstd / (T)columns;

        EACH(j, columns) dx[j] = rstd * (dy[j] * g[j] - shift - (x[j] - mean) * rstd * slope);
    }
}

/* The same without a mean: dx = rstd (dy g - n mean(dy g n)). */
static void rmsnorm_dx(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *g = IN(2, 0, 1);

    for (int64_t row = first; row < first + count; row++) {
        const T *dy = IN(0, row, columns), *x = IN(1, row, columns);
        T *dx = OUT(0, row, columns), rstd = IN(3, row, 2)[1];
        T slope = row_dot3(columns, dy, g, x, 0) * rstd / (T)columns;

        EACH(j, columns) dx[j] = rstd * (dy[j] * g[j] - x[j] * rstd * slope);
    }
}

/* By columns; rows are added in the order of a matrix product, as in linear_db. */
static void norm_dg(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), row_size = ct_shape_columns(args->in[0].shape);
    T *dg = OUT(0, 0, 1);

    if (!args->attr.accumulate)
        memset(dg + first, 0, (size_t)count * sizeof *dg);
    for (int64_t end = first + count; first < end; first += COLUMN_TILE) {
        int64_t columns = CT_MIN(end - first, COLUMN_TILE);

        for (int64_t block = 0; block < rows; block += CT_GEMM_KC) {
            T acc[COLUMN_TILE] = {0};

            for (int64_t row = block; row < CT_MIN(block + CT_GEMM_KC, rows); row++) {
                const T *dy = IN(0, row, row_size) + first, *x = IN(1, row, row_size) + first;
                T mean = IN(2, row, 2)[0], rstd = IN(2, row, 2)[1];

                EACH(j, columns) acc[j] += dy[j] * ((x[j] - mean) * rstd);
            }
            EACH(j, columns) dg[first + j] += acc[j];
        }
    }
}
