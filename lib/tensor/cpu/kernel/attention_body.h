/* Causal attention of parts_body.h, in blocks (Dao et al., FlashAttention, 2205.14135 and
 * 2307.08691):
 *
 *              keys ->
 *     queries  [\.  ]    forward, a row of blocks at a time, with the largest score m and the
 *        |     [##\. ]   sum l of exponentials so far:
 *        v     [####\]       s = q k^T;  m' = max(m, s);  p = e^(s - m')
 *                            l = l e^(m - m') + sum p;  y = y e^(m - m') + p v
 *                         and at its end y = y / l, lse = m + log l
 *
 *     backward, a column of blocks at a time, p = e^(s - lse) made again:
 *         dv += p^T dy;  ds = p (dy v^T - dy.y);  dq += ds k;  dk += ds^T q
 *
 * A unit of work is one head of one sequence; its blocks come in one order, so threads change
 * nothing. Products inside a block are those of gemm.h. */

enum { TILE = 64 };

/* One head of one sequence: queries of the places first .. sequence - 1, keys and values from the
 * first place on. */
struct head {
    const T *q, *k, *v;
    T *lse;                 /* of the first query; NULL: nobody wants it */
    int64_t first;          /* place of the first query */
    int64_t row;            /* of the first query, in y and lse */
    int64_t step, kv_step;  /* between rows of q; of k and v */
    int64_t width, size;    /* columns of y; of the head */
    int64_t column, number; /* of the head in y; among the heads */
    int64_t sequence, heads;
    T scale;
};

struct scratch {
    T score[TILE][TILE], slope[TILE][TILE];
};
_Static_assert(sizeof(struct scratch) <= CT_CPU_SCRATCH, "a block's scores fit the scratch");

static struct head head_of(const struct ct_kernel_args *args, const struct ct_tensor *qkv,
                           int64_t unit)
{
    struct head h = {.step = ct_shape_columns(qkv->shape),
                     .sequence = (int64_t)args->attr.sequence,
                     .heads = (int64_t)args->attr.heads};

    h.width = h.step / 3;
    h.size = h.width / h.heads;
    h.number = unit % h.heads;
    h.column = h.number * h.size;
    h.row = unit / h.heads * h.sequence;
    h.q = (const T *)qkv->data + h.row * h.step + h.column;
    h.k = h.q + h.width;
    h.v = h.k + h.width;
    h.kv_step = h.step;
    h.scale = 1 / SQRT((T)h.size);
    return h;
}

/* c[rows][columns] (+)= a b, each with its strides. */
struct strided {
    const T *at;
    int64_t row, column;
};

static void product(void *workspace, T *c, int64_t c_row, int64_t rows, int64_t columns,
                    int64_t depth, struct strided a, struct strided b, bool add)
{
    struct ct_gemm g = {.m = rows,
                        .n = columns,
                        .k = depth,
                        .a = a.at,
                        .b = b.at,
                        .c = c,
                        .a_row = a.row,
                        .a_k = a.column,
                        .b_k = b.row,
                        .b_col = b.column,
                        .c_row = c_row,
                        .accumulate = add};

    GEMM.run(&g, workspace);
}

static struct strided rows_of(const T *at, int64_t step)
{
    return (struct strided){at, step, 1};
}

static struct strided transposed(const T *at, int64_t step)
{
    return (struct strided){at, 1, step};
}

/* Keys of a block that the query of row r sees: those at its place and before. */
static int64_t visible(int64_t query, int64_t first_key, int64_t keys)
{
    return CT_MIN(query + 1 - first_key, keys);
}

/* Those that are computed for them: whole groups of lanes, whose other results are put away. */
static int64_t rounded(int64_t seen, int64_t keys)
{
    return CT_MIN((seen + LANES - 1) / LANES * LANES, keys);
}

/* Scores of one query: exponentials instead; returns the factor by which older ones shrink. */
static T absorb(T *p, int64_t seen, int64_t keys, T scale, T *max, T *total)
{
    int64_t some = rounded(seen, keys);

    for (int64_t j = seen; j < some; j++)
        p[j] = -(T)INFINITY;
    T old = *max, best = larger(old, row_max(p, some) * scale);
    T shrink = EXP(old - best);
    EACH(j, some) p[j] = EXP(p[j] * scale - best);
    for (int64_t j = seen; j < keys; j++)
        p[j] = 0;
    *max = best;
    *total = *total * shrink + row_total(some, p);
    return shrink;
}

/* The queries of the places from `query` to the end of its tile, or of the sequence; returns the
 * place behind them. Tiles begin at multiples of TILE whatever the first query is, so that its
 * place alone decides how a query's sums are cut. */
