/* What a configuration asks for and cannot be is told before any worker starts: by the launcher, in
 * one sentence. And what a run leaves behind can be started again. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(early, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static const char gpt[] =
    "model: {type: gpt, vocabulary: 16, context: 8, layers: 2, heads: 3, width: 12}\n"
    "data: {train: {format: tokens, path: absent.bin}}\n"
    "batch: {global: 8}\n"
    "train: {steps: 1}\n";

/* The trainer is /bin/false: one that started would be seen to fail. */
static void refuse(const char *workers, const char *option, const char *more, int status,
                   const char *says)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", workers, "--worker=/bin/false",
                         e2e_write("gpt.yaml", gpt), option, more, NULL),
                 status, "%s", ct_buf_str(&run.text));
    e2e_said(&run, says);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(early, heads_batches_and_stages_that_do_not_divide_are_told_with_their_numbers)
{
    static const struct {
        const char *workers, *option, *more, *says;
    } rows[] = {
        {"2", "--parallel.tensor=2", NULL, "parallel.tensor is 2, must divide the 3 heads"},
        {"3", "--batch.micro=1", NULL,
         "batch.global 8 does not divide into 3 workers: the nearest values are 6 or 9, or use 2 "
         "or 4 workers"},
        {"2", "--batch.micro=8", NULL,
         "batch.micro 8 does not divide a worker's share of 4 (batch.global 8 over 2 workers): the "
         "nearest value is 4"},
        {"4", "--parallel.tensor=3", NULL, "parallel.tensor"},
        {"6", "--parallel.pipeline=6", "--batch.micro=1",
         "the pipeline wants 6 parts of the model (parallel.pipeline times parallel.chunks), which "
         "can be cut into "},
        {"8", "--parallel.strategy=fsdp", "--parallel.replicate=3", "parallel.replicate is 3"},
        {"1", "--parallel.strategy=dp", "--parallel.replicate=3",
         "batch.global 8 does not divide into 3 workers"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        refuse(rows[i].workers, rows[i].option, rows[i].more, 2, rows[i].says);
}

static void train(const char *workers, const char *option, const char *more)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", workers, e2e_in_root("configs/digits_mlp.yaml"),
                         "--train.steps=2", "--schedule.warmup=0", "--log.dir=run",
                         "--checkpoint.dir=run/ckpt", option, more, NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(early, weights_to_begin_with_that_do_not_fit_are_told_with_tensor_and_shapes)
{
    struct proc run;

    refuse("2", "--model.init_from=none.safetensors", NULL, 66,
           "model.init_from: none.safetensors: cannot be read: No such file or directory");
    (void)e2e_write("junk.safetensors", "none");
    refuse("2", "--model.init_from=junk.safetensors", NULL, 65,
           "model.init_from: junk.safetensors: ");
    train("2", "--model.hidden=7", "--model.input=64");
    cr_assert_eq(e2e_run(&run, "--worker=/bin/false", e2e_in_root("configs/digits_mlp.yaml"),
                         "--checkpoint.dir=other", "--model.input=64",
                         "--model.init_from=run/ckpt/step_00000002", NULL),
                 65, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "model.init_from: run/ckpt/step_00000002/model.safetensors: of another model: "
                   "tensor \"layers.0.weight\" is F32 [7, 64], but F32 [64, 64] here");
    proc_free(&run);
    /* A checkpoint goes before them: nobody needs the file. */
    train("1", "--checkpoint.resume=auto", "--model.hidden=7");
    cr_assert_eq(e2e_run(&run, e2e_in_root("configs/digits_mlp.yaml"), "--train.steps=2",
                         "--schedule.warmup=0", "--model.hidden=7", "--log.dir=run",
                         "--checkpoint.dir=run/ckpt", "--checkpoint.resume=auto",
                         "--model.init_from=none.safetensors", NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(early, a_runs_configuration_can_be_started_again)
{
    struct proc run;

    train("2", "--optim.lr=0.004", NULL);
    const char *config = e2e_read("run/config.yaml");
    cr_assert_null(strstr(config, "rdzv_endpoint:"), "%s", config);
    cr_assert_eq(e2e_count(config, "agent\""), 0);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", "run/config.yaml", "--log.dir=again",
                         "--checkpoint.dir=again/ckpt", NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_not_null(strstr(e2e_read("again/config.yaml"), "lr: 0.004"));
}
