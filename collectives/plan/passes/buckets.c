/* See passes.h: which gradients are reduced together, and when.
 *
 * Walking the parameters from the last to the first, as backward does, a bucket takes tensors while
 * it stays within its cap; a tensor larger than the cap is a bucket of its own. The first cap is
 * small, so that communication starts early. Where parameters are sharded a bucket is a unit, a
 * layer or block, whatever its size, or what is read in one type of it. Since gradients lie in the
 * same order, a bucket is one slice and is reduced in place. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

/* The layer or block that a parameter belongs to: its name up to the first number, or else without
 * its last word: "h.3" for "h.3.attn.c_attn.weight", "wte" for "wte.weight". */
static size_t unit_length(const char *name)
{
    const char *last = strrchr(name, '.');

    for (const char *at = name; *at != '\0';) {
        size_t word = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (digits == word && word > 0)
            return (size_t)(at - name) + word;
        at += word + (at[word] == '.');
    }
    return last != NULL ? (size_t)(last - name) : strlen(name);
}

bool ct_plan_same_unit(const char *a, const char *b)
{
    size_t length = unit_length(a);

    return length == unit_length(b) && strncmp(a, b, length) == 0;
}

/* The bucket of parameter `i`'s unit that is as wide, among the last ones; NULL: none yet. */
static struct ct_bucket *bucket_of_unit(const struct ct_plan *plan, int i)
{
    for (int k = plan->bucket_count - 1; k >= 0; k--) {
        struct ct_bucket *bucket = &plan->buckets[k];
        if (!ct_plan_same_unit(plan->tensors[i].name, plan->tensors[bucket->last_param].name))
            return NULL;
        if (bucket->wide == plan->tensors[i].wide)
            return bucket;
    }
    return NULL;
}

/* The bucket that parameter `i` still goes into, the last one having `bytes`; NULL: a new one. */
static struct ct_bucket *bucket_for(const struct ct_plan *plan, int i, size_t bytes)
{
    size_t cap =
        plan->bucket_count <= 1 ? plan->options.first_bucket_bytes : plan->options.bucket_bytes;

    if (plan->options.shard >= CT_PLAN_SHARD_GRAD)
        return bucket_of_unit(plan, i);
    bool fits = bytes + ct_plan_align(plan->tensors[i].held_bytes) <= cap;
    return plan->bucket_count > 0 && fits ? &plan->buckets[plan->bucket_count - 1] : NULL;
}

int ct_plan_make_buckets(struct ct_plan *plan, struct ct_error *err)
{
    size_t bytes = 0;

    plan->buckets = ct_arena_array(&plan->memory, (size_t)plan->param_count, sizeof *plan->buckets);
    if (plan->buckets == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a table of buckets");
    for (int i = plan->param_count - 1; i >= 0; i--) {
        if (plan->tensors[i].range < 0)
            continue;
        struct ct_bucket *bucket = bucket_for(plan, i, bytes);
        if (bucket == NULL) {
            bucket = &plan->buckets[plan->bucket_count++];
            *bucket = (struct ct_bucket){.last_param = i, .wide = plan->tensors[i].wide};
            bytes = 0;
        }
        bytes += ct_plan_align(plan->tensors[i].held_bytes);
        bucket->first_param = i;
    }
    return 0;
}

/* The last op that writes into bytes [begin, end) of root `root`. */
static int last_writer(const struct ct_program *program, int root, struct ct_range range)
{
    int last = CT_NONE;

    for (int i = 0; i < program->op_count; i++) {
        for (int k = 0; k < CT_OP_MAX_OUT; k++) {
            int out = program->ops[i].out[k];
            if (out == CT_NONE || program->values[out].root != root)
                continue;
            if (ct_range_overlap(ct_plan_in_root(&program->values[out]), range))
                last = i;
        }
    }
    return last;
}

/* Put the program's last op, which reads `value` or works on it in place, behind the last that
 * writes it. */
static void follow_writer(struct ct_program *program, int value)
{
    const struct ct_value *v = &program->values[value];
    struct ct_program_op *op = &program->ops[program->op_count - 1];
    int out = op->out[0];

    op->out[0] = CT_NONE; /* not to be found itself */
    int last = last_writer(program, v->root, ct_plan_in_root(v));
    CT_ASSERT(last != CT_NONE);
    op->out[0] = out;
    op->micro = program->ops[last].micro;
    ct_program_move_last(program, last + 1);
}

/* Reduce `value` in place over the ranks of `axis`, as soon as it is complete. */
static void insert_reduce(struct ct_program *program, int value, enum ct_axis axis)
{
    struct ct_program_op op = ct_program_op(CT_OP_ALL_REDUCE);

    op.in[0] = op.out[0] = value;
    op.axis = axis;
    program->stage = CT_STAGE_REDUCE;
    if (program->error.code == 0)
        ct_program_emit(program, op);
    if (program->error.code == 0)
        follow_writer(program, value);
}

/* Reduce `value` in place over all ranks, behind all micro-batches: a stage that waited for others
 * before would keep them waiting for its messages. */
static void reduce_last(struct ct_program *program, int value)
{
    struct ct_program_op op = ct_program_op(CT_OP_ALL_REDUCE);
    int at = program->op_count;

    op.in[0] = op.out[0] = value;
    program->stage = CT_STAGE_REDUCE;
    while (at > 0 && program->ops[at - 1].stage == CT_STAGE_UPDATE)
        at--;
    ct_program_emit(program, op);
    ct_program_move_last(program, at);
}

/* Of what all slices have computed alike, the first one's counts. */
static void count_once(struct ct_plan *plan)
{
    struct ct_program *program = &plan->step.program;
    struct ct_program_op scale = ct_program_op(CT_OP_SCALE);
    const struct ct_value *loss = &program->values[plan->step.io.loss];
    const struct ct_value *wishes = &program->values[plan->step.io.wishes];
    int64_t count = (int64_t)(wishes->offset_bytes / sizeof(double));

    int sums = ct_program_view(program, loss->root, 0, CT_F64, ct_shape1(count), "sums");
    scale.in[0] = scale.out[0] = sums;
    scale.attr.alpha = plan->place.slice == 0 ? 1 : 0;
    program->stage = CT_STAGE_REDUCE;
    ct_program_emit(program, scale);
    if (program->error.code == 0)
        follow_writer(program, sums);
}

static int root_of_kind(const struct ct_program *program, enum ct_value_kind kind)
{
    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == kind)
            return i;
    return CT_NONE;
}

