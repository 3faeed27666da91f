/* See fixture.h. */
#include "tests/unit/exec/fixture.h"
#include "tests/unit/exec/far.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "collectives/plan/tensor_extents.h"
#include "digest.h"
#include "job/thread_world.h"
#include "tensor/plugin.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t two_hidden[] = {9, 7};

struct run run_default(void)
{
    return (struct run){
        .spec = {.input = 6,
                 .hidden = two_hidden,
                 .hidden_count = 2,
                 .classes = 4,
                 .activation = CT_ACT_RELU,
                 .loss = CT_LOSS_CROSS_ENTROPY,
                 .dtype = CT_F32},
        .options = {.world = 1,
                    .micro_rows = 6,
                    .accumulation = 4,
                    .bucket_bytes = 512,
                    .first_bucket_bytes = 128,
                    .overlap = true,
                    .reduce = CT_PLAN_INVARIANT,
                    .optim = {.type = CT_OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-3}},
        .seed = 5,
        .lr = 0.1,
        .steps = 4,
    };
}

struct run run_gpt(int layers, int width)
{
    struct run run = run_default();

    run.spec = (struct ct_model_spec){.type = CT_MODEL_GPT,
                                      .dtype = CT_F32,
                                      .gpt = {.vocabulary = 11,
                                              .context = 8,
                                              .sequence = 8,
                                              .layers = layers,
                                              .heads = 2,
                                              .width = width,
                                              .dropout = 0.1}};
    return run;
}

void run_see(struct run *run, int height, int width, const struct ct_layer_spec *layers, int count)
{
    run->spec.type = CT_MODEL_LAYERS;
    run->spec.input = (int64_t)2 * height * width;
    run->spec.layers = (struct ct_layers_spec){
        .channels = 2, .height = height, .width = width, .layers = layers, .count = count};
}

int64_t sample_inputs(const struct ct_model_spec *spec)
{
    return spec->type == CT_MODEL_GPT ? spec->gpt.sequence : spec->input;
}

int64_t sample_labels(const struct ct_model_spec *spec)
{
    return spec->type == CT_MODEL_GPT ? spec->gpt.sequence : 1;
}

/* Random tokens, each followed by one that it determines. */
static void fill_tokens(const struct ct_gpt_spec *spec, int64_t first, int64_t rows, int32_t *x,
                        int32_t *labels)
{
    for (int64_t i = 0; i < rows * spec->sequence; i++) {
        uint32_t words[4];
        ct_philox(98, (uint32_t[4]){(uint32_t)(first * spec->sequence + i), 0, 0, 0}, words);
        x[i] = (int32_t)(words[0] % (uint32_t)spec->vocabulary);
        labels[i] = (int32_t)((3 * x[i] + 1) % spec->vocabulary);
    }
}

void fill_rows(const struct ct_model_spec *spec, int64_t first, int64_t rows, void *x,
               int32_t *labels)
{
    if (spec->type == CT_MODEL_GPT) {
        fill_tokens(&spec->gpt, first, rows, x, labels);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        uint32_t words[4];
        ct_philox(99, (uint32_t[4]){(uint32_t)(first + i), 0, 0, 1}, words);
        labels[i] = (int32_t)(words[0] % (uint32_t)spec->classes);
        for (int64_t k = 0; k < spec->input; k++) {
            ct_philox(99, (uint32_t[4]){(uint32_t)(first + i), (uint32_t)k, 0, 0}, words);
            float value = 2 * ct_uniform_f32(words[0]) - 1 + (float)(labels[i] == k);
            if (spec->dtype == CT_F64)
                ((double *)x)[i * spec->input + k] = value;
            else
                ((float *)x)[i * spec->input + k] = value;
        }
    }
}

static struct ct_device *open_device(enum run_device wanted)
{
    const char *name = getenv("CTRUN_TEST_DEVICE");
    bool cuda =
        wanted == RUN_CUDA || (wanted == RUN_DEFAULT && name != NULL && strcmp(name, "cuda") == 0);
    const struct ct_device_request request = {.kind = cuda ? CT_DEVICE_CUDA : CT_DEVICE_CPU,
                                              .threads = 1};
    struct ct_device *device = NULL;
    struct ct_error why, err = {0};

    if (wanted == RUN_FAR || wanted == RUN_LATE)
        return far_new(wanted == RUN_LATE);
    cr_assert_eq(ct_device_open(&request, &device, &why, &err), 0, "%s", err.text);
    return device;
}

/* The ranks' group for the device's memory; NULL for one on the host. */
static struct ct_group *join_device(struct ct_device *device, struct ct_job *job)
{
    const struct ct_group_options options = {
        .name = "device", .backend = "staged", .device = ct_device_accel(device)};
    struct ct_group *group = NULL;
    struct ct_error err = {0};

    if (options.device != NULL)
        cr_assert_eq(ct_group_new(job, &options, &group, &err), 0, "%s", err.text);
    return group;
}

