/* Batch norm of parts_body.h: statistics of columns over the valid rows. Sums run in double, row
 * after row, so that those of micro-batches and ranks may be summed. */

/* Samples of `rows` rows each; the rows of a sample with a label < 0 do not count. */
struct batch_rows {
    const int32_t *labels; /* or NULL: all count */
    int64_t samples, rows;
};

static struct batch_rows batch_rows_of(const struct ct_tensor *x, const struct ct_tensor *labels)
{
    int64_t rows = ct_shape_rows(x->shape);
    int64_t samples = labels->data == NULL ? 1 : ct_shape_elements(labels->shape);

    return (struct batch_rows){labels->data, samples, samples == 0 ? 0 : rows / samples};
}

static bool batch_counts(const struct batch_rows *batch, int64_t sample)
{
    return batch->labels == NULL || batch->labels[sample] >= 0;
}

/* By columns. */
static void batch_sums(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct batch_rows batch = batch_rows_of(&args->in[0], &args->in[1]);
    int64_t row_size = ct_shape_columns(args->in[0].shape);
    double *sums = args->out[0].data;

    for (int64_t end = first + count; first < end; first += COLUMN_TILE) {
        int64_t columns = CT_MIN(end - first, COLUMN_TILE), n = 0;
        double one[COLUMN_TILE] = {0}, two[COLUMN_TILE] = {0};

        for (int64_t sample = 0; sample < batch.samples; sample++) {
            const T *x = IN(0, sample * batch.rows, row_size) + first;

            if (!batch_counts(&batch, sample))
                continue;
            n += batch.rows;
            for (int64_t row = 0; row < batch.rows; row++, x += row_size)
                EACH(j, columns)
                {
                    double value = (double)x[j];
                    one[j] += value;
                    two[j] += value * value;
                }
        }
        EACH(j, columns) sums[first + j] = (double)n;
        EACH(j, columns) sums[row_size + first + j] = one[j];
        EACH(j, columns) sums[2 * row_size + first + j] = two[j];
    }
}

static void batch_total(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const double *from = args->in[0].data;
    double *to = args->out[0].data;

    EACH(i, count) to[first + i] = from[first + i];
}

/* The variance of a column over n rows, which rounding may have made negative. */
static double batch_variance(double n, double one, double two)
{
    double variance = two / n - one / n * (one / n);

    return variance < 0 ? 0 : variance;
}

static void batch_stats(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);
    const double *sums = args->in[0].data;
    T *stats = OUT(0, 0, 1);

    for (int64_t k = first; k < first + count; k++) {
        double n = sums[k], one = sums[columns + k], two = sums[2 * columns + k];

        stats[k] = (T)(n > 0 ? one / n : 0);
        stats[columns + k] =
            (T)(1 / sqrt((n > 0 ? batch_variance(n, one, two) : 0) + args->attr.eps));
    }
}

static void running_stats(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);
    const T *mean = IN(0, 0, 1), *var = IN(1, 0, 1);
    T *stats = OUT(0, 0, 1);

    for (int64_t k = first; k < first + count; k++) {
        stats[k] = mean[k];
        stats[columns + k] = (T)(1 / sqrt((double)var[k] + args->attr.eps));
    }
}

static void batch_norm(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *mean = IN(1, 0, 1), *rstd = IN(1, 1, columns), *g = IN(2, 0, 1);
    const T *b = args->in[3].data;

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        T *y = OUT(0, row, columns);

        if (b != NULL)
            EACH(j, columns) y[j] = (x[j] - mean[j]) * rstd[j] * g[j] + b[j];
        else
            EACH(j, columns) y[j] = (x[j] - mean[j]) * rstd[j] * g[j];
    }
}

