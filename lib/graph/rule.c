/* See rule.h. The operand strings of tensor/op.def say how sizes hang together; here they are read
 * to make an op's outputs from its inputs, and to count. */
#include "graph/rule.h"

#include "base/assert.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

struct rule {
    double flop;
    const char *symbols;
};

static const struct rule rules[] = {
#define RULE(name, flop, symbols, backward) [CT_OP_##name] = {flop, symbols},
#include "graph/rule.def"
#undef RULE
};

enum {
#define RULE(name, flop, symbols, backward) ROW_##name,
#include "graph/rule.def"
#undef RULE
    ROW_COUNT
};
_Static_assert((int)ROW_COUNT == (int)CT_RULE_COUNT, "rule.def has a row for every op");

static const struct ct_op_info comm_ops[] = {
    {.name = "all_reduce", .operands = "x[n] -> x[n]", .in_place = 0, .updates = true},
    {.name = "reduce_scatter", .operands = "x[n] -> y[m]", .in_place = -1},
    {.name = "all_gather", .operands = "x[m] -> y[n]", .in_place = -1},
    {.name = "rank_sum", .operands = "x[n] -> y[n]", .in_place = 0},
    {.name = "rank_max", .operands = "x[n] -> y[n]", .in_place = 0},
    {.name = "rank_copy", .operands = "x[n] -> y[n]", .in_place = 0},
    {.name = "exchange", .operands = "x[n] -> y[m]", .in_place = -1},
    {.name = "broadcast", .operands = "x[n] -> x[n]", .in_place = 0, .updates = true},
    {.name = "reduce", .operands = "x[n] -> x[n]", .in_place = 0, .updates = true},
    {.name = "scatter", .operands = "x[n] -> y[m]", .in_place = -1},
    {.name = "push", .operands = "x[n] ->", .in_place = -1},
};
_Static_assert(CT_COUNT(comm_ops) == CT_RULE_COUNT - CT_OP_COUNT,
               "a row for every communication op");

const struct ct_op_info *ct_rule_info(int op)
{
    CT_ASSERT(op >= 0 && op < CT_RULE_COUNT);
    return ct_op_is_comm(op) ? &comm_ops[op - CT_OP_COUNT] : ct_op_info((enum ct_op_kind)op);
}

bool ct_rule_accumulates(int op)
{
    return (ct_rule_info(op)->attributes & (uint32_t)1 << CT_ATTR_accumulate) != 0;
}

/* What the letters of an op's operands stand for. */
struct binding {
    int64_t size[128];     /* 0: not bound */
    struct ct_shape shape; /* of the first operand [n], for results of "any shape" */
    enum ct_dtype dtype;   /* T */
    bool has_dtype;
    bool has_wide; /* an operand said what wide is: T unless another one says otherwise */
};

static void bind(struct binding *binding, const struct ct_operand *operand,
                 const struct ct_tensor *tensor)
{
    if (tensor->data == NULL)
        return;
    bool is_t = operand->dtype == CT_OPERAND_T, is_wide = operand->dtype == CT_OPERAND_WIDE;
    if (!binding->has_dtype && (is_t || (is_wide && !binding->has_wide)))
        binding->dtype = tensor->dtype;
    binding->has_dtype |= is_t;
    binding->has_wide |= is_wide;
    if (operand->dims == 1 && binding->size[(unsigned char)operand->dim[0]] == 0) {
        binding->size[(unsigned char)operand->dim[0]] = ct_shape_elements(tensor->shape);
        if (operand->dim[0] == 'n')
            binding->shape = tensor->shape;
    } else if (operand->dims == 2) {
        binding->size[(unsigned char)operand->dim[0]] = ct_shape_rows(tensor->shape);
        binding->size[(unsigned char)operand->dim[1]] = ct_shape_columns(tensor->shape);
    }
}

static void bind_all(int op, const struct ct_kernel_args *args, struct binding *binding,
                     struct ct_operands *operands)
{
    *binding = (struct binding){.dtype = CT_F64}; /* scalars only: their own type */
    ct_op_operands((enum ct_op_kind)op, operands);
    for (int i = 0; i < operands->in_count; i++)
        bind(binding, &operands->in[i], &args->in[i]);
    for (int i = 0; i < operands->out_count; i++)
        bind(binding, &operands->out[i], &args->out[i]);
}

static int64_t size_of(const struct binding *binding, char letter)
{
    return isdigit((unsigned char)letter) ? letter - '0' : binding->size[(unsigned char)letter];
}

/* Give `tensor` the type and shape that `operand` has under `binding`. */
static int complete(int op, const struct binding *binding, const struct ct_operand *operand,
                    struct ct_tensor *tensor, struct ct_error *err)
{
    static const char given; /* stands for memory that has no place yet */

