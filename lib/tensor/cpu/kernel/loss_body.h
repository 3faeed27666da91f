/* Losses and counts, of parts_body.h. */

/* A row's loss; stats as op.def has them. */
static double row_loss(const T *x, int64_t columns, int32_t label, T stats[2])
{
    CT_ASSERT(label < columns);
    T max = row_max(x, columns);
    double log_sum = log_of(row_sum_exp(x, columns, max));

    stats[0] = max;
    stats[1] = (T)log_sum;
    return log_sum - ((double)x[label] - (double)max);
}

static double cross_entropy(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    double loss = 0;

    for (int64_t row = first; row < first + count; row++) {
        int32_t label = ((const int32_t *)args->in[1].data)[row];
        T *stats = OUT(1, row, 2);

        stats[0] = stats[1] = 0;
        if (label >= 0)
            loss += row_loss(IN(0, row, columns), columns, label, stats);
    }
    return loss;
}

/* Columns of logits that stand for classes: of a part, those that are no padding. */
static int64_t classes_of(const struct ct_kernel_args *args, int64_t columns)
{
    int64_t left = (int64_t)args->attr.classes - (int64_t)args->attr.begin;

    return args->attr.part ? CT_MAX(CT_MIN(left, columns), 0) : columns;
}

/* Where the label's column would be: beyond 0 .. columns - 1 when another part has it. */
static int64_t label_at(const struct ct_kernel_args *args, int64_t row, int64_t columns)
{
    int64_t label = ((const int32_t *)args->in[1].data)[row];

    CT_ASSERT(label < (args->attr.part ? (int64_t)args->attr.classes : columns));
    return args->attr.part ? label - (int64_t)args->attr.begin : label;
}

static bool counts(const struct ct_kernel_args *args, int64_t row)
{
    return ((const int32_t *)args->in[1].data)[row] >= 0;
}

/* The gradient of a row with `real` classes; label < 0: it is none of them. */
static void row_gradient(T *dx, const T *x, int64_t real, int64_t label, const T stats[2], T factor)
{
    T max = stats[0], log_sum = stats[1];
    T at_label = label >= 0 ? EXP((x[label] - max) - log_sum) - 1 : 0;

    EACH(j, real) dx[j] = factor * EXP((x[j] - max) - log_sum);
    if (label >= 0)
        dx[label] = factor * at_label;
}

static void cross_entropy_bw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape), real = classes_of(args, columns);
    T factor = (T)scalar(args, 3, 1);

    for (int64_t row = first; row < first + count; row++) {
        int64_t label = label_at(args, row, columns);
        T *dx = OUT(0, row, columns);

        if (!counts(args, row)) {
            memset(dx, 0, (size_t)columns * sizeof *dx);
            continue;
        }
        row_gradient(dx, IN(0, row, columns), real, label < real ? label : -1, IN(2, row, 2),
                     factor);
        memset(dx + real, 0, (size_t)(columns - real) * sizeof *dx);
    }
}

/* Whether the label's logit is the first of the largest; a NaN is larger than all. */
static bool is_right(const T *x, int64_t columns, int32_t label)
{
    bool beaten = label < 0;

    CT_ASSERT(label < columns);
    for (int64_t j = 0; !beaten && j < columns; j++)
        beaten = j < label ? !(x[j] < x[label]) : !(x[j] <= x[label]);
    return !beaten;
}

/* What cross_entropy, correct and cross_entropy_bw do, while a row is in the cache. */
static void cross_entropy_grad(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    double *loss = args->out[1].data, *right = args->out[2].data;
    T factor = (T)scalar(args, 2, 1), stats[2];

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns);
        int32_t label = ((const int32_t *)args->in[1].data)[row];
        T *dx = OUT(0, row, columns);

        right[row] = is_right(x, columns, label);
        loss[row] = 0;
        if (label < 0) {
            memset(dx, 0, (size_t)columns * sizeof *dx);
            continue;
        }
        loss[row] = row_loss(x, columns, label, stats);
        row_gradient(dx, x, columns, label, stats, factor);
    }
}

static double sum_rows(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const double *x = args->in[0].data;
    double sum = 0;

    for (int64_t row = first; row < first + count; row++)
        sum += x[row];
    return sum;
}

/* ---- cross-entropy over a part of the classes ------------------------------------------------ */

static void vocab_max(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape), real = classes_of(args, columns);

    for (int64_t row = first; row < first + count; row++)
        *OUT(0, row, 1) = counts(args, row) ? row_max(IN(0, row, columns), real) : 0;
}

static void vocab_sums(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape), real = classes_of(args, columns);

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns), max = *IN(2, row, 1);
        int64_t label = label_at(args, row, columns), ties = 0;
        T *sums = OUT(0, row, 3);

        sums[0] = sums[1] = sums[2] = 0;
        if (!counts(args, row))
            continue;
        sums[0] = (T)row_sum_exp(x, real, max);
        if (label >= 0 && label < real)
            sums[1] = x[label] - max;
        for (int64_t j = 0; j < real && j < label; j++)
            ties += x[j] == max;
        sums[2] = (T)ties;
    }
}

static double vocab_loss(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    double loss = 0;

    for (int64_t row = first; row < first + count; row++) {
        const T *sums = IN(0, row, 3);
        T *stats = OUT(1, row, 2);

        stats[0] = stats[1] = 0;
        if (!counts(args, row))
            continue;
        double log_sum = log_of((double)sums[0]);

        stats[0] = *IN(2, row, 1);
        stats[1] = (T)log_sum;
        loss += log_sum - (double)sums[1];
    }
    return loss;
}

static double vocab_correct(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t right = 0;

    for (int64_t row = first; row < first + count; row++) {
        const T *sums = IN(0, row, 3);

        right += counts(args, row) && sums[1] == 0 && sums[2] == 0;
    }
    return (double)right;
}

/* ---- other losses and counts ---------------------------------------------------------------- */

static bool masked(const struct ct_tensor *labels, int64_t row)
{
    return labels->data != NULL && ((const int32_t *)labels->data)[row] < 0;
}

static double mse(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    double loss = 0;

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns), *target = IN(1, row, columns);
        double sum = 0;

        if (masked(&args->in[2], row))
            continue;
        for (int64_t j = 0; j < columns; j++) {
            double d = (double)x[j] - (double)target[j];
            sum += d * d;
        }
        loss += sum / (double)columns;
    }
    return loss;
}

static void mse_bw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    T factor = (T)(2 * scalar(args, 2, 1) / (double)columns);

    for (int64_t row = first; row < first + count; row++) {
        const T *x = IN(0, row, columns), *target = IN(1, row, columns);
        T *dx = OUT(0, row, columns);

        if (masked(&args->in[3], row))
            memset(dx, 0, (size_t)columns * sizeof *dx);
        else
            EACH(j, columns) dx[j] = factor * (x[j] - target[j]);
    }
}

static void one_hot(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->out[0].shape);

    memset(OUT(0, first, columns), 0, (size_t)(count * columns) * sizeof(T));
    for (int64_t row = first; row < first + count; row++) {
        int32_t label = ((const int32_t *)args->in[0].data)[row];

        CT_ASSERT(label < columns);
        if (label >= 0)
            OUT(0, row, columns)[label] = 1;
    }
}

static double correct(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    int64_t columns = ct_shape_columns(args->in[0].shape);
    int64_t right = 0;

    for (int64_t row = first; row < first + count; row++) {
        int32_t label = ((const int32_t *)args->in[1].data)[row];

        right += is_right(IN(0, row, columns), columns, label);
    }
    return (double)right;
}