void rig_init(struct rig *rig, const struct run *run, struct ct_group *group)
{
    struct ct_plan_options plan_options = run->options;
    struct ct_exec_options options = run->exec;
    struct ct_error err = {0};

    *rig = (struct rig){.device = open_device(run->device)};
    plan_options.fuses |= rig->device->table->fuses;
    cr_assert_eq(ct_plan_build(&rig->plan, &run->spec, &plan_options, run->seed, &err), 0, "%s",
                 err.text);
    options.device = rig->device;
    options.group = group;
    rig->device_group = group == NULL ? NULL : join_device(rig->device, run->job);
    options.device_group = rig->device_group;
    cr_assert_eq(ct_exec_new(&rig->exec, &rig->plan, &options, &err), 0, "%s", err.text);
}

void rig_deinit(struct rig *rig)
{
    ct_exec_free(rig->exec);
    ct_group_free(rig->device_group);
    ct_device_free(rig->device);
    ct_plan_deinit(&rig->plan);
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* Tensors 0 .. count - 1 as numbers, one behind the other. */
static double *numbers_of(const struct ct_plan *plan, int count, void *const *data,
                          int64_t *ret_count)
{
    int64_t total = 0;
    double *all = NULL;

    for (int i = 0; i < count; i++) {
        const struct ct_plan_tensor *t = &plan->tensors[i];
        int64_t n = ct_shape_elements(t->shape);
        all = realloc(all, (size_t)(total + n) * sizeof *all);
        cr_assert_not_null(all);
        for (int64_t k = 0; k < n; k++)
            all[total + k] = t->dtype == CT_F64 ? ((double *)data[i])[k] : ((float *)data[i])[k];
        total += n;
    }
    *ret_count = total;
    return all;
}

void tensors_init(struct tensors *tensors, const struct ct_plan *plan)
{
    tensors->count = plan->tensor_count;
    tensors->data = calloc((size_t)plan->tensor_count, sizeof *tensors->data);
    cr_assert_not_null(tensors->data);
    for (int i = 0; i < plan->tensor_count; i++) {
        tensors->data[i] = malloc(plan->tensors[i].bytes);
        cr_assert_not_null(tensors->data[i]);
    }
}

void tensors_deinit(struct tensors *tensors)
{
    for (int i = 0; i < tensors->count; i++)
        free(tensors->data[i]);
    free(tensors->data);
}

/* What rank 0 keeps; the other ranks give their parts. */
static void keep_results(struct run *run, struct rig *rig, int rank)
{
    const struct ct_plan *plan = &rig->plan;
    struct tensors tensors;
    struct ct_error err = {0};

    ct_exec_common(rig->exec, &run->common[rank]);
    tensors_init(&tensors, plan);
    int code = ct_exec_collect(rig->exec, rank == 0 ? tensors.data : NULL, &err);
    cr_assert_eq(code, 0, "%s", err.text);
    if (rank == 0) {
        run->state = numbers_of(plan, plan->tensor_count, tensors.data, &run->state_count);
        run->digests[0] = digest_of_tensors(plan, tensors.data);
    }
    bool whole = ct_plan_holds_all(plan);
    for (int i = 0; i < plan->param_count && whole; i++) {
        if (plan->tensors[i].range < 0)
            memset(tensors.data[i], 0, plan->tensors[i].bytes);
        else
            ct_exec_read_grad(rig->exec, i, tensors.data[i]);
    }
    if (rank == 0 && whole)
        run->grads = numbers_of(plan, plan->param_count, tensors.data, &run->grad_count);
    tensors_deinit(&tensors);
    if (whole)
        run->digests[rank] = ct_exec_digest(rig->exec);
    if (rank == 0 && (run->device == RUN_FAR || run->device == RUN_LATE))
        run->replayed = far_replayed(rig->device);
    if (rank != 0 || !run->exec.trace)
        return;
    size_t bytes = (size_t)rig->plan.step.program.op_count * sizeof *run->trace;
    run->trace = malloc(bytes);
    cr_assert_not_null(run->trace);
    memcpy(run->trace, ct_exec_trace(rig->exec), bytes);
}

/* The first rows of the data, at all ranks; the sum over them. */
static void evaluate(struct run *run, struct rig *rig, struct ct_group *group, int rank)
{
    int64_t rows = rig->plan.options.eval_rows, each = sample_labels(&run->spec);
    void *x = calloc((size_t)(rows * sample_inputs(&run->spec)), ct_dtype_size(run->spec.dtype));
    int32_t *labels = calloc((size_t)(rows * each), sizeof *labels);
    struct ct_exec_eval args = {.x = x, .labels = labels};
    struct ct_exec_sums sums = {0};
    struct ct_error err = {0};

    cr_assert(x != NULL && labels != NULL);
    fill_rows(&run->spec, 0, rows, x, labels);
    cr_assert_eq(ct_exec_eval(rig->exec, &args, &sums, &err), 0, "%s", err.text);
    double both[] = {sums.loss, (double)sums.correct};
    if (group != NULL)
        cr_assert_eq(ct_all_reduce(group, ct_inplace(both, 2, CT_F64), CT_REDUCE_SUM, NULL), 0);
    if (rank == 0)
        run->evaluation = (struct ct_exec_sums){both[0], (int64_t)both[1]};
    free(x);
    free(labels);
}

static void train(struct run *run, struct ct_job *job, struct ct_group *group, int rank)
{
    const struct ct_plan_options *o = &run->options;
    int64_t mine = o->accumulation * o->micro_rows;
    int64_t each = sample_labels(&run->spec);
    int64_t held = !o->rooted ? mine : rank == 0 ? mine * o->world : 0; /* a root has the batch */
    void *x = calloc((size_t)(CT_MAX(held, 1) * sample_inputs(&run->spec)),
                     ct_dtype_size(run->spec.dtype));
    int32_t *labels = calloc((size_t)(CT_MAX(held, 1) * each), sizeof *labels);
    struct run local = *run;
    struct rig rig;

    local.options.rank = rank;
    cr_assert(x != NULL && labels != NULL);
    if (rank != 0)
        local.exec = (struct ct_exec_options){0};
    local.exec.job = run->symmetric ? job : NULL;
    local.job = job;
    rig_init(&rig, &local, group);
    int64_t global = mine * ct_mesh_size(&rig.plan.mesh, CT_AXIS_DATA);
    int64_t first = mine * ct_mesh_index(&rig.plan.mesh, CT_AXIS_DATA, rank);
    for (int step = 0; step < run->steps; step++) {
        struct ct_exec_step args = {.x = x,
                                    .labels = labels,
                                    .valid_count = (global - run->masked) * each,
                                    .lr = run->lr,
                                    .scale = run->scale,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;
        struct ct_error err = {0};
        fill_rows(&run->spec, step * global + first, held, x, labels);
        if (run->poisoned == step + 1 && first + mine == global)
            ((float *)x)[0] = NAN;
        for (int64_t i = 0; i < held * each; i++)
            if (first + i / each >= global - run->masked)
                labels[i] = -1;
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, &err), 0, "%s", err.text);
        run->skipped[rank] += result.skipped;
        if (rank == 0) {
            run->losses[step] = result.loss;
            run->correct[step] = result.correct;
            run->norms[step] = result.grad_norm;
        }
    }
    if (run->evaluates)
        evaluate(run, &rig, group, rank);
    keep_results(run, &rig, rank);
    rig_deinit(&rig);
    free(x);
    free(labels);
}

