/* ctrun sample and ctrun export: text by a GPT that two workers trained, its weights out and in. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(sample, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* A small one, which knows nothing: four steps, a checkpoint after two and four, in `folder`. */
static void train(const char *folder, const char *option)
{
    char dir[64], checkpoints[64];
    struct proc run;

    (void)snprintf(dir, sizeof dir, "--log.dir=%s", folder);
    (void)snprintf(checkpoints, sizeof checkpoints, "--checkpoint.dir=%s/checkpoints", folder);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/char_gpt.yaml"),
                         "--model.width=16", "--model.layers=2", "--model.heads=2",
                         "--model.context=16", "--data.train.split=0,0.01",
                         "--data.eval.split=0.99,1", "--train.steps=4", "--schedule.warmup=0",
                         "--eval.every=0", "--checkpoint.every=2", "--optim.ema=0.5",
                         "--optim.lr=0.1", dir, checkpoints, option, NULL),
                 0, "%s", ct_buf_str(&run.text));
    if (option != NULL)
        e2e_said(&run, "the parameters begin as those of half");
    proc_free(&run);
}

/* What `ctrun sample` wrote, behind the line that says which weights it took. */
static const char *text_of(const struct proc *run)
{
    const char *text = ct_buf_str(&run->text);

    cr_assert_eq(strncmp(text, "ctrun: sampling from ", 21), 0, "%s", text);
    return strchr(text, '\n') + 1;
}

/* The text of `ctrun sample` with these words; static, four stay valid. */
static const char *sample(const char *what, const char *option, const char *value)
{
    static char texts[8][4096];
    static unsigned next;
    char *text = texts[next++ % 8];
    struct proc run;

    cr_assert_eq(
        e2e_run(&run, "sample", what, "--prompt=Call me", "--tokens=40", option, value, NULL), 0,
        "%s", ct_buf_str(&run.text));
    (void)snprintf(text, sizeof texts[0], "%s", text_of(&run));
    proc_free(&run);
    cr_assert_eq(strncmp(text, "Call me", 7), 0, "%s", text);
    return text;
}

/* The texts of log.sample in the metrics: "Call me..." of each evaluation. */
static int texts_of(const char *path, char (*texts)[4096], int room)
{
    int count = 0;

    for (const char *line = e2e_read(path); *line != '\0' && count < room;
         line += strcspn(line, "\n") + 1) {
        json_t *root = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *kind = json_string_value(json_object_get(root, "kind"));

        if (kind != NULL && strcmp(kind, "sample") == 0)
            (void)snprintf(texts[count++], sizeof *texts, "%s%s\n",
                           json_string_value(json_object_get(root, "prompt")),
                           json_string_value(json_object_get(root, "text")));
        if (kind != NULL && strcmp(kind, "eval") == 0) {
            double loss = json_number_value(json_object_get(root, "loss"));
            double perplexity = json_number_value(json_object_get(root, "perplexity"));
            cr_expect(fabs(perplexity - exp(loss)) < 1e-9 * perplexity, "%s", line);
        }
        json_decref(root);
    }
    return count;
}

/* Trained by workers that hold all, with eval.ema the average, or a shard of the moments. */
static void expect_samples(const char *folder, const char *option, const char *which)
{
    static char texts[4][4096];
    char path[64];
    struct proc run;

    (void)snprintf(path, sizeof path, "--log.dir=%s", folder);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/char_gpt.yaml"),
                         "--model.width=16", "--model.layers=2", "--model.heads=2",
                         "--model.context=16", "--data.train.split=0,0.01",
                         "--data.eval.split=0.99,1", "--train.steps=4", "--schedule.warmup=0",
                         "--eval.every=2", "--checkpoint.every=2", "--optim.ema=0.5",
                         "--optim.lr=0.1", "--log.sample=40", "--log.sample_prompt=Call me", path,
                         option, NULL),
                 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "step 2 writes: Call me");
    proc_free(&run);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    cr_assert_eq(texts_of(path, texts, 4), 2);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/checkpoints/step_%08d", folder, 2 * i + 2);
        cr_assert_str_eq(sample(path, which, NULL), texts[i], "%s", path);
    }
    cr_assert_str_neq(texts[0], texts[1]);
}

