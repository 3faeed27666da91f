/* The gradient's norm and optimizers of parts_body.h, on flat ranges. */

static double sumsq(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *x = IN(0, first, 1);
    double sum[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        EACH(l, LANES) sum[l] += (double)x[i + l] * (double)x[i + l];
    for (int64_t l = 0; i + l < count; l++)
        sum[l] += (double)x[i + l] * (double)x[i + l];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            sum[l] += sum[l + width];
    return sum[0];
}

static void clip_scale(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    double scale_to_norm = args->attr.max_norm / (sqrt(scalar(args, 0, 0)) + 1e-6);

    (void)first;
    (void)count;
    *(double *)args->out[0].data = scale_to_norm > 1 ? 1 : scale_to_norm;
}

static void guard(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    bool finite = isfinite(scalar(args, 0, 0)) && isfinite(scalar(args, 1, 0));

    (void)first;
    (void)count;
    *(double *)args->out[0].data = finite ? scalar(args, 2, 1) : NAN;
}

static void sgd(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *g = IN(0, first, 1);
    T *p = OUT(0, first, 1);
    T lr = (T)scalar(args, 1, 0), factor = (T)scalar(args, 2, 1);
    T decay = (T)args->attr.weight_decay, momentum = (T)args->attr.momentum;

    if (isnan(scalar(args, 2, 1)))
        return;
    if (momentum == 0) {
        EACH(i, count) p[i] -= lr * (factor * g[i] + decay * p[i]);
        return;
    }
    T *buffer = OUT(1, first, 1);
    if (args->attr.nesterov) {
        EACH(i, count)
        {
            T d = factor * g[i] + decay * p[i];
            buffer[i] = momentum * buffer[i] + d;
            p[i] -= lr * (d + momentum * buffer[i]);
        }
    } else {
        EACH(i, count)
        {
            buffer[i] = momentum * buffer[i] + (factor * g[i] + decay * p[i]);
            p[i] -= lr * buffer[i];
        }
    }
}

/* base^n for a whole n >= 0, by squaring: the same bits everywhere, unlike pow(). */
static double whole_power(double base, double n)
{
    double power = 1;

    CT_ASSERT(n >= 0 && n < 0x1p53);
    for (int64_t left = (int64_t)n; left > 0; left /= 2) {
        if (left % 2 == 1)
            power *= base;
        base *= base;
    }
    return power;
}

static void adamw(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const struct ct_attr *attr = &args->attr;
    const T *g = IN(0, first, 1);
    T *p = OUT(0, first, 1), *m = OUT(1, first, 1), *v = OUT(2, first, 1);
    double lr = scalar(args, 1, 0), step = scalar(args, 2, 1);
    double correction1 = 1 - whole_power(attr->beta1, step);
    double correction2 = 1 - whole_power(attr->beta2, step);
    T factor = (T)scalar(args, 3, 1), eps = (T)attr->eps;
    T beta1 = (T)attr->beta1, rest1 = (T)(1 - attr->beta1);
    T beta2 = (T)attr->beta2, rest2 = (T)(1 - attr->beta2);
    T keep = (T)(1 - lr * attr->weight_decay);
    T step_size = (T)(lr / correction1), v_factor = (T)(1 / sqrt(correction2));

    if (isnan(scalar(args, 3, 1)))
        return;
    EACH(i, count)
    {
        T d = factor * g[i];
        m[i] = beta1 * m[i] + rest1 * d;
        v[i] = beta2 * v[i] + rest2 * d * d;
        p[i] = keep * p[i] - step_size * m[i] / (SQRT(v[i]) * v_factor + eps);
    }
}

static void lion(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const struct ct_attr *attr = &args->attr;
    const T *g = IN(0, first, 1);
    T *p = OUT(0, first, 1), *m = OUT(1, first, 1);
    double lr = scalar(args, 1, 0);
    T factor = (T)scalar(args, 2, 1), rate = (T)lr, keep = (T)(1 - lr * attr->weight_decay);
    T beta1 = (T)attr->beta1, rest1 = (T)(1 - attr->beta1);
    T beta2 = (T)attr->beta2, rest2 = (T)(1 - attr->beta2);

    if (isnan(scalar(args, 2, 1)))
        return;
    EACH(i, count)
    {
        T d = factor * g[i];
        T c = beta1 * m[i] + rest1 * d;
        T sign = c > 0 ? (T)1 : (T)0;
        sign = c < 0 ? (T)-1 : sign;
        sign = c != c ? c : sign;
        p[i] = keep * p[i] - rate * sign;
        m[i] = beta2 * m[i] + rest2 * d;
    }
}

static void ema(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const T *p = IN(0, first, 1);
    T *e = OUT(0, first, 1), rest = (T)(1 - args->attr.decay);

    if (isnan(scalar(args, 2, 1)))
        return;
    if (scalar(args, 1, 0) <= 1)
        EACH(i, count) e[i] = p[i];
    else
        EACH(i, count) e[i] += rest * (p[i] - e[i]);
}
