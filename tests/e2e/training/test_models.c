/* The configurations that ship with models beyond the perceptron on digits: what they learn in a
 * few steps, and that the number of workers changes nothing. A model that cannot be built is
 * refused before any worker starts. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(models, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

enum { STEPS_MAX = 64 };

struct losses {
    int count;
    double at[STEPS_MAX];
    double held_out; /* of the last evaluation */
};

/* The losses that a run has written. */
static void read_losses(const char *path, struct losses *ret)
{
    static const char key[] = "\"loss\":";
    const char *text = e2e_read(path);

    *ret = (struct losses){0};
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = strstr(line, key);
        if (*line == '\0' || at == NULL)
            break;
        double loss = strtod(at + strlen(key), NULL);
        if (strstr(line, "\"kind\":\"eval\"") == line + strlen("{\"v\":1,"))
            ret->held_out = loss;
        else if (ret->count < STEPS_MAX)
            ret->at[ret->count++] = loss;
    }
}

/* Train `config` for some steps on `workers`; what it wrote. */
static void train(const char *config, const char *workers, const char *const *options,
                  struct losses *ret)
{
    struct proc run;
    char dir[64], metrics[96];
    const char *argv[32] = {proc_program("ctrun"), "--nproc_per_node",  workers,
                            "--log.every=1",       "--checkpoint.dir=", "--log.overwrite=yes"};
    int count = 6;

    (void)snprintf(dir, sizeof dir, "--log.dir=run%s", workers);
    (void)snprintf(metrics, sizeof metrics, "run%s/metrics.jsonl", workers);
    argv[count++] = dir;
    while (*options != NULL)
        argv[count++] = *options++;
    argv[count] = config;
    cr_assert_eq(proc_run(&run, argv, NULL, 150), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    read_losses(metrics, ret);
}

static void expect_equal(const struct losses *a, const struct losses *b)
{
    cr_assert_eq(a->count, b->count);
    for (int i = 0; i < a->count; i++)
        cr_assert_eq(a->at[i], b->at[i], "step %d: %.17g %.17g", i + 1, a->at[i], b->at[i]);
}

Test(models, the_novel_is_learned_alike_by_one_worker_and_by_two)
{
    static const char *const options[] = {"--train.steps=30",
                                          "--schedule.warmup=5",
                                          "--batch.micro=6",
                                          "--parallel.reduce=invariant",
                                          "--data.train.split=0,0.2",
                                          "--data.eval.split=0.99,1",
                                          NULL};
    const char *config = e2e_in_root("configs/char_gpt.yaml");
    struct losses one, two;

    train(config, "1", options, &one);
    train(config, "2", options, &two);
    cr_assert_eq(one.count, 30);
    cr_assert_gt(one.at[0], 4.0);
    cr_assert_lt(one.at[29], 3.2, "%g", one.at[29]);
    cr_assert_lt(one.held_out, 3.3, "%g", one.held_out);
    expect_equal(&one, &two);
}

/* 98.6 % in f32, with a loss of 0.049. */
Test(models, digits_are_learned_in_16_bits)
{
    static const char *const bf16[] = {"--train.precision=bf16", "--parallel.reduce_dtype=bf16",
                                       NULL};
    static const char *const f16[] = {"--train.precision=f16", "--memory.offload=file", NULL};
    const char *config = e2e_in_root("configs/digits_mlp.yaml");
    struct losses narrow, half;

    train(config, "2", bf16, &narrow);
    train(config, "2", f16, &half);
    cr_assert_lt(narrow.held_out, 0.08, "%g", narrow.held_out);
    cr_assert_lt(half.held_out, 0.08, "%g", half.held_out);
}

/* Synchronised batch norm: the statistics are those of the global batch, also of the last one that
 * is not full, and part of the checkpoint. */
Test(models, batch_norm_is_the_same_on_any_number_of_workers_and_survives_a_stop)
{
    static const char *const options[] = {"--train.steps=50", "--batch.micro=8",
                                          "--parallel.reduce=invariant", "--schedule.type=constant",
                                          NULL};
    const char *config = e2e_in_root("configs/digits_resnet.yaml");
    struct losses one, two, late;

    train(config, "1", options, &one);
    train(config, "2", options, &two);
    cr_assert_eq(one.count, 50);
    cr_assert_lt(one.held_out, 0.5, "%g", one.held_out);
    expect_equal(&one, &two);
    cr_assert_eq(one.held_out, two.held_out);

    const char *first[] = {"--train.steps=20",      "--batch.micro=8", options[2],       options[3],
                           "--checkpoint.dir=ckpt", "--log.dir=first", "--eval.every=0", NULL};
    const char *rest[] = {"--batch.micro=8",
                          options[2],
                          options[3],
                          options[0],
                          "--checkpoint.dir=ckpt",
                          "--checkpoint.resume=auto",
                          "--log.dir=rest",
                          NULL};
    train(config, "2", first, &late);
    train(config, "1", rest, &late);
    read_losses("rest/metrics.jsonl", &late);
    cr_assert_eq(late.count, 30);
    for (int i = 0; i < late.count; i++)
        cr_assert_eq(late.at[i], one.at[20 + i], "step %d", 21 + i);
    cr_assert_eq(late.held_out, one.held_out);
}

/* Where MNIST lies on this machine, or NULL. */
static const char *mnist(void)
{
    static const char *const folders[] = {"configs/data/mnist", "../shared/data/mnist"};
    static char found[PATH_MAX];

    for (size_t i = 0; i < CT_COUNT(folders); i++) {
        (void)snprintf(found, sizeof found, "%s/train-images-idx3-ubyte.gz",
                       e2e_in_root(folders[i]));
        if (access(found, R_OK) != 0)
            continue;
        (void)snprintf(found, sizeof found, "%s", e2e_in_root(folders[i]));
        return found;
    }
    return NULL;
}

/* Few steps on few of the samples: it learns, and two workers do what one does. */
static void learn_mnist(const char *config)
{
    static const char *const files[][2] = {{"train.images", "train-images-idx3-ubyte.gz"},
                                           {"train.labels", "train-labels-idx1-ubyte.gz"},
                                           {"eval.images", "t10k-images-idx3-ubyte.gz"},
                                           {"eval.labels", "t10k-labels-idx1-ubyte.gz"}};
    static char words[4][PATH_MAX + 128];
    const char *options[] = {words[0],
                             words[1],
                             words[2],
                             words[3],
                             "--data.train.split=0,0.05",
                             "--data.eval.split=0,0.05",
                             "--train.steps=30",
                             "--schedule.warmup=0",
                             "--batch.micro=64",
                             "--parallel.reduce=invariant",
                             NULL};
    const char *folder = mnist();
    struct losses one, two;

    if (folder == NULL)
        cr_skip_test("MNIST is neither in configs/data/mnist nor in ../shared/data/mnist");
    for (size_t i = 0; i < CT_COUNT(files); i++)
        (void)snprintf(words[i], sizeof words[i], "--data.%s=%s/%s", files[i][0], folder,
                       files[i][1]);
    train(e2e_in_root(config), "1", options, &one);
    train(e2e_in_root(config), "2", options, &two);
    cr_assert_eq(one.count, 30);
    cr_assert_gt(one.at[0], 2.0);
    cr_assert_lt(one.held_out, 0.7, "%g", one.held_out);
    expect_equal(&one, &two);
}

Test(models, the_perceptron_learns_mnist_alike_on_one_worker_and_on_two)
{
    learn_mnist("configs/mnist_mlp.yaml");
}

Test(models, the_convolutional_network_learns_mnist_alike_on_one_worker_and_on_two)
{
    learn_mnist("configs/mnist_cnn.yaml");
}

Test(models, a_model_that_cannot_be_built_is_refused_before_any_worker_starts)
{
    static const struct {
        const char *model, *says;
    } rows[] = {
        {"{type: layers, input: [1, 28, 28], layers: [flattn, linear: 10]}",
         "bad.yaml:1:52: model.layers: unknown layer \"flattn\"; did you mean flatten?"},
        {"{type: layers, input: [1, 28, 28], layers: [conv2d: {out: 4, kernel: 30}]}",
         "bad.yaml:1:52: model.layers[0] (conv2d) needs room for windows of 30 x 30 pixels, but "
         "gets an image of 28 x 28 pixels with 1 channel"},
    };
    char yaml[512];

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct proc run;
        (void)snprintf(yaml, sizeof yaml,
                       "model: %s\ndata: {train: {format: csv, path: absent.csv}}\n",
                       rows[i].model);
        const char *config = e2e_write("bad.yaml", yaml);
        /* A worker would say that it is no trainer. */
        cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--worker=/bin/false", config, NULL), 2,
                     "%s", ct_buf_str(&run.text));
        e2e_said(&run, rows[i].says);
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
        proc_free(&run);
        cr_assert_eq(e2e_run(&run, "config", config, NULL), 2);
        e2e_said(&run, rows[i].says);
        proc_free(&run);
    }
}