Test(sample, each_evaluation_writes_what_the_checkpoint_of_its_step_writes)
{
    expect_samples("average", "--eval.ema=true", "--ema");
    expect_samples("shards", "--parallel.strategy=zero1", "--ema=false");
}

Test(sample, a_text_at_evaluations_needs_a_gpt_that_a_worker_holds_and_characters_it_knows)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, e2e_in_root("configs/digits_mlp.yaml"), "--log.sample=40", NULL), 2);
    e2e_said(&run, "--log.sample is for a gpt whose data.train.format is text");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/char_gpt.yaml"),
                         "--log.sample=40", "--parallel.strategy=fsdp", NULL),
                 2);
    e2e_said(&run, "--log.sample needs a worker that holds the whole model");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, e2e_in_root("configs/char_gpt.yaml"), "--log.sample=40",
                         "--log.sample_prompt=\u00E9", NULL),
                 65);
    e2e_said(&run, "log.sample_prompt: byte 0: the character U+00E9 is not in the vocabulary");
    proc_free(&run);
}

Test(sample, a_run_its_checkpoint_and_its_export_write_the_same_text)
{
    struct proc run;

    train("run", NULL);
    const char *text = sample("run", "--seed", "3");
    cr_assert_str_eq(sample("run/checkpoints", "--seed", "3"), text);
    cr_assert_str_eq(sample("run/checkpoints/step_00000004", "--seed", "3"), text);
    cr_assert_str_neq(sample("run", "--seed", "4"), text);
    cr_assert_str_neq(sample("run/checkpoints/step_00000002", "--seed", "3"), text, "older ones");
    /* Several prompts, several texts: the first is that of one alone, the others are their own. */
    cr_assert_eq(e2e_run(&run, "sample", "run", "--prompt=Call me", "--prompt=The ", "--count=2",
                         "--tokens=40", "--seed=3", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_eq(strncmp(text_of(&run), text, strlen(text)), 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n----\n"), 3);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n----\nThe "), 2);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), text), 1, "another text each");
    proc_free(&run);
    text = sample("run", "--temperature", "0");
    cr_assert_str_eq(sample("run", "--top_k", "1"), text, "the likeliest of one");

    cr_assert_eq(e2e_run(&run, "export", "run", "hub", NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "hub: 28 tensors of run/checkpoints/step_00000004/model.safetensors as f32");
    proc_free(&run);
    cr_assert(strstr(e2e_read("hub/config.json"), "\"n_embd\": 16,\n") != NULL);
    /* Its characters came along; a folder that is not empty is left alone unless it is forced. */
    cr_assert_eq(
        e2e_run(&run, "sample", "hub", "--prompt=Call me", "--tokens=40", "--temperature=0", NULL),
        0, "%s", ct_buf_str(&run.text));
    cr_assert_str_eq(text_of(&run), text);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "export", "run", "hub", NULL), 73);
    e2e_said(&run, "hub is not empty; --force overwrites what is there");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "export", "run", "hub", "--force", NULL), 0);
    proc_free(&run);
    cr_assert_eq(unlink("hub/characters.txt"), 0);
    cr_assert_eq(e2e_run(&run, "sample", "hub", NULL), 2, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "name GPT-2's vocab.bpe with --merges");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "sample", "hub", "--config", "run/config.yaml", "--prompt=Call me",
                         "--tokens=40", "--temperature=0", NULL),
                 0);
    cr_assert_str_eq(text_of(&run), text);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "export", "run", "half", "--dtype=bf16", "--ema", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
    train("next", "--model.init_from=half");

    /* In parts, with an index. */
    cr_assert_eq(e2e_run(&run, "export", "run", "parts", "--max_shard_size=8KB", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert(e2e_exists("parts/model.safetensors.index.json"));
    cr_assert_not(e2e_exists("parts/model.safetensors"));
    cr_assert_eq(e2e_run(&run, "sample", "parts", "--config", "run/config.yaml", "--prompt=Call me",
                         "--tokens=40", "--temperature=0", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_str_eq(text_of(&run), text);
    proc_free(&run);
}

/* The shipped configuration, but for the sizes that cost time; whatever bytes a model writes. */
Test(sample, gpt2s_configuration_trains_on_its_tokens_and_writes_them)
{
    struct proc run;
    char text[4096];

    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", e2e_in_root("configs/gpt2_124m.yaml"),
                         "--model.layers=1", "--model.heads=1", "--model.width=8",
                         "--model.context=8", "--data.train.split=0,0.001",
                         "--data.eval.split=0.9999,1", "--train.steps=2", "--schedule.warmup=0",
                         NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "sample", "gpt2_124m", "--prompt=Ahab’s whale, 1851", "--tokens=30",
                         "--top_p=0.9", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_eq(strncmp(text_of(&run), "Ahab’s whale, 1851", 20), 0, "%s", ct_buf_str(&run.text));
    cr_assert_gt(strlen(text_of(&run)), 20 + 30, "a token is a byte or more");
    (void)snprintf(text, sizeof text, "%s", text_of(&run));
    proc_free(&run);
    /* What was exported needs no configuration, and a folder of the hub brings its merges. */
    cr_assert_eq(e2e_run(&run, "export", "runs/gpt2_124m", "hub", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(symlink(e2e_in_root("configs/data/gpt2.bpe.gz"), "hub/merges.txt"), 0);
    cr_assert_eq(e2e_run(&run, "sample", "hub", "--prompt=Ahab’s whale, 1851", "--tokens=30",
                         "--top_p=0.9", NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_str_eq(text_of(&run), text);
    proc_free(&run);
}

Test(sample, what_cannot_be_done_is_said_in_one_sentence)
{
    static const struct {
        const char *words[4];
        int status;
        const char *says;
    } rows[] = {
        {{"sample"}, 2, "sample: error: name a run's folder, a checkpoint or a configuration"},
        {{"sample", "run", "--token=3"}, 2, "unknown option --token; did you mean --tokens?"},
        {{"sample", "run", "--tokens=x"}, 2, "--tokens wants a whole number, not \"x\""},
        {{"sample", "run", "--top_p=2"}, 2, "--top_p 2: it is above 0 and at most 1"},
        {{"sample", "run", "--seed"}, 2, "--seed wants a value: a whole number"},
        {{"sample", "run", "twice"}, 2, "\"twice\" is one word too many"},
        {{"sample", "no/run"}, 66, "no/run: there is no such run, checkpoint or file"},
        {{"sample", "."}, 66, ".: no config.yaml there or above it: name the run's configuration"},
        {{"sample", "run", "--prompt=\xe6\x97\xa5"}, 65, "the character U+65E5 is not in the"},
        {{"sample", "run", "--count=0"}, 2, "--count 0: it is 1 or more"},
        {{"export", "run", "hub", "--max_shard_size=big"},
         2,
         "--max_shard_size wants a size such as"},
        {{"export", "run"}, 2, "name a run, checkpoint or configuration, and the folder to write"},
        {{"export", "run", "hub", "--dtype=f8"}, 2, "--dtype \"f8\": it is f32, bf16 or f16"},
    };
    struct proc run;

    train("run", NULL);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const char *const *w = rows[i].words;

        cr_assert_eq(e2e_run(&run, w[0], w[1], w[2], w[3], NULL), rows[i].status, "%s",
                     ct_buf_str(&run.text));
        e2e_said(&run, rows[i].says);
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
        proc_free(&run);
    }
    const char *digits = e2e_in_root("configs/digits_mlp.yaml");
    cr_assert_eq(e2e_run(&run, "sample", digits, NULL), 69);
    e2e_said(&run, "digits_mlp.yaml: model.type is mlp, but this is for a gpt");
    proc_free(&run);
}

Test(sample, a_signal_ends_the_text_after_the_token_at_hand)
{
    struct proc run;

    train("run", NULL);
    e2e_start(&run, "sample", "run", "--prompt=Call me", "--tokens=1000000000", NULL);
    (void)proc_wait_text(&run, "Call me", 60);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 60), 128 + SIGINT, "%s", ct_buf_str(&run.text));
    cr_assert_eq(run.text.data[run.text.size - 1], '\n');
    proc_free(&run);
}
