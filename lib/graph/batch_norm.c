/* See builder.h: batch norm.
 *
 *     training     x -> batch_sums -> [batch_total] -> batch_stats -> batch_norm -> y
 *                             `-> batch_run -> what the running statistics take
 *     evaluation   running mean, variance -> running_stats -> batch_norm -> y */
#include "graph/builder.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 120 };

/* Room for one more element of `size` bytes in a table of the program's arena. */
static bool reserve(struct ct_builder *b, void **table, int *room, int count, size_t size)
{
    int more = CT_MAX(2 * *room, 8);

    if (count < *room)
        return true;
    void *grown = ct_arena_array(&b->program->arena, (size_t)more, size);
    if (grown == NULL) {
        ct_error_set(&b->program->error, CT_ENOMEM, "no memory for %d buffers", more);
        return false;
    }
    if (count > 0)
        memcpy(grown, *table, (size_t)count * size);
    *table = grown;
    *room = more;
    return true;
}

/* The number of the new buffer. */
static int add_buffer(struct ct_builder *b, const char *name, const char *part, int64_t count,
                      double first)
{
    struct ct_model *model = b->model;
    char full[MAX_NAME];

    if (!reserve(b, (void **)&model->buffers, &model->buffer_room, model->buffer_count,
                 sizeof *model->buffers))
        return CT_NONE;
    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    model->buffers[model->buffer_count] = (struct ct_model_buffer){
        ct_program_value(b->program, CT_VALUE_BUFFER, b->dtype, ct_shape1(count), full), first};
    return model->buffer_count++;
}

static int param(struct ct_builder *b, const char *name, const char *part, int64_t count,
                 double first)
{
    char full[MAX_NAME];

    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    return ct_build_param(b, full, ct_shape1(count), (struct ct_init){CT_INIT_CONSTANT, first});
}

/* mean and 1 / sqrt(variance + eps) from the result of an op that reads `in0` and `in1`. */
static int stats(struct ct_builder *b, int kind, int in0, int in1, int64_t columns, double eps)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = in0;
    op.in[1] = in1;
    op.out[0] =
        ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, ct_shape2(2, columns), "stats");
    op.attr.eps = eps;
    return ct_program_emit(b->program, op);
}

/* The statistics of the batch; the model remembers what they add to the running ones. */
static int of_batch(struct ct_builder *b, int x, int mean, int var, struct ct_batch_norm norm)
{
    struct ct_model *model = b->model;
    int64_t columns = ct_shape_columns(b->program->values[x].shape);
    struct ct_program_op run = ct_program_op(CT_OP_BATCH_RUN);

    if (!reserve(b, (void **)&model->stats, &model->stat_room, model->stat_count,
                 sizeof *model->stats))
        return CT_NONE;
    int sums = ct_build_op(b, CT_OP_BATCH_SUMS, x, ct_build_labels(b, b->rows), CT_NONE);
    if (norm.sync)
        sums = ct_build_op(b, CT_OP_BATCH_TOTAL, sums, CT_NONE, CT_NONE);
    run.in[0] = sums;
    run.out[0] =
        ct_program_value(b->program, CT_VALUE_OUTPUT, CT_F64, ct_shape2(3, columns), "run");
    ct_program_emit(b->program, run);
    model->stats[model->stat_count++] =
        (struct ct_model_stat){run.out[0], mean, var, norm.momentum};
    return stats(b, CT_OP_BATCH_STATS, sums, CT_NONE, columns, norm.eps);
}

int ct_build_batch_norm(struct ct_builder *b, const char *name, int x, struct ct_batch_norm norm)
{
    struct ct_program_op op = ct_program_op(CT_OP_BATCH_NORM);

    if (!ct_build_ok(b))
        return CT_NONE;
    int64_t columns = ct_shape_columns(b->program->values[x].shape);
    norm.eps = norm.eps == 0 ? 1e-5 : norm.eps;
    norm.momentum = norm.momentum == 0 ? 0.1 : norm.momentum;
    op.in[0] = x;
    op.in[2] = param(b, name, "weight", columns, 1);
    op.in[3] = param(b, name, "bias", columns, 0);
    int mean = add_buffer(b, name, "running_mean", columns, 0);
    int var = add_buffer(b, name, "running_var", columns, 1);
    if (!ct_build_ok(b))
        return CT_NONE;
    if (b->evaluation)
        op.in[1] = stats(b, CT_OP_RUNNING_STATS, b->model->buffers[mean].value,
                         b->model->buffers[var].value, columns, norm.eps);
    else
        op.in[1] = of_batch(b, x, mean, var, norm);
    if (!ct_build_ok(b))
        return CT_NONE;
    op.out[0] = ct_program_value(b->program, CT_VALUE_TEMP, b->dtype, b->program->values[x].shape,
                                 "batch_norm");
    return ct_program_emit(b->program, op);
}