static int rank_body(struct ct_job *job, void *context)
{
    struct ct_group *group;
    struct ct_error err = {0};

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    train(context, job, group, ct_group_rank(group));
    ct_group_free(group);
    return 0;
}

/* Ranks that hold the same have the same bits. */
static void assert_common(const struct run *run)
{
    for (int rank = 0; rank < run->options.world; rank++)
        for (int other = 0; other < rank; other++)
            for (int kind = 0; kind < CT_EXEC_KINDS; kind++)
                if (run->common[rank].holders[kind] == run->common[other].holders[kind])
                    cr_assert_eq(run->common[rank].digest[kind], run->common[other].digest[kind],
                                 "ranks %d and %d hold kind %d and differ", other, rank, kind);
}

void run_train(struct run *run)
{
    struct ct_thread_world *world;

    CT_ASSERT(run->steps <= FIXTURE_MAX_STEPS && run->options.world <= FIXTURE_MAX_WORLD);
    if (run->options.world == 1) {
        train(run, NULL, NULL, 0);
        return;
    }
    cr_assert_eq(ct_thread_world_new(run->options.world, &world), 0);
    cr_assert_eq(thread_ranks_run(world, rank_body, run), 0);
    ct_thread_world_free(world);
    if (!run->options.rooted)
        assert_common(run);
}

void run_deinit(struct run *run)
{
    free(run->grads);
    free(run->state);
    free(run->trace);
    run->grads = run->state = NULL;
    run->trace = NULL;
}

void assert_same_bits(const struct run *a, const struct run *b, const char *what)
{
    cr_assert_eq(a->steps, b->steps);
    cr_assert_eq(a->state_count, b->state_count);
    for (int i = 0; i < a->steps; i++) {
        cr_assert_eq(a->losses[i], b->losses[i], "%s: loss of step %d: %.17g and %.17g", what, i,
                     a->losses[i], b->losses[i]);
        cr_assert_eq(a->correct[i], b->correct[i], "%s: count of step %d", what, i);
        cr_assert_eq(a->norms[i], b->norms[i], "%s: norm of step %d", what, i);
    }
    for (int64_t i = 0; i < a->state_count; i++)
        cr_assert_eq(a->state[i], b->state[i], "%s: element %lld: %.9g and %.9g", what,
                     (long long)i, a->state[i], b->state[i]);
    cr_assert_eq(a->digests[0], b->digests[0], "%s: digest", what);
}

double relative_l2(const double *a, const double *b, int64_t count)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}
