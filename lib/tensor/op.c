/* See op.h. The operand strings of op.def are the one place that says what an op takes; they are
 * read anew at each check, which happens when a program is bound to memory, not in every step. */
#include "tensor/op.h"

#include "base/assert.h"

#include <ctype.h>
#include <string.h>

#define A(name) ((uint32_t)1 << CT_ATTR_##name)
static const struct ct_op_info ops[CT_OP_COUNT] = {
#define OP(id, name, operands, in_place, updates, narrows, attributes) \
    [CT_OP_##id] = {name, operands, in_place, updates, narrows, attributes},
#include "tensor/op.def"
#undef OP
};
#undef A

static const struct ct_attr_info attrs[CT_ATTR_COUNT] = {
#define ATTR(type, name) \
    [CT_ATTR_##name] = {#name, CT_ATTR_TYPE_##type, offsetof(struct ct_attr, name)},
#include "tensor/attr.def"
#undef ATTR
};

const struct ct_op_info *ct_op_info(enum ct_op_kind op)
{
    CT_ASSERT((unsigned)op < CT_OP_COUNT);
    return &ops[op];
}

const struct ct_attr_info *ct_attr_info(enum ct_attr_id id)
{
    CT_ASSERT((unsigned)id < CT_ATTR_COUNT);
    return &attrs[id];
}

int ct_op_find(const char *name)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        if (strcmp(ops[op].name, name) == 0)
            return op;
    return -1;
}

bool ct_op_narrows(enum ct_op_kind op)
{
    return ct_op_info(op)->narrows;
}

/* ---- reading "name:type[D,D]?" -------------------------------------------------------------- */

static const char *parse_word(const char *at, char *word, size_t room)
{
    size_t length = 0;

    for (; isalnum((unsigned char)*at) || *at == '_'; at++) {
        CT_ASSERT(length + 1 < room);
        word[length++] = *at;
    }
    word[length] = 0;
    return at;
}

static const char *parse_operand(const char *at, struct ct_operand *operand)
{
    char type[8];

    *operand = (struct ct_operand){.dtype = CT_OPERAND_T};
    at = parse_word(at, operand->name, sizeof operand->name);
    if (*at == ':') {
        at = parse_word(at + 1, type, sizeof type);
        operand->dtype = strcmp(type, "wide") == 0 ? CT_OPERAND_WIDE : ct_dtype_find(type);
        CT_ASSERT(operand->dtype != CT_OPERAND_T);
    }
    CT_ASSERT(*at == '[');
    do {
        CT_ASSERT(operand->dims < 2);
        operand->dim[operand->dims++] = at[1];
        at += 2;
    } while (*at == ',');
    CT_ASSERT(*at == ']');
    operand->optional = at[1] == '?';
    return at + 1 + operand->optional;
}

void ct_op_operands(enum ct_op_kind op, struct ct_operands *ret_operands)
{
    struct ct_operands *all = ret_operands;
    const char *at = ct_op_info(op)->operands;
    bool out = false;

    *all = (struct ct_operands){0};
    while (*at != 0) {
        if (*at == ' ') {
            at++;
        } else if (strncmp(at, "->", 2) == 0) {
            out = true;
            at += 2;
        } else if (out) {
            CT_ASSERT(all->out_count < CT_OP_MAX_OUT);
            at = parse_operand(at, &all->out[all->out_count++]);
        } else {
            CT_ASSERT(all->in_count < CT_OP_MAX_IN);
            at = parse_operand(at, &all->in[all->in_count++]);
        }
    }
}

enum ct_dtype ct_operand_dtype(const struct ct_operand *operand, enum ct_dtype dtype)
{
    if (operand->dtype == CT_OPERAND_WIDE)
        return ct_dtype_wide(dtype);
    return operand->dtype == CT_OPERAND_T ? dtype : (enum ct_dtype)operand->dtype;
}

bool ct_op_adds_to(enum ct_op_kind op, int output)
{
    struct ct_operands operands;

    if ((ct_op_info(op)->attributes & (uint32_t)1 << CT_ATTR_accumulate) == 0)
        return false;
    ct_op_operands(op, &operands);
    return output < operands.out_count && operands.out[output].dim[0] != 'M';
}

/* ---- holding operands to it ----------------------------------------------------------------- */

struct check {
    enum ct_op_kind op;
    enum ct_dtype dtype;
    struct ct_error *err;
    int64_t size[128]; /* by letter: the size it stands for, -1 while unbound */
};

static int check_size(struct check *check, const struct ct_operand *operand, int which,
                      int64_t size)
{
    char letter = operand->dim[which];
    int64_t *bound = &check->size[(unsigned char)letter & 127];

    if (isdigit((unsigned char)letter))
        *bound = letter - '0';
    else if (*bound < 0)
        *bound = size;
    if (*bound == size)
        return 0;
    return ct_error_set(check->err, CT_EBUG, "%s: operand %s has %lld for %c, where %lld is needed",
                        ops[check->op].name, operand->name, (long long)size, letter,
                        (long long)*bound);
}

static int check_operand(struct check *check, const struct ct_operand *operand,
                         const struct ct_tensor *tensor)
{
    const char *op = ops[check->op].name;
    enum ct_dtype dtype = ct_operand_dtype(operand, check->dtype);

    if (tensor->data == NULL) {
        if (operand->optional)
            return 0;
        return ct_error_set(check->err, CT_EBUG, "%s: operand %s is missing", op, operand->name);
    }
    if (tensor->dtype != dtype)
        return ct_error_set(check->err, CT_EBUG, "%s: operand %s is %s, not %s", op, operand->name,
                            ct_dtype_name(tensor->dtype), ct_dtype_name(dtype));
    if (operand->dims == 1)
        return check_size(check, operand, 0, ct_shape_elements(tensor->shape));
    if (ct_dtype_is_narrow(dtype) && ct_shape_columns(tensor->shape) > CT_NARROW_MAX_COLUMNS)
        return ct_error_set(check->err, CT_EBUG, "%s: operand %s has rows of %lld, %d of %s fit",
                            op, operand->name, (long long)ct_shape_columns(tensor->shape),
                            CT_NARROW_MAX_COLUMNS, ct_dtype_name(dtype));
    int rc = check_size(check, operand, 0, ct_shape_rows(tensor->shape));
    return rc != 0 ? rc : check_size(check, operand, 1, ct_shape_columns(tensor->shape));
}

/* ---- what no row can say: how sizes and attributes hang together ---------------------------- */

static int check_sequences(enum ct_op_kind op, const struct ct_kernel_args *args, int64_t rows,
                           struct ct_error *err)
{
    uint64_t sequence = args->attr.sequence;

    if (sequence > 0 && sequence <= INT32_MAX && (args->attr.part || rows % (int64_t)sequence == 0))
        return 0;
    return ct_error_set(err, CT_EBUG, "%s: %lld rows are no sequences of %llu", ops[op].name,
                        (long long)rows, (unsigned long long)sequence);
}

static int check_places(enum ct_op_kind op, const struct ct_kernel_args *args,
                        const struct ct_tensor *table, struct ct_error *err)
{
    if (table->data == NULL || (int64_t)args->attr.sequence <= ct_shape_rows(table->shape))
        return 0;
    return ct_error_set(err, CT_EBUG, "%s: %lld places for sequences of %llu", ops[op].name,
                        (long long)ct_shape_rows(table->shape),
                        (unsigned long long)args->attr.sequence);
}

/* q, k and v of equal width, cut into heads. */
static int check_columns(enum ct_op_kind op, const struct ct_kernel_args *args,
                         const struct ct_tensor *qkv, struct ct_error *err)
{
    int64_t columns = ct_shape_columns(qkv->shape), heads = (int64_t)args->attr.heads;
    int64_t size = heads < 1 ? 0 : columns / 3 / heads;

    if (heads < 1 || columns != 3 * size * heads || size < 1 || size > CT_HEAD_MAX_SIZE ||
        (op == CT_OP_ROPE && size % 2 != 0))
        return ct_error_set(err, CT_EBUG, "%s: %lld columns are not q, k and v of %lld heads",
                            ops[op].name, (long long)columns, (long long)heads);
    if (ct_dtype_is_narrow(qkv->dtype) && op != CT_OP_ROPE &&
        args->attr.sequence > (uint64_t)(CT_NARROW_MAX_COLUMNS / size))
        return ct_error_set(err, CT_EBUG, "%s: a head of %llu x %lld elements, %d of %s fit",
                            ops[op].name, (unsigned long long)args->attr.sequence, (long long)size,
                            CT_NARROW_MAX_COLUMNS, ct_dtype_name(qkv->dtype));
    return 0;
}

static int check_heads(enum ct_op_kind op, const struct ct_kernel_args *args,
                       const struct ct_tensor *qkv, struct ct_error *err)
{
    int rc = check_columns(op, args, qkv, err);

    return rc != 0 ? rc : check_sequences(op, args, ct_shape_rows(qkv->shape), err);
}

static int check_cached(const struct ct_kernel_args *args, struct ct_error *err)
{
    const struct ct_tensor *qkv = &args->in[0], *y = &args->out[0], *cache = &args->out[1];
    int64_t width = ct_shape_columns(y->shape);

    if (3 * width != ct_shape_columns(qkv->shape) || 2 * width != ct_shape_columns(cache->shape) ||
        ct_shape_rows(qkv->shape) > ct_shape_rows(cache->shape))
        return ct_error_set(err, CT_EBUG, "attention_cached: y or cache do not fit qkv");
    return check_columns(CT_OP_ATTENTION_CACHED, args, qkv, err);
}

static int check_attention(enum ct_op_kind op, const struct ct_kernel_args *args,
                           const struct ct_tensor *qkv, const struct ct_tensor *y,
                           const struct ct_tensor *lse, struct ct_error *err)
{
    if (3 * ct_shape_columns(y->shape) != ct_shape_columns(qkv->shape) ||
        ct_shape_columns(lse->shape) != (int64_t)args->attr.heads)
        return ct_error_set(err, CT_EBUG, "%s: y or lse do not fit qkv and %llu heads",
                            ops[op].name, (unsigned long long)args->attr.heads);
    return check_heads(op, args, qkv, err);
}

static int64_t windows(int64_t pixels, const struct ct_attr *attr)
{
    int64_t room = pixels + 2 * (int64_t)attr->pad - (int64_t)attr->kernel;

    return room < 0 || attr->stride < 1 ? -1 : room / (int64_t)attr->stride + 1;
}

/* An image, what its windows give, and the elements of the weight (-1: a pool). */
static int check_image(enum ct_op_kind op, const struct ct_kernel_args *args,
                       const struct ct_tensor *x, const struct ct_tensor *y, int64_t weight,
                       struct ct_error *err)
{
    const int64_t *in = x->shape.dim, *out = y->shape.dim, kernel = (int64_t)args->attr.kernel;
    bool fits = x->shape.dims == 4 && y->shape.dims == 4 && in[0] == out[0] && kernel >= 1 &&
                args->attr.pad < args->attr.kernel && windows(in[1], &args->attr) == out[1] &&
                windows(in[2], &args->attr) == out[2];
    char have[96], give[96];

    if (fits && (weight < 0 ? in[3] == out[3] : weight == out[3] * kernel * kernel * in[3]))
        return 0;
    return ct_error_set(err, CT_EBUG, "%s: windows of %lld pixels do not make %s of %s",
                        ops[op].name, (long long)kernel,
                        ct_shape_print(y->shape, give, sizeof give),
                        ct_shape_print(x->shape, have, sizeof have));
}

static int check_swap(const struct ct_kernel_args *args, struct ct_error *err)
{
    uint64_t block = args->attr.rows * args->attr.columns;
    int64_t count = ct_shape_elements(args->in[0].shape);

    if (block > 0 && (uint64_t)count % block == 0)
        return 0;
    return ct_error_set(err, CT_EBUG, "swap: %lld elements are no blocks of %llu", (long long)count,
                        (unsigned long long)block);
}

static int check_images(enum ct_op_kind op, const struct ct_kernel_args *args, struct ct_error *err)
{
    const struct ct_tensor *in = args->in, *out = args->out;

    switch (op) {
    case CT_OP_CONV2D:
        if (in[2].data != NULL && ct_shape_elements(in[2].shape) != ct_shape_columns(out[0].shape))
            return ct_error_set(err, CT_EBUG, "conv2d: the bias does not fit y");
        return check_image(op, args, &in[0], &out[0], ct_shape_elements(in[1].shape), err);
    case CT_OP_CONV2D_DX:
        return check_image(op, args, &out[0], &in[0], ct_shape_elements(in[1].shape), err);
    case CT_OP_CONV2D_DW:
        return check_image(op, args, &in[1], &in[0], ct_shape_elements(out[0].shape), err);
    case CT_OP_MAXPOOL:
    case CT_OP_AVGPOOL:
        return check_image(op, args, &in[0], &out[0], -1, err);
    case CT_OP_MAXPOOL_BW:
        return check_image(op, args, &in[1], &in[2], -1, err);
    case CT_OP_AVGPOOL_BW:
        return check_image(op, args, &out[0], &in[0], -1, err);
    case CT_OP_SWAP:
        return check_swap(args, err);
    default:
        return 0;
    }
}

/* Every label stands for the same number of rows. */
static int check_batch(enum ct_op_kind op, const struct ct_tensor *x,
                       const struct ct_tensor *labels, struct ct_error *err)
{
    int64_t rows = ct_shape_rows(x->shape);
    int64_t count = labels->data == NULL ? 1 : ct_shape_elements(labels->shape);

    if (count == 0 ? rows == 0 : rows % count == 0)
        return 0;
    return ct_error_set(err, CT_EBUG, "%s: %lld labels do not fit %lld rows", ops[op].name,
                        (long long)count, (long long)rows);
}

static int check_attributes(enum ct_op_kind op, const struct ct_kernel_args *args,
                            struct ct_error *err)
{
    const struct ct_tensor *in = args->in, *out = args->out;
    int rc;

    switch (op) {
    case CT_OP_SGD:
        if (args->attr.momentum != 0 && out[1].data == NULL)
            return ct_error_set(err, CT_EBUG, "sgd: momentum needs operand buffer");
        return 0;
    case CT_OP_EMBEDDING:
        rc = check_places(op, args, &in[2], err);
        return rc != 0 || in[2].data == NULL
                   ? rc
                   : check_sequences(op, args, ct_shape_rows(out[0].shape), err);
    case CT_OP_ADD_ROWS:
        rc = check_places(op, args, &in[1], err);
        return rc != 0 ? rc : check_sequences(op, args, ct_shape_rows(in[0].shape), err);
    case CT_OP_EMBEDDING_DP:
        rc = check_places(op, args, &out[0], err);
        return rc != 0 ? rc : check_sequences(op, args, ct_shape_rows(in[0].shape), err);
    case CT_OP_ROPE:
        return in[1].data != NULL ? check_columns(op, args, &in[0], err)
                                  : check_heads(op, args, &in[0], err);
    case CT_OP_ATTENTION_CACHED:
        return check_cached(args, err);
    case CT_OP_ATTENTION:
        return check_attention(op, args, &in[0], &out[0], &out[1], err);
    case CT_OP_BATCH_SUMS:
        return check_batch(op, &in[0], &in[1], err);
    case CT_OP_BATCH_DX:
        return check_batch(op, &in[0], &in[3], err);
    case CT_OP_ATTENTION_BW:
        return check_attention(op, args, &in[1], &in[2], &in[3], err);
    default:
        return check_images(op, args, err);
    }
}

int ct_op_check(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args,
                struct ct_error *err)
{
    struct check check = {.op = op, .dtype = dtype, .err = err};
    struct ct_operands operands;
    int rc = 0;

    ct_op_operands(op, &operands);
    memset(check.size, 0xff, sizeof check.size);
    for (int i = 0; i < CT_OP_MAX_IN && rc == 0; i++) {
        if (i < operands.in_count)
            rc = check_operand(&check, &operands.in[i], &args->in[i]);
        else if (args->in[i].data != NULL)
            rc = ct_error_set(err, CT_EBUG, "%s: takes %d inputs, more are given", ops[op].name,
                              operands.in_count);
    }
    for (int i = 0; i < CT_OP_MAX_OUT && rc == 0; i++) {
        if (i < operands.out_count)
            rc = check_operand(&check, &operands.out[i], &args->out[i]);
        else if (args->out[i].data != NULL)
            rc = ct_error_set(err, CT_EBUG, "%s: gives %d outputs, more are asked for",
                              ops[op].name, operands.out_count);
    }
    return rc == 0 ? check_attributes(op, args, err) : rc;
}

/* ---- ops that stand for several -------------------------------------------------------------- */

static int parts_of_norm_bw(enum ct_op_kind dx, const struct ct_kernel_args *args,
                            struct ct_op_part *parts)
{
    const struct ct_tensor *in = args->in, *out = args->out;
    int count = 0;

    if (out[2].data != NULL)
        parts[count++] = (struct ct_op_part){CT_OP_LINEAR_DB,
                                             {.in = {in[0]}, .out = {out[2]}, .attr = args->attr}};
    parts[count++] = (struct ct_op_part){
        CT_OP_NORM_DG, {.in = {in[0], in[1], in[3]}, .out = {out[1]}, .attr = args->attr}};
    parts[count++] = (struct ct_op_part){dx, {.in = {in[0], in[1], in[2], in[3]}, .out = {out[0]}}};
    return count;
}

static int parts_of_add_norm(enum ct_op_kind norm, const struct ct_kernel_args *args,
                             struct ct_op_part *parts)
{
    const struct ct_tensor *in = args->in, *out = args->out;

    parts[0] = (struct ct_op_part){CT_OP_ADD, {.in = {in[0], in[1]}, .out = {out[0]}}};
    parts[1] = (struct ct_op_part){
        norm, {.in = {out[0], in[2], in[3]}, .out = {out[1], out[2]}, .attr = args->attr}};
    return 2;
}

int ct_op_parts(enum ct_op_kind op, const struct ct_kernel_args *args,
                struct ct_op_part ret_parts[CT_OP_MAX_PARTS])
{
    const struct ct_tensor *in = args->in, *out = args->out;

    switch (op) {
    case CT_OP_LINEAR_GELU:
        ret_parts[0] =
            (struct ct_op_part){CT_OP_LINEAR, {.in = {in[0], in[1], in[2]}, .out = {out[1]}}};
        ret_parts[1] = (struct ct_op_part){CT_OP_GELU_TANH, {.in = {out[1]}, .out = {out[0]}}};
        return 2;
    case CT_OP_LINEAR_DX_GELU:
        ret_parts[0] =
            (struct ct_op_part){CT_OP_LINEAR_DX, {.in = {in[0], in[1]}, .out = {out[0]}}};
        ret_parts[1] =
            (struct ct_op_part){CT_OP_GELU_TANH_BW, {.in = {out[0], in[2]}, .out = {out[0]}}};
        return 2;
    case CT_OP_LAYERNORM_BW:
        return parts_of_norm_bw(CT_OP_LAYERNORM_DX, args, ret_parts);
    case CT_OP_RMSNORM_BW:
        return parts_of_norm_bw(CT_OP_RMSNORM_DX, args, ret_parts);
    case CT_OP_ADD_LAYERNORM:
        return parts_of_add_norm(CT_OP_LAYERNORM, args, ret_parts);
    case CT_OP_ADD_RMSNORM:
        return parts_of_add_norm(CT_OP_RMSNORM, args, ret_parts);
    default:
        return 0;
    }
}
