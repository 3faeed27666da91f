/* See program.h: values, ops, hash. */
#include "graph/program.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <stdlib.h>
#include <string.h>

/* Names and tables of a program: above this it is not a program but a mistake. */
#define ARENA_LIMIT_BYTES ((size_t)1 << 31)

void ct_program_init(struct ct_program *program)
{
    *program = (struct ct_program){0};
    ct_arena_init(&program->arena, ARENA_LIMIT_BYTES);
}

void ct_program_deinit(struct ct_program *program)
{
    if (program == NULL)
        return;
    free(program->values);
    free(program->ops);
    ct_arena_deinit(&program->arena);
    *program = (struct ct_program){0};
}

/* Make room for one more of `count` elements of `size` bytes in `*array`. */
static bool reserve(struct ct_program *program, void **array, int *room, int count, size_t size)
{
    if (count < *room)
        return true;
    int more = *room == 0 ? 64 : *room * 2;
    void *grown = more > CT_PROGRAM_MAX_VALUES ? NULL : reallocarray(*array, (size_t)more, size);
    if (grown == NULL) {
        ct_error_set(&program->error, CT_ENOMEM, "a program of more than %d values or ops", count);
        return false;
    }
    *array = grown;
    *room = more;
    return true;
}

static int add_value(struct ct_program *program, struct ct_value value, const char *name)
{
    if (program->error.code != 0)
        return CT_NONE;
    value.name = ct_arena_strdup(&program->arena, name);
    if (value.name == NULL) {
        ct_error_set(&program->error, CT_ENOMEM, "no memory for the value '%s'", name);
        return CT_NONE;
    }
    if (!reserve(program, (void **)&program->values, &program->value_room, program->value_count,
                 sizeof *program->values))
        return CT_NONE;
    value.bytes = (size_t)ct_shape_elements(value.shape) * ct_dtype_size(value.dtype);
    if (value.root == CT_NONE)
        value.root = program->value_count;
    program->values[program->value_count] = value;
    return program->value_count++;
}

int ct_program_value(struct ct_program *program, enum ct_value_kind kind, enum ct_dtype dtype,
                     struct ct_shape shape, const char *name)
{
    struct ct_value value = {.kind = kind, .dtype = dtype, .shape = shape, .root = CT_NONE};

    return add_value(program, value, name);
}

int ct_program_view(struct ct_program *program, int of, size_t offset_bytes, enum ct_dtype dtype,
                    struct ct_shape shape, const char *name)
{
    if (program->error.code != 0)
        return CT_NONE;
    CT_ASSERT(of >= 0 && of < program->value_count);
    const struct ct_value *base = &program->values[of];
    size_t bytes = (size_t)ct_shape_elements(shape) * ct_dtype_size(dtype);
    if (offset_bytes > base->bytes || bytes > base->bytes - offset_bytes) {
        ct_error_set(&program->error, CT_EBUG,
                     "view '%s' of %zu bytes at %zu does not fit into '%s' of %zu bytes", name,
                     bytes, offset_bytes, base->name, base->bytes);
        return CT_NONE;
    }
    struct ct_value value = {.kind = base->kind,
                             .dtype = dtype,
                             .shape = shape,
                             .root = base->root,
                             .offset_bytes = base->offset_bytes + offset_bytes};
    return add_value(program, value, name);
}

struct ct_program_op ct_program_op(int kind)
{
    struct ct_program_op op = {.kind = kind};

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        op.in[i] = CT_NONE;
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        op.out[i] = CT_NONE;
    return op;
}

/* The operands as rules see them; memory is told apart from absence by any pointer. */
static struct ct_tensor operand(const struct ct_program *program, int value)
{
    if (value == CT_NONE)
        return (struct ct_tensor){0};
    CT_ASSERT(value >= 0 && value < program->value_count);
    const struct ct_value *v = &program->values[value];
    return (struct ct_tensor){v->dtype, v->shape, (void *)(uintptr_t)v};
}

