/* Cutting models into the parts of a pipeline. */
#include "base/assert.h"
#include "collectives/plan/passes/passes.h"
#include "collectives/plan/passes/stage_split.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(stage_split, .timeout = 20);

enum { ARENA_BYTES = 1 << 24, MAX_PARTS = 16 };

static const int64_t hidden[] = {9, 9, 9, 9, 9};

static const struct ct_model_spec mlp = {.input = 9,
                                         .hidden = hidden,
                                         .hidden_count = 5,
                                         .classes = 9,
                                         .activation = CT_ACT_RELU,
                                         .loss = CT_LOSS_CROSS_ENTROPY,
                                         .dtype = CT_F32};

static struct ct_model_spec gpt(bool untied, double dropout)
{
    return (struct ct_model_spec){.type = CT_MODEL_GPT,
                                  .dtype = CT_F32,
                                  .gpt = {.vocabulary = 11,
                                          .context = 8,
                                          .layers = 4,
                                          .heads = 2,
                                          .width = 12,
                                          .untied = untied,
                                          .dropout = dropout}};
}

/* A model, cut. */
struct rig {
    struct ct_arena arena;
    struct ct_model model;
    struct ct_stage_split split;
};

static void rig_init(struct rig *rig, const struct ct_model_spec *spec, int parts)
{
    struct ct_error err = {0};

    ct_arena_init(&rig->arena, ARENA_BYTES);
    cr_assert_eq(ct_model_build(&rig->model, spec, 3, &err), 0, "%s", err.text);
    cr_assert_eq(ct_stage_split_choose(&rig->split, &rig->model, parts, &rig->arena, &err), 0, "%s",
                 err.text);
    cr_assert_eq(ct_stage_split_assign(&rig->split, &rig->model, &rig->arena, &err), 0, "%s",
                 err.text);
}

static void rig_deinit(struct rig *rig)
{
    ct_model_deinit(&rig->model);
    ct_arena_deinit(&rig->arena);
}

static int param_called(const struct ct_model *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++)
        if (strcmp(model->program.values[model->params[i].value].name, name) == 0)
            return i;
    cr_assert_fail("no parameter is called %s", name);
    return -1;
}

static struct ct_stage_holders holders_of(const struct rig *rig, const char *name)
{
    return rig->split.holders[rig->model.params[param_called(&rig->model, name)].value];
}

static void assert_held(const struct rig *rig, const char *name, int first, int last)
{
    struct ct_stage_holders holders = holders_of(rig, name);

    cr_assert(holders.first == first && holders.last == last, "%s is held by %d and %d", name,
              holders.first, holders.last);
}

/* ---- where ---------------------------------------------------------------------------------- */

Test(stage_split, equal_layers_make_equal_parts)
{
    struct rig rig;

    rig_init(&rig, &mlp, 3);
    assert_held(&rig, "layers.0.weight", 0, 0);
    assert_held(&rig, "layers.1.bias", 0, 0);
    assert_held(&rig, "layers.2.weight", 1, 1);
    assert_held(&rig, "layers.3.weight", 1, 1);
    assert_held(&rig, "layers.4.weight", 2, 2);
    assert_held(&rig, "layers.5.bias", 2, 2);
    rig_deinit(&rig);
}

Test(stage_split, an_expensive_layer_has_a_part_to_itself)
{
    static const int64_t widths[] = {4, 4, 512, 4, 4};
    struct ct_model_spec spec = mlp;
    struct rig rig;

    spec.hidden = widths;
    rig_init(&rig, &spec, 3);
    /* Layers 2 (4 -> 512) and 3 (512 -> 4) cost the same, far more than the rest together. */
    cr_assert_neq(holders_of(&rig, "layers.2.weight").first,
                  holders_of(&rig, "layers.3.weight").first);
    rig_deinit(&rig);
}

Test(stage_split, blocks_are_not_cut_through)
{
    struct ct_model_spec spec = gpt(true, 0.1);

    for (int parts = 2; parts <= 6; parts++) {
        struct rig rig;
        rig_init(&rig, &spec, parts);
        for (int i = 1; i < rig.model.param_count; i++) {
            const struct ct_value *values = rig.model.program.values;
            int a = rig.model.params[i - 1].value, b = rig.model.params[i].value;
            if (ct_plan_same_unit(values[a].name, values[b].name))
                cr_assert_eq(rig.split.holders[a].first, rig.split.holders[b].first, "%s and %s",
                             values[a].name, values[b].name);
        }
        rig_deinit(&rig);
    }
}

Test(stage_split, one_activation_crosses_in_either_direction)
{
    for (int tied = 0; tied <= 1; tied++)
        for (int parts = 2; parts <= 7; parts++) {
            struct ct_model_spec spec = gpt(tied == 0, 0.1);
            struct rig rig;
            rig_init(&rig, &spec, parts);
            const struct ct_value *values = rig.model.program.values;
            for (int c = 1; c < parts; c++) {
                int ahead = rig.split.carried[c], back = rig.split.carried_back[c];
                cr_assert(ahead != CT_NONE && back != CT_NONE);
                cr_assert_eq(values[ahead].bytes, 3 * 8 * 12 * sizeof(float));
                cr_assert_eq(values[back].bytes, values[ahead].bytes);
            }
            rig_deinit(&rig);
        }
}

