/* `ctrun plan`: what a training would take, without starting it. */
#include "base/assert.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Of this machine's calibration, if there is one, the tests know nothing. */
static void enter(void)
{
    e2e_enter();
    cr_assert_eq(setenv("XDG_CONFIG_HOME", e2e_in_folder("config"), 1), 0);
    cr_assert_eq(unsetenv("CTRUN_CALIBRATION"), 0);
}

TestSuite(plan, .init = enter, .fini = e2e_leave, .timeout = 60);

Test(plan, every_configuration_that_is_shipped_can_be_planned)
{
    static const char *const files[] = {"configs/digits_mlp.yaml", "configs/digits_resnet.yaml",
                                        "configs/char_gpt.yaml", "configs/mnist_mlp.yaml",
                                        "configs/mnist_cnn.yaml"};

    for (size_t i = 0; i < CT_COUNT(files); i++) {
        struct proc plan;
        cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root(files[i]), "--nproc_per_node=2", NULL), 0,
                     "%s", ct_buf_str(&plan.text));
        e2e_said(&plan, "of 4.00 GiB per worker: fits\n");
        e2e_said(&plan, "advice       --parallel.strategy=ddp ");
        proc_free(&plan);
    }
}

Test(plan, a_hundred_billion_parameters_on_eight_nodes_are_answered_for)
{
    struct proc plan;

    cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root("configs/gpt_100b.yaml"), "--nnodes=8",
                         "--nproc_per_node=8", "--device=a100-80g", NULL),
                 0, "%s", ct_buf_str(&plan.text));
    e2e_said(&plan, "machines     8 nodes x 8 a100-80g = 64 workers\n");
    e2e_said(&plan, "model        101.21 B parameters\n");
    e2e_said(&plan, "  ddp        no ");
    e2e_said(&plan, "  parameters           377.04 GiB\n");
    e2e_said(&plan, "links                300 GB/s between devices");
    e2e_said(&plan, "advice       --parallel.strategy=fsdp ");
    for (const char *at = ct_buf_str(&plan.text); *at != '\0'; at += strcspn(at, "\n") + 1)
        cr_assert_leq(strcspn(at, "\n"), 80, "%.120s", at);
    proc_free(&plan);
    cr_assert_eq(
        e2e_run(&plan, "plan", e2e_in_root("configs/gpt_100b.yaml"), "--device=h100", NULL), 2,
        "nothing fits on one device");
    e2e_said(&plan, "= 1 worker\n");
    e2e_said(&plan, "advice       nothing fits: use more workers or a smaller model\n");
    proc_free(&plan);
}

Test(plan, programs_read_the_plan_as_one_object_on_one_line)
{
    struct proc plan;

    cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root("configs/char_gpt.yaml"), "--nproc_per_node=2",
                         "--device=h200", "--json", NULL),
                 0);
    e2e_said(&plan, "{\"version\":1,\"nodes\":1,\"nproc_per_node\":2,\"device\":\"h200\",");
    e2e_said(&plan, ",\"simplest\":\"ddp\"");
    cr_assert_eq(e2e_count(ct_buf_str(&plan.text), "\n"), 1);
    proc_free(&plan);
}

Test(plan, every_op_of_a_step_can_be_seen)
{
    struct proc plan;

    cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root("configs/digits_mlp.yaml"),
                         "--nproc_per_node=2", "--rank=1", "--ops", NULL),
                 0);
    e2e_said(&plan, "all_reduce");
    e2e_said(&plan, "adamw");
    proc_free(&plan);
}

/* GPUs do with one op what the CPU does with several. */
Test(plan, is_that_of_the_device_that_computes)
{
    static const struct {
        const char *machine, *device;
        bool fused;
    } rows[] = {{"--device=h100", "--train.device=auto", true},
                {"--device=cpu", "--train.device=auto", false},
                {"--device=h100", "--train.device=cpu", false},
                {"--device=cpu", "--train.device=cuda", true}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct proc plan;
        cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root("configs/char_gpt.yaml"), rows[i].machine,
                             rows[i].device, "--ops", NULL),
                     0, "%s", ct_buf_str(&plan.text));
        const char *text = ct_buf_str(&plan.text);
        cr_assert_eq(e2e_count(text, "compute linear_gelu ") > 0, rows[i].fused, "row %zu", i);
        cr_assert_eq(e2e_count(text, "compute linear_dx_gelu ") > 0, rows[i].fused, "row %zu", i);
        cr_assert_eq(e2e_count(text, "compute gelu_tanh ") > 0, !rows[i].fused, "row %zu", i);
        cr_assert_eq(e2e_count(text, "compute layernorm_bw ") > 0, rows[i].fused, "row %zu", i);
        cr_assert_eq(e2e_count(text, "compute norm_dg ") > 0, !rows[i].fused, "row %zu", i);
        cr_assert_eq(e2e_count(text, "compute add_layernorm ") > 0, rows[i].fused, "row %zu", i);
        proc_free(&plan);
    }
}