static int64_t attend(const struct head *h, const struct ct_kernel_args *args, int64_t query,
                      void *workspace, struct scratch *s)
{
    int64_t rows = CT_MIN(h->sequence - query, TILE - query % TILE);
    T *y = OUT(0, h->row + query - h->first, h->width) + h->column;
    T max[TILE], total[TILE];

    for (int64_t r = 0; r < rows; r++) {
        max[r] = -(T)INFINITY;
        total[r] = 0;
    }
    for (int64_t key = 0; key <= query; key += TILE) {
        int64_t keys = CT_MIN(h->sequence - key, TILE);

        product(workspace, s->score[0], TILE, rows, keys, h->size,
                rows_of(h->q + (query - h->first) * h->step, h->step),
                transposed(h->k + key * h->kv_step, h->kv_step), false);
        for (int64_t r = 0; r < rows; r++) {
            T shrink = absorb(s->score[r], visible(query + r, key, keys), keys, h->scale, &max[r],
                              &total[r]);
            T *old = y + r * h->width;

            if (key > 0)
                EACH(j, h->size) old[j] *= shrink;
        }
        product(workspace, y, h->width, rows, h->size, keys, rows_of(s->score[0], TILE),
                rows_of(h->v + key * h->kv_step, h->kv_step), key > 0);
    }
    for (int64_t r = 0; r < rows; r++) {
        T inverse = 1 / total[r], *row = y + r * h->width;

        EACH(j, h->size) row[j] *= inverse;
        if (h->lse != NULL)
            h->lse[(query - h->first + r) * h->heads] = max[r] + (T)log_of((double)total[r]);
    }
    return query + rows;
}

static void attention(const struct ct_kernel_args *args, int64_t first, int64_t count,
                      void *workspace, void *scratch)
{
    for (int64_t unit = first; unit < first + count; unit++) {
        struct head h = head_of(args, &args->in[0], unit);

        h.lse = OUT(1, h.row, h.heads) + h.number;
        for (int64_t query = 0; query < h.sequence;)
            query = attend(&h, args, query, workspace, scratch);
    }
}

/* A unit is a head: its columns of the cache are its own. */
static void attention_cached(const struct ct_kernel_args *args, int64_t first, int64_t count,
                             void *workspace, void *scratch)
{
    int64_t rows = ct_shape_rows(args->in[0].shape), room = ct_shape_rows(args->out[1].shape);
    int64_t place = *(const int32_t *)args->in[1].data;

    CT_ASSERT(place >= 0 && place <= room - rows);
    for (int64_t unit = first; unit < first + count; unit++) {
        struct head h = head_of(args, &args->in[0], unit);
        T *k = OUT(1, 0, 2 * h.width) + h.column, *v = k + h.width;

        h.kv_step = 2 * h.width;
        for (int64_t r = 0; r < rows; r++) {
            memcpy(k + (place + r) * h.kv_step, h.k + r * h.step, (size_t)h.size * sizeof *k);
            memcpy(v + (place + r) * h.kv_step, h.v + r * h.step, (size_t)h.size * sizeof *v);
        }
        h.k = k;
        h.v = v;
        h.first = place;
        h.sequence = place + rows;
        for (int64_t query = place; query < h.sequence;)
            query = attend(&h, args, query, workspace, scratch);
    }
}

/* p from the scores, and ds from p and dy v^T; nothing of keys that a query does not see. */
static void slopes(const struct head *h, const struct ct_kernel_args *args, int64_t query,
                   int64_t key, int64_t rows, int64_t keys, struct scratch *s)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = h->row + query + r, seen = visible(query + r, key, keys);
        int64_t some = rounded(seen, keys);
        T lse = IN(3, row, h->heads)[h->number], scale = h->scale;
        T delta =
            row_dot(h->size, IN(0, row, h->width) + h->column, IN(2, row, h->width) + h->column);
        T *p = s->score[r], *ds = s->slope[r];

        EACH(j, some)
        {
            p[j] = EXP(p[j] * scale - lse);
            ds[j] = p[j] * (ds[j] - delta) * scale;
        }
        for (int64_t j = seen; j < keys; j++)
            p[j] = ds[j] = 0;
    }
}

static void attention_bw(const struct ct_kernel_args *args, int64_t first, int64_t count,
                         void *workspace, void *scratch)
{
    struct scratch *s = scratch;

    for (int64_t unit = first; unit < first + count; unit++) {
        struct head h = head_of(args, &args->in[1], unit);
        T *dq = OUT(0, h.row, h.step) + h.column, *dk = dq + h.width, *dv = dk + h.width;
        const T *dy = IN(0, h.row, h.width) + h.column;

        for (int64_t key = 0; key < h.sequence; key += TILE) {
            int64_t keys = CT_MIN(h.sequence - key, TILE);

            for (int64_t query = key; query < h.sequence; query += TILE) {
                int64_t rows = CT_MIN(h.sequence - query, TILE);
                struct strided q = rows_of(h.q + query * h.step, h.step);
                struct strided dys = rows_of(dy + query * h.width, h.width);

                product(workspace, s->score[0], TILE, rows, keys, h.size, q,
                        transposed(h.k + key * h.step, h.step), false);
                product(workspace, s->slope[0], TILE, rows, keys, h.size, dys,
                        transposed(h.v + key * h.step, h.step), false);
                slopes(&h, args, query, key, rows, keys, s);
                product(workspace, dv + key * h.step, h.step, keys, h.size, rows,
                        transposed(s->score[0], TILE), dys, query > key);
                product(workspace, dk + key * h.step, h.step, keys, h.size, rows,
                        transposed(s->slope[0], TILE), q, query > key);
                product(workspace, dq + query * h.step, h.step, rows, h.size, keys,
                        rows_of(s->slope[0], TILE), rows_of(h.k + key * h.step, h.step), key > 0);
            }
        }
    }
}