    for (int i = 0; i < operand->dims; i++)
        if (size_of(binding, operand->dim[i]) == 0)
            return ct_error_set(err, CT_EBUG, "%s: the size %c of output %s follows from no input",
                                ct_rule_info(op)->name, operand->dim[i], operand->name);
    tensor->dtype = ct_operand_dtype(operand, binding->dtype);
    if (operand->dims == 2)
        tensor->shape =
            ct_shape2(size_of(binding, operand->dim[0]), size_of(binding, operand->dim[1]));
    else if (operand->dim[0] == 'n')
        tensor->shape = binding->shape;
    else
        tensor->shape = ct_shape1(size_of(binding, operand->dim[0]));
    tensor->data = (void *)(uintptr_t)&given;
    return 0;
}

/* Any inputs and outputs, at least one, of one type. */
static int complete_exchange(struct ct_kernel_args *args, enum ct_dtype *ret_dtype,
                             struct ct_error *err)
{
    const struct ct_tensor *first = NULL;

    for (int i = 0; i < CT_OP_MAX_IN + CT_OP_MAX_OUT; i++) {
        const struct ct_tensor *one =
            i < CT_OP_MAX_IN ? &args->in[i] : &args->out[i - CT_OP_MAX_IN];
        if (one->data == NULL)
            continue;
        first = first == NULL ? one : first;
        if (one->dtype != first->dtype)
            return ct_error_set(err, CT_EBUG, "exchange: messages of one type go together");
    }
    if (first == NULL)
        return ct_error_set(err, CT_EBUG, "exchange: without a message");
    *ret_dtype = first->dtype;
    return 0;
}

static int complete_comm(int op, struct ct_kernel_args *args, enum ct_dtype *ret_dtype,
                         struct ct_error *err)
{
    const struct ct_tensor *in = &args->in[0], *out = &args->out[0];

    if (op == CT_OP_EXCHANGE)
        return complete_exchange(args, ret_dtype, err);
    if (op == CT_OP_SCATTER && in->data == NULL && out->data != NULL) {
        *ret_dtype = out->dtype;
        return 0;
    }
    if (op == CT_OP_PUSH && in->data != NULL && out->data == NULL) {
        *ret_dtype = in->dtype;
        return 0;
    }
    if (op == CT_OP_PUSH)
        return ct_error_set(err, CT_EBUG, "push: takes one input, and gives nothing");
    if (in->data == NULL || out->data == NULL || in->dtype != out->dtype)
        return ct_error_set(err, CT_EBUG, "%s: needs an input and an output of one type",
                            ct_rule_info(op)->name);
    int64_t a = ct_shape_elements(in->shape), b = ct_shape_elements(out->shape);
    bool parts = op == CT_OP_REDUCE_SCATTER || op == CT_OP_SCATTER;
    if (!parts && op != CT_OP_ALL_GATHER && a != b)
        return ct_error_set(err, CT_EBUG, "%s: works in place, input and output must agree",
                            ct_rule_info(op)->name);
    if ((parts && a % b != 0) || (op == CT_OP_ALL_GATHER && b % a != 0))
        return ct_error_set(err, CT_EBUG,
                            "%s: %" PRId64 " elements in and %" PRId64
                            " out, one must be a multiple of the other",
                            ct_rule_info(op)->name, a, b);
    *ret_dtype = in->dtype;
    return 0;
}

int ct_rule_complete(int op, struct ct_kernel_args *args, enum ct_dtype *ret_dtype,
                     struct ct_error *err)
{
    struct ct_operands operands;
    struct binding binding;

    if (ct_op_is_comm(op))
        return complete_comm(op, args, ret_dtype, err);
    bind_all(op, args, &binding, &operands);
    for (int i = 0; i < operands.out_count; i++) {
        if (args->out[i].data != NULL || operands.out[i].optional)
            continue;
        int code = complete(op, &binding, &operands.out[i], &args->out[i], err);
        if (code != 0)
            return code;
    }
    *ret_dtype = binding.dtype;
    return ct_op_check((enum ct_op_kind)op, binding.dtype, args, err);
}

/* Elements of y times elements of a window, for convolutions. */
static int64_t window_products(int op, const struct ct_kernel_args *args,
                               const struct binding *binding)
{
    const struct ct_tensor *y = op == CT_OP_CONV2D ? &args->out[0] : &args->in[0];

    if (op != CT_OP_CONV2D && op != CT_OP_CONV2D_DX && op != CT_OP_CONV2D_DW)
        return 0;
    return binding->size['Y'] / ct_shape_columns(y->shape) * binding->size['F'];
}

double ct_rule_flop(int op, const struct ct_kernel_args *args)
{
    struct ct_operands operands;
    struct binding binding;
    double flop = rules[op].flop;

    if (ct_op_is_comm(op))
        return 0;
    bind_all(op, args, &binding, &operands);
    binding.size['S'] = (int64_t)args->attr.sequence;
    binding.size['w'] = window_products(op, args, &binding);
    for (const char *letter = rules[op].symbols; *letter != 0; letter++)
        flop *= (double)size_of(&binding, *letter);
    return flop;
}