Test(plan, bad_input_is_one_sentence)
{
    static const struct {
        const char *option, *says;
    } rows[] = {
        {"--device=a100", "--device \"a100\" is not known; did you mean a100-80g?"},
        {"--memory=much", "--memory wants a size such as 40GB or 64MiB, not \"much\""},
        {"--nproc_per_node=gpu", "--nproc_per_node is \"gpu\", and a plan wants a number"},
        {"--rank=2", "--rank 2 is not one of 1 workers"},
        {"--nproc_per_node=5", "batch.global 32 does not divide into 5 workers"},
        {"--optim.lrr=1", "optim.lr"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct proc plan;
        cr_assert_eq(
            e2e_run(&plan, "plan", e2e_in_root("configs/digits_mlp.yaml"), rows[i].option, NULL), 2,
            "%s: %s", rows[i].option, ct_buf_str(&plan.text));
        e2e_said(&plan, rows[i].says);
        cr_assert_eq(e2e_count(ct_buf_str(&plan.text), "\n"), 1, "%s", ct_buf_str(&plan.text));
        proc_free(&plan);
    }
}

Test(plan, a_calibration_that_is_broken_or_of_another_machine_is_refused_with_the_remedy)
{
    static const char of_another[] = "version 2\nmachine 64 cores of a kind that is not here\n"
                                     "value cores 64\n";
    const char *broken = e2e_write("broken", "dear diary\n");
    const char *older = e2e_write("older", "version 1\n");
    const char *other = e2e_write("other", of_another);
    const char *model = e2e_in_root("configs/digits_mlp.yaml");
    struct proc plan;

    cr_assert_eq(e2e_run(&plan, "plan", model, "--calibration", broken, NULL), 2);
    e2e_said(&plan,
             "/broken (remove it and measure anew: ctrun plan --calibrate): 1: \"dear\" begins "
             "no line of a calibration");
    proc_free(&plan);
    cr_assert_eq(e2e_run(&plan, "plan", model, "--calibration", older, NULL), 2);
    e2e_said(&plan, "/older (remove it and measure anew: ctrun plan --calibrate): 1: version \"1\" "
                    "is another ctrun's, here it is 2");
    proc_free(&plan);
    cr_assert_eq(e2e_run(&plan, "plan", model, "--calibration", other, NULL), 66);
    e2e_said(&plan, "/other has nothing of this machine, \"");
    e2e_said(&plan, "measure it: ctrun plan --calibrate --calibration ");
    proc_free(&plan);
    cr_assert_eq(e2e_run(&plan, "plan", "--calibrate", "--calibration", broken, NULL), 2);
    e2e_said(&plan, "/broken (remove it");
    proc_free(&plan);
    cr_assert_eq(e2e_run(&plan, "plan", model, "--device=here", NULL), 66);
    e2e_said(&plan,
             "--device here: this machine was not measured; measure it: ctrun plan --calibrate");
    proc_free(&plan);
    cr_assert_eq(e2e_run(&plan, "plan", "--calibrate", model, NULL), 2);
    e2e_said(&plan, "--calibrate measures this machine and plans nothing: leave \"");
    proc_free(&plan);
}

Test(plan, a_hundred_thousand_nodes_are_answered_for)
{
    struct proc plan;

    cr_assert_eq(e2e_run(&plan, "plan", e2e_in_root("configs/gpt2_124m.yaml"), "--nnodes=100000",
                         "--nproc_per_node=8", "--device=h100", "--batch.global=800000", NULL),
                 0, "%s", ct_buf_str(&plan.text));
    e2e_said(&plan, "machines     100000 nodes x 8 h100 = 800000 workers\n");
    e2e_said(&plan, "job          start ");
    for (const char *at = ct_buf_str(&plan.text); *at != '\0'; at += strcspn(at, "\n") + 1)
        cr_assert_leq(strcspn(at, "\n"), 80, "%.120s", at);
    proc_free(&plan);
}