/* By columns. Rows that do not count have no gradient. */
static void batch_grads(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), row_size = ct_shape_columns(args->in[0].shape);
    double *grads = args->out[0].data;

    for (int64_t end = first + count; first < end; first += COLUMN_TILE) {
        int64_t columns = CT_MIN(end - first, COLUMN_TILE);
        const T *mean = IN(2, 0, 1) + first, *rstd = IN(2, 1, row_size) + first;
        double one[COLUMN_TILE] = {0}, two[COLUMN_TILE] = {0};

        for (int64_t row = 0; row < rows; row++) {
            const T *dy = IN(0, row, row_size) + first, *x = IN(1, row, row_size) + first;

            EACH(j, columns)
            {
                double d = (double)dy[j];
                one[j] += d;
                two[j] += d * (double)((x[j] - mean[j]) * rstd[j]);
            }
        }
        EACH(j, columns) grads[first + j] = one[j];
        EACH(j, columns) grads[row_size + first + j] = two[j];
    }
}

/* Row `row` of the grads, as the gradient of a parameter. */
static void batch_take(const struct ct_kernel_args *args, int64_t row, int64_t first, int64_t count)
{
    const double *grads =
        (const double *)args->in[0].data + row * ct_shape_columns(args->in[0].shape) + first;
    T *d = OUT(0, first, 1);

    if (args->attr.accumulate)
        EACH(i, count) d[i] += (T)grads[i];
    else
        EACH(i, count) d[i] = (T)grads[i];
}

static void batch_db(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    batch_take(args, 0, first, count);
}

static void batch_dg(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    batch_take(args, 1, first, count);
}

/* With n = (x - mean) rstd: dx = g rstd (dy - mean(dy) - n mean(dy n)). */
static void batch_coef(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);
    const T *g = IN(0, 0, 1), *mean = IN(1, 0, 1), *rstd = IN(1, 1, columns);
    const double *sums = args->in[2].data, *grads = args->in[3].data;
    T *coef = OUT(0, 0, 1);

    for (int64_t k = first; k < first + count; k++) {
        double n = sums[k], slope = (double)g[k] * (double)rstd[k];

        coef[k] = (T)slope;
        coef[columns + k] = (T)(n > 0 ? -slope * grads[k] / n : 0);
        coef[2 * columns + k] = (T)(n > 0 ? -slope * (double)rstd[k] * grads[columns + k] / n : 0);
        coef[3 * columns + k] = mean[k];
    }
}

static void batch_dx(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    struct batch_rows batch = batch_rows_of(&args->in[0], &args->in[3]);
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const T *slope = IN(2, 0, 1), *shift = IN(2, 1, columns), *tilt = IN(2, 2, columns);
    const T *mean = IN(2, 3, columns);

    for (int64_t row = first; row < first + count; row++) {
        const T *dy = IN(0, row, columns), *x = IN(1, row, columns);
        T *dx = OUT(0, row, columns);

        if (batch_counts(&batch, row / batch.rows))
            EACH(j, columns) dx[j] = slope[j] * dy[j] + shift[j] + tilt[j] * (x[j] - mean[j]);
        else
            EACH(j, columns) dx[j] = slope[j] * dy[j];
    }
}

static void batch_run(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);
    const double *sums = args->in[0].data;
    double *run = args->out[0].data;

    for (int64_t k = first; k < first + count; k++) {
        double n = sums[k], one = sums[columns + k], two = sums[2 * columns + k];
        bool counts = n > 1; /* one row has no variance */

        run[k] = counts ? n : 0;
        run[columns + k] = counts ? one : 0;
        run[2 * columns + k] = counts ? n * (batch_variance(n, one, two) * n / (n - 1)) : 0;
    }
}

static void running_update(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    const double *run = args->in[0].data;
    double rate = args->attr.momentum, scale = scalar(args, 1, 1);
    T *mean = OUT(0, 0, 1), *var = OUT(1, 0, 1);

    for (int64_t k = first; k < first + count; k++) {
        double n = run[k];

        if (!(n > 0) || isnan(scale))
            continue;
        mean[k] = (T)((1 - rate) * (double)mean[k] + rate * (run[columns + k] / n));
        var[k] = (T)((1 - rate) * (double)var[k] + rate * (run[2 * columns + k] / n));
    }
}
