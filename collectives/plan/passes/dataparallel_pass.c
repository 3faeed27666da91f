/* See passes.h: DataParallel, one rank that has everything and replicas that help it.
 *
 *     rank 0      params -> broadcast ->|              |-> reduce -> sumsq, optimizer -> params
 *                 batch  -> scatter  -->| forward      |
 *     replicas              params, x <-| and backward |-> grads
 *
 * A step begins with rank 0's parameters and its batch, of which each rank gets its rows, and ends
 * at rank 0, where the gradients are summed and the optimizer's state is. All that goes through one
 * rank: what DDP is measured against.
 *
 * The list is copied with the same numbers of values, so nothing that refers to them changes. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

struct rooter {
    const struct ct_plan *plan;
    const struct ct_program *from;
    struct ct_program *to;
    struct ct_plan_io *io;
    bool root; /* this rank is rank 0 */
};

/* What becomes of a root: a batch comes by message, and replicas have neither moments nor norm. */
static enum ct_value_kind kind_of(const struct rooter *r, int value)
{
    enum ct_value_kind kind = r->from->values[value].kind;
    bool batch = value == r->io->x || value == r->io->labels;

    return batch || (!r->root && (kind == CT_VALUE_STATE || value == r->io->sumsq)) ? CT_VALUE_TEMP
                                                                                    : kind;
}

static void copy_values(struct rooter *r)
{
    for (int i = 0; i < r->from->value_count; i++) {
        const struct ct_value *v = &r->from->values[i];
        int copy =
            v->root == i
                ? ct_program_value(r->to, kind_of(r, i), v->dtype, v->shape, v->name)
                : ct_program_view(r->to, v->root, v->offset_bytes, v->dtype, v->shape, v->name);
        CT_ASSERT(copy == i || r->to->error.code != 0);
    }
}

static void emit(struct rooter *r, int kind, int in, int out)
{
    struct ct_program_op op = ct_program_op(kind);

    op.axis = CT_AXIS_DATA;
    op.in[0] = in;
    op.out[0] = out;
    ct_program_emit(r->to, op);
}

/* `*io` becomes the whole batch on rank 0 and nothing elsewhere; its rows go where it was. */
static void scatter(struct rooter *r, int *io)
{
    const struct ct_value *rows = &r->from->values[*io];
    struct ct_shape all = rows->shape;
    int own = *io;

    all.dim[0] *= r->plan->options.world;
    *io = r->root ? ct_program_value(r->to, CT_VALUE_INPUT, rows->dtype, all, rows->name) : CT_NONE;
    emit(r, CT_OP_SCATTER, *io, own);
}

static int root_of_kind(const struct ct_program *program, enum ct_value_kind kind)
{
    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == kind)
            return i;
    return CT_NONE;
}

static void copy_ops(struct rooter *r)
{
    int grads = root_of_kind(r->to, CT_VALUE_GRAD), params = root_of_kind(r->to, CT_VALUE_PARAM);
    bool reduced = false;

    r->to->stage = CT_STAGE_FORWARD;
    emit(r, CT_OP_BROADCAST, params, params);
    scatter(r, &r->io->x);
    scatter(r, &r->io->labels);
    for (int i = 0; i < r->from->op_count && r->to->error.code == 0; i++) {
        const struct ct_program_op *op = &r->from->ops[i];
        bool update = op->stage == CT_STAGE_UPDATE;
        if (update && !reduced) {
            r->to->stage = CT_STAGE_REDUCE;
            emit(r, CT_OP_REDUCE, grads, grads);
            reduced = true;
        }
        r->to->stage = op->stage;
        r->to->micro = op->micro;
        if (r->root || !update)
            ct_program_emit(r->to, *op);
    }
}

/* A replica's state is the parameters. */
static void drop_moments(struct ct_plan *plan)
{
    plan->tensor_count -= plan->learned_count * plan->moment_count;
    plan->moment_count = 0;
    plan->state_bytes = ct_plan_range_offset(plan, 1);
    plan->grads_bytes = plan->state_bytes + plan->flat_bytes;
}

int ct_plan_data_parallel(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_plan_list *list = &plan->step;
    struct ct_program rooted;
    struct rooter r = {.plan = plan,
                       .from = &list->program,
                       .to = &rooted,
                       .io = &list->io,
                       .root = plan->options.rank == 0};

    if (!plan->options.rooted || plan->options.world == 1)
        return 0;
    ct_program_init(&rooted);
    copy_values(&r);
    copy_ops(&r);
    if (rooted.error.code != 0) {
        int code = ct_error_set(err, rooted.error.code, "root: %s", rooted.error.text);
        ct_program_deinit(&rooted);
        return code;
    }
    ct_program_deinit(&list->program);
    list->program = rooted;
    if (!r.root) {
        list->io.sumsq = CT_NONE;
        drop_moments(plan);
    }
    return 0;
}