Test(stage_split, backward_ops_go_from_the_last_part_to_the_first)
{
    for (int parts = 2; parts <= 7; parts++) {
        struct ct_model_spec spec = gpt(false, 0.1);
        struct rig rig;
        rig_init(&rig, &spec, parts);
        for (int i = rig.model.forward_count + 1; i < rig.model.program.op_count; i++)
            cr_assert_leq(rig.split.part_of[i], rig.split.part_of[i - 1]);
        rig_deinit(&rig);
    }
}

/* ---- what is shared -------------------------------------------------------------------------- */

Test(stage_split, a_tied_embedding_is_held_by_the_first_and_the_last_part)
{
    struct ct_model_spec tied = gpt(false, 0), untied = gpt(true, 0);
    struct rig rig;

    rig_init(&rig, &tied, 3);
    assert_held(&rig, "wte.weight", 0, 2);
    assert_held(&rig, "wpe.weight", 0, 0);
    rig_deinit(&rig);
    rig_init(&rig, &untied, 3);
    assert_held(&rig, "wte.weight", 0, 0);
    assert_held(&rig, "lm_head.weight", 2, 2);
    rig_deinit(&rig);
}

Test(stage_split, each_copy_of_a_tied_gradient_begins_anew)
{
    struct ct_model_spec spec = gpt(false, 0);

    for (int stage = 0; stage < 3; stage++) {
        struct rig rig;
        int writers = 0;
        rig_init(&rig, &spec, 3);
        int grad = rig.model.params[param_called(&rig.model, "wte.weight")].grad;
        ct_stage_split_keep(&rig.split, &rig.model, stage, 3);
        for (int i = 0; i < rig.model.program.op_count; i++) {
            const struct ct_program_op *op = &rig.model.program.ops[i];
            if (op->out[0] != grad)
                continue;
            writers++;
            cr_assert_eq(op->kind, stage == 0 ? CT_OP_EMBEDDING_DW : CT_OP_LINEAR_DW);
            cr_assert_not(op->attr.accumulate);
        }
        cr_assert_eq(writers, stage == 1 ? 0 : 1);
        rig_deinit(&rig);
    }
}

Test(stage_split, the_stages_share_out_all_ops)
{
    struct ct_model_spec spec = gpt(false, 0.1);
    int total = 0, all = 0, forward = 0, all_forward = 0;

    for (int stage = 0; stage < 2; stage++) {
        struct rig rig;
        rig_init(&rig, &spec, 4);
        all = rig.model.program.op_count;
        all_forward = rig.model.forward_count;
        ct_stage_split_keep(&rig.split, &rig.model, stage, 2);
        total += rig.model.program.op_count;
        forward += rig.model.forward_count;
        for (int i = 0; i < rig.model.program.op_count; i++)
            cr_assert_eq(rig.split.part_of[i] % 2, stage);
        rig_deinit(&rig);
    }
    cr_assert_eq(total, all);
    cr_assert_eq(forward, all_forward);
}

static bool freezes_the_front(const void *names, const char *name)
{
    (void)names;
    return strcmp(name, "layers.0.weight") == 0 || strcmp(name, "layers.0.bias") == 0 ||
           strcmp(name, "layers.1.weight") == 0 || strcmp(name, "layers.1.bias") == 0;
}

Test(stage_split, nothing_goes_back_to_parts_that_do_not_learn)
{
    struct ct_model_spec spec = mlp;
    struct rig rig;

    spec.frozen = freezes_the_front;
    rig_init(&rig, &spec, 3);
    cr_assert_eq(rig.split.carried_back[1], CT_NONE);
    cr_assert_neq(rig.split.carried_back[2], CT_NONE);
    rig_deinit(&rig);
}

Test(stage_split, an_evaluation_is_cut_where_the_training_is)
{
    struct ct_model_spec spec = gpt(false, 0.1), eval_spec = spec;
    struct ct_model eval;
    struct ct_error err = {0};
    struct ct_stage_split like;
    struct rig rig;

    eval_spec.evaluation = true;
    for (int parts = 2; parts <= 7; parts++) {
        rig_init(&rig, &spec, parts);
        cr_assert_eq(ct_model_build(&eval, &eval_spec, 5, &err), 0, "%s", err.text);
        cr_assert_eq(ct_stage_split_like(&like, &eval, &rig.split, &rig.arena, &err), 0, "%s",
                     err.text);
        cr_assert_eq(ct_stage_split_assign(&like, &eval, &rig.arena, &err), 0, "%s", err.text);
        for (int i = 0; i < eval.param_count; i++) {
            struct ct_stage_holders a = rig.split.holders[rig.model.params[i].value];
            struct ct_stage_holders b = like.holders[eval.params[i].value];
            cr_assert(a.first == b.first && a.last == b.last);
        }
        ct_model_deinit(&eval);
        rig_deinit(&rig);
    }
}

/* ---- what cannot be ------------------------------------------------------------------------- */

Test(stage_split, more_parts_than_layers_get_a_sentence)
{
    struct ct_error err = {0};
    struct ct_arena arena;
    struct ct_model model;
    struct ct_stage_split split;

    ct_arena_init(&arena, ARENA_BYTES);
    cr_assert_eq(ct_model_build(&model, &mlp, 3, &err), 0);
    cr_assert_eq(ct_stage_split_choose(&split, &model, 6, &arena, &err), 0, "%s", err.text);
    cr_assert_eq(ct_stage_split_choose(&split, &model, 7, &arena, &err), CT_ECONFIG);
    cr_assert_str_eq(err.text,
                     "the pipeline wants 7 parts of the model (parallel.pipeline times "
                     "parallel.chunks), which can be cut into 6 at most, between its layers or "
                     "blocks");
    ct_model_deinit(&model);
    ct_arena_deinit(&arena);
}