int ct_plan_reduce_tensor(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_program *program = &plan->step.program;

    if (plan->mesh.tensor == 1)
        return 0;
    count_once(plan);
    int grads = root_of_kind(program, CT_VALUE_GRAD);
    for (int i = 0; i < plan->param_count && program->error.code == 0; i++) {
        const struct ct_plan_tensor *t = &plan->tensors[i];
        if (plan->sliced[i].partial && t->range >= 0)
            insert_reduce(
                program,
                ct_program_view(program, grads, t->flat_bytes, t->dtype, t->held_shape, t->name),
                CT_AXIS_TENSOR);
    }
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "slices: %s", program->error.text);
}

/* The gradients of bucket `i`. */
static int bucket_view(struct ct_plan *plan, int i)
{
    struct ct_program *program = &plan->step.program;
    const struct ct_bucket *bucket = &plan->buckets[i];
    enum ct_dtype dtype = plan->tensors[0].dtype;
    char name[32];

    (void)snprintf(name, sizeof name, "bucket%d", i);
    return ct_program_view(program, root_of_kind(program, CT_VALUE_GRAD), bucket->offset_bytes,
                           dtype, ct_shape1((int64_t)(bucket->bytes / ct_dtype_size(dtype))), name);
}

/* Each bucket goes to the servers as soon as it is complete. */
static int push_buckets(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_program *program = &plan->step.program;

    for (int i = 0; i < plan->bucket_count && program->error.code == 0; i++) {
        struct ct_program_op op = ct_program_op(CT_OP_PUSH);
        op.in[0] = bucket_view(plan, i);
        program->stage = CT_STAGE_REDUCE;
        if (program->error.code == 0)
            ct_program_emit(program, op);
        if (program->error.code == 0)
            follow_writer(program, op.in[0]);
    }
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "pushes: %s", program->error.text);
}

int ct_plan_reduce(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_program *program = &plan->step.program;

    if (plan->options.served)
        return push_buckets(plan, err);
    if (plan->options.world == 1)
        return 0;
    bool sums =
        plan->shards == 1 && ct_mesh_size(&plan->mesh, CT_AXIS_DATA) > 1 && !plan->options.rooted;
    int loss = program->values[plan->step.io.loss].root;
    if (plan->mesh.stages == 1)
        insert_reduce(program, loss, CT_AXIS_WORLD);
    for (int i = 0; i < plan->bucket_count && sums; i++)
        insert_reduce(program, bucket_view(plan, i), CT_AXIS_DATA);
    if (plan->mesh.stages > 1)
        reduce_last(program, loss);
    if (program->error.code != 0)
        return ct_error_set(err, program->error.code, "buckets: %s", program->error.text);
    return 0;
}