/* Sums over other workers round otherwise: the losses agree as far as f32 carries them. */
static void expect_close(const struct losses *a, const struct losses *b)
{
    cr_assert_eq(a->count, b->count);
    for (int i = 0; i < a->count; i++)
        cr_assert_lt(fabs(a->at[i] - b->at[i]), 1e-4, "step %d: %.9g %.9g", i + 1, a->at[i],
                     b->at[i]);
    cr_assert_lt(fabs(a->held_out - b->held_out), 1e-4);
}

Test(models, workers_that_share_layers_learn_what_one_worker_learns)
{
    static const char *const alone[] = {"--train.steps=20", NULL};
    static const char *const shared[] = {"--train.steps=20", "--parallel.tensor=2", NULL};
    static const char *const both[] = {"--train.steps=20", "--parallel.tensor=2",
                                       "--parallel.strategy=fsdp", NULL};
    const char *config = e2e_in_root("configs/digits_mlp.yaml");
    struct losses one, two, four;

    train(config, "1", alone, &one);
    train(config, "2", shared, &two);
    train(config, "4", both, &four);
    cr_assert_eq(one.count, 20);
    expect_close(&two, &one);
    expect_close(&four, &one);
}

Test(models, layers_that_workers_cannot_share_are_refused_with_the_numbers)
{
    static const struct {
        const char *option, *text;
    } bad[] = {
        {"--model.hidden=[63]", "parallel.tensor is 2, must divide the 63 rows of layers.0.weight"},
        {"--parallel.replicate=3", "parallel.replicate is 3"},
    };

    for (size_t i = 0; i < CT_COUNT(bad); i++) {
        struct proc run;
        const char *argv[] = {proc_program("ctrun"),
                              "--nproc_per_node",
                              "2",
                              "--parallel.tensor=2",
                              bad[i].option,
                              "--checkpoint.dir=",
                              e2e_in_root("configs/digits_mlp.yaml"),
                              NULL};
        cr_assert_eq(proc_run(&run, argv, NULL, 30), 2, "%s", ct_buf_str(&run.text));
        cr_assert_not_null(strstr(ct_buf_str(&run.text), bad[i].text), "%s", ct_buf_str(&run.text));
        cr_assert_null(strstr(ct_buf_str(&run.text), "[0:"), "a worker has started");
        proc_free(&run);
    }
}
