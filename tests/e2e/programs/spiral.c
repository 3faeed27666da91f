/* A model of one's own, trained on any number of ranks: a residual network, built layer by layer,
 * tells apart the points of three arms of a spiral.
 *
 *     cc spiral.c $(pkg-config --cflags --libs ctrun-train) -o spiral
 *     ctrun --nproc_per_node 2 spiral
 *
 * What runs is a plan: forward, backward, the sum of the gradients over the ranks, the update. */
#include <collectives/exec/exec.h>
#include <graph/builder.h>
#include <math.h>
#include <stdio.h>

/* Rows of a step, over all ranks, which run MICRO of them at a time. */
enum { ARMS = 3, ROWS = 96, MICRO = 12, STEPS = 400 };

static int build(struct ct_builder *b, void *context, struct ct_error *err)
{
    int h = ct_build_linear(b, "in", ct_build_features(b, ct_shape2(b->rows, 2)), 48);

    (void)context;
    (void)err;
    h = ct_build_add(b, h, ct_build_act(b, CT_ACT_GELU, ct_build_linear(b, "body.0", h, 48)));
    h = ct_build_add(b, h, ct_build_act(b, CT_ACT_GELU, ct_build_linear(b, "body.1", h, 48)));
    ct_build_loss(b, CT_LOSS_CROSS_ENTROPY, ct_build_linear(b, "out", h, ARMS));
    return 0;
}

static void draw(int64_t first, int64_t rows, float (*x)[2], int32_t *labels)
{
    for (int64_t i = 0; i < rows; i++) {
        double way = fmod((double)(first + i) * 0.6180339887, 1), angle = 4 * way;

        labels[i] = (int32_t)((first + i) % ARMS);
        angle += labels[i] * 2 * 3.14159265 / ARMS;
        x[i][0] = (float)(way * cos(angle));
        x[i][1] = (float)(way * sin(angle));
    }
}

static int train(struct ct_exec *exec, const struct ct_plan *plan, struct ct_error *err)
{
    struct ct_exec_result result = {.loss = 0};
    int64_t rows = ROWS / plan->options.world;
    int32_t labels[ROWS];
    float x[ROWS][2];
    int code = 0;

    for (int64_t step = 0; step < STEPS && code == 0; step++) {
        const struct ct_exec_step args = {.x = x,
                                          .labels = labels,
                                          .valid_count = ROWS,
                                          .lr = 0.01,
                                          .update = (uint64_t)step + 1};

        draw(step * ROWS + plan->options.rank * rows, rows, x, labels);
        code = ct_exec_step(exec, &args, &result, err);
    }
    if (code == 0 && plan->options.rank == 0)
        (void)printf("%d ranks: %d of the last %d points are right, loss %.6f\n",
                     plan->options.world, (int)result.correct, ROWS, result.loss);
    return code;
}

int main(void)
{
    const struct ct_model_spec model = {.type = CT_MODEL_CUSTOM, .dtype = CT_F32, .build = build};
    struct ct_plan_options options = {
        .micro_rows = MICRO,
        .reduce = CT_PLAN_INVARIANT, /* the bits of one rank */
        .overlap = true,
        .bucket_bytes = 1 << 20,
        .first_bucket_bytes = 1 << 12,
        .optim = {CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}};
    struct ct_exec_options on = {.device = NULL};
    struct ct_error err = {0};
    struct ct_plan plan = {.tensor_count = 0};
    struct ct_exec *exec = NULL;
    int code = ct_job_open(&on.job, &err);

    if (code == 0)
        code = ct_group_new(on.job, NULL, &on.group, &err);
    if (code == 0) {
        options.rank = ct_group_rank(on.group);
        options.world = ct_group_size(on.group);
        options.accumulation = ROWS / MICRO / options.world;
        code = ct_plan_build(&plan, &model, &options, 1, &err);
    }
    if (code == 0)
        code = ct_device_cpu_new(NULL, &on.device, &err);
    if (code == 0)
        code = ct_exec_new(&exec, &plan, &on, &err);
    if (code == 0)
        code = train(exec, &plan, &err);
    if (code != 0)
        (void)fprintf(stderr, "spiral: %s\n", err.text);
    ct_exec_free(exec);
    ct_device_free(on.device);
    ct_plan_deinit(&plan);
    ct_group_free(on.group);
    ct_job_close(on.job);
    return ct_exit_status(code);
}
