/* See fuser.h. */
#include "plan/passes/fuse/fuser.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

int ct_fuse_root(const struct ct_fuser *f, int value)
{
    return value == CT_NONE ? CT_NONE : f->program->values[value].root;
}

/* ---- what may move -------------------------------------------------------------------------- */

/* Whether `value` shares bytes with one of `values`. */
static bool overlaps_any(const struct ct_fuser *f, int value, const int *values, int count)
{
    for (int i = 0; i < count && value != CT_NONE; i++) {
        const struct ct_value *a = &f->program->values[value];
        const struct ct_value *b = values[i] == CT_NONE ? NULL : &f->program->values[values[i]];
        if (b != NULL && a->root == b->root &&
            ct_range_overlap(ct_plan_in_root(a), ct_plan_in_root(b)))
            return true;
    }
    return false;
}

/* Whether `op` writes what `other` reads or gives. */
static bool overwrites(const struct ct_fuser *f, const struct ct_program_op *op,
                       const struct ct_program_op *other)
{
    for (int k = 0; k < CT_OP_MAX_OUT; k++)
        if (overlaps_any(f, op->out[k], other->in, CT_OP_MAX_IN) ||
            overlaps_any(f, op->out[k], other->out, CT_OP_MAX_OUT))
            return true;
    return false;
}

bool ct_fuse_may_move(const struct ct_fuser *f, int op, int place)
{
    const struct ct_program_op *a = &f->ops[CT_MIN(op, place)], *b = &f->ops[CT_MAX(op, place)];

    if (a->stage != b->stage || a->micro != b->micro || overwrites(f, b, a))
        return false;
    for (int i = CT_MIN(op, place) + 1; i < CT_MAX(op, place); i++)
        if (overwrites(f, &f->ops[i], &f->ops[op]) || overwrites(f, &f->ops[op], &f->ops[i]))
            return false;
    return true;
}

/* ---- finding -------------------------------------------------------------------------------- */

void ct_fuse_add_group(struct ct_fuser *f, struct ct_fuse_group group)
{
    for (int k = 0; k < CT_FUSE_ROLES; k++) {
        if (group.ops[k] == CT_NONE)
            continue;
        CT_ASSERT(f->group_of[group.ops[k]] == CT_NONE);
        f->group_of[group.ops[k]] = f->group_count;
    }
    f->groups[f->group_count++] = group;
}

static void find(struct ct_fuser *f, const struct ct_fuse_pass *pass)
{
    for (int i = 0; i < f->program->value_count; i++)
        f->writer[i] = CT_NONE;
    for (int i = 0; i < f->op_count; i++) {
        f->group_of[i] = CT_NONE;
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (f->ops[i].in[k] != CT_NONE)
                f->reads[ct_fuse_root(f, f->ops[i].in[k])]++;
    }
    if (pass->begin != NULL)
        pass->begin(f);
    for (int i = 0; i < f->op_count; i++) {
        pass->match(f, i);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (f->ops[i].out[k] != CT_NONE)
                f->writer[ct_fuse_root(f, f->ops[i].out[k])] = i;
    }
}

/* ---- rewriting ------------------------------------------------------------------------------ */

/* There is room: no group becomes more ops than it had. */
static void rewrite(struct ct_fuser *f, const struct ct_fuse_pass *pass)
{
    f->program->op_count = 0;
    for (int i = 0; i < f->op_count; i++) {
        const struct ct_fuse_group *group =
            f->group_of[i] == CT_NONE ? NULL : &f->groups[f->group_of[i]];
        if (group == NULL) {
            f->program->ops[f->program->op_count++] = f->ops[i];
        } else if (group->place == i) {
            f->program->stage = f->ops[i].stage;
            f->program->micro = f->ops[i].micro;
            pass->emit(f, group);
        }
    }
    CT_ASSERT(f->program->op_count <= f->op_count);
}

int ct_fuse_run(const struct ct_fuse_pass *pass, struct ct_plan_list *list, struct ct_error *err)
{
    struct ct_program *program = &list->program;
    size_t values = (size_t)program->value_count, count = (size_t)program->op_count;
    struct ct_fuser f = {.program = program,
                         .op_count = program->op_count,
                         .ops = malloc(count * sizeof *f.ops),
                         .reads = calloc(values, sizeof *f.reads),
                         .writer = malloc(values * sizeof *f.writer),
                         .note = calloc(values, sizeof *f.note),
                         .groups = malloc(count * sizeof *f.groups),
                         .group_of = malloc(count * sizeof *f.group_of)};
    int code = CT_ENOMEM;

    if (f.ops != NULL && f.reads != NULL && f.writer != NULL && f.note != NULL &&
        f.groups != NULL && f.group_of != NULL) {
        memcpy(f.ops, program->ops, count * sizeof *f.ops);
        find(&f, pass);
        rewrite(&f, pass);
        code = program->error.code;
    }
    free(f.ops);
    free(f.reads);
    free(f.writer);
    free(f.note);
    free(f.groups);
    free(f.group_of);
    return code == 0 ? 0
                     : ct_error_set(err, code, "fuse: %s",
                                    program->error.code != 0 ? program->error.text : "no memory");
}