static struct ct_kernel_args operands(const struct ct_program *program,
                                      const struct ct_program_op *op)
{
    struct ct_kernel_args args = {.attr = op->attr};

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        args.in[i] = operand(program, op->in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        args.out[i] = operand(program, op->out[i]);
    return args;
}

int ct_program_emit(struct ct_program *program, struct ct_program_op op)
{
    if (program->error.code != 0)
        return CT_NONE;
    struct ct_kernel_args args = operands(program, &op);
    if (ct_rule_complete(op.kind, &args, &op.dtype, &program->error) != 0)
        return CT_NONE;
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (op.out[i] == CT_NONE && args.out[i].data != NULL)
            op.out[i] = ct_program_value(program, CT_VALUE_TEMP, args.out[i].dtype,
                                         args.out[i].shape, ct_rule_info(op.kind)->name);
    op.stage = program->stage;
    op.micro = program->micro;
    if (program->error.code != 0 || !reserve(program, (void **)&program->ops, &program->op_room,
                                             program->op_count, sizeof *program->ops))
        return CT_NONE;
    program->ops[program->op_count++] = op;
    return op.out[0];
}

void ct_program_move_last(struct ct_program *program, int at)
{
    if (program->error.code != 0)
        return;
    CT_ASSERT(at >= 0 && at < program->op_count);
    struct ct_program_op last = program->ops[program->op_count - 1];
    memmove(&program->ops[at + 1], &program->ops[at],
            (size_t)(program->op_count - 1 - at) * sizeof *program->ops);
    program->ops[at] = last;
}

bool ct_program_op_updates(const struct ct_program_op *op)
{
    return ct_rule_info(op->kind)->updates || op->attr.accumulate;
}

bool ct_program_op_reads_out(const struct ct_program_op *op, int output)
{
    return ct_rule_info(op->kind)->updates ||
           (op->attr.accumulate && ct_op_adds_to((enum ct_op_kind)op->kind, output));
}

struct ct_cost ct_program_cost(const struct ct_program *program, const struct ct_program_op *op)
{
    struct ct_kernel_args args = operands(program, op);
    struct ct_cost cost = {.flop = ct_rule_flop(op->kind, &args)};

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        if (op->in[i] != CT_NONE)
            cost.bytes += (double)program->values[op->in[i]].bytes;
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (op->out[i] != CT_NONE)
            cost.bytes += (ct_program_op_reads_out(op, i) ? 2 : 1) *
                          (double)program->values[op->out[i]].bytes;
    return cost;
}

static uint64_t hash_u64(uint64_t hash, uint64_t value)
{
    return ct_hash64(&value, sizeof value, hash);
}

static uint64_t hash_attr(uint64_t hash, const struct ct_program_op *op)
{
    const struct ct_op_info *info = ct_rule_info(op->kind);
    static const size_t size[] = {[CT_ATTR_TYPE_bool] = sizeof(bool),
                                  [CT_ATTR_TYPE_double] = sizeof(double),
                                  [CT_ATTR_TYPE_uint64_t] = sizeof(uint64_t)};

    for (int id = 0; id < CT_ATTR_COUNT; id++) {
        if ((info->attributes & (uint32_t)1 << id) == 0)
            continue;
        const struct ct_attr_info *attr = ct_attr_info((enum ct_attr_id)id);
        hash = ct_hash64((const char *)&op->attr + attr->offset, size[attr->type], hash);
    }
    return hash;
}

uint64_t ct_program_hash(const struct ct_program *program)
{
    uint64_t hash = 0;

    for (int i = 0; i < program->value_count; i++) {
        const struct ct_value *v = &program->values[i];
        hash = hash_u64(hash, (uint64_t)v->kind << 32 | (uint64_t)v->dtype << 8 |
                                  (uint64_t)v->shape.dims);
        for (int d = 0; d < v->shape.dims; d++)
            hash = hash_u64(hash, (uint64_t)v->shape.dim[d]);
        hash = hash_u64(hash_u64(hash, (uint64_t)v->root), v->offset_bytes);
    }
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        hash = hash_u64(hash,
                        (uint64_t)op->kind << 32 | (uint64_t)op->axis << 16 | (uint64_t)op->stage);
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            hash = hash_u64(hash, (uint64_t)op->in[k]);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            hash = hash_u64(hash, (uint64_t)op->out[k]);
        for (int k = 0; k < CT_OP_MAX_IN && op->kind == CT_OP_EXCHANGE; k++)
            hash = hash_u64(hash, (uint64_t)op->to[k]);
        for (int k = 0; k < CT_OP_MAX_OUT && op->kind == CT_OP_EXCHANGE; k++)
            hash = hash_u64(hash, (uint64_t)op->from[k]);
        hash = hash_attr(hash, op);
    }
    return hash;
}
