/* The YAML front end: what is refused, in which words, at which place. */
#include "config_test.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(yaml, .timeout = 30);

/* A minimal file that is complete. */
#define GOOD "model: {classes: 10}\ndata: {train: {path: d.csv}}\n"

static const struct {
    const char *yaml, *complaints;
} refused[] = {
    {"", "a.yaml: the file is empty; it may hold: seed, launch, model, data, optim, schedule, "
         "batch, parallel, collectives, memory, train, eval, checkpoint, log, check\n"},
    {"# only a comment\n",
     "a.yaml: the file is empty; it may hold: seed, launch, model, data, optim, schedule, "
     "batch, parallel, collectives, memory, train, eval, checkpoint, log, check\n"},
    {"~", "a.yaml: the file is empty; it may hold: seed, launch, model, data, optim, schedule, "
          "batch, parallel, collectives, memory, train, eval, checkpoint, log, check\n"},
    {"\x7f"
     "ELF\x02\x01\x01",
     "a.yaml: this is no text file: byte 0x02 at offset 4; a YAML file is UTF-8\n"},
    {"seed: \xff\n", "a.yaml: this is no text file: byte 0xff at offset 6; a YAML file is UTF-8\n"},
    {"model:\n\ttype: mlp\n", "a.yaml:2:1: a tab indents this line; YAML wants spaces there\n"},
    {"model:\n  \ttype: [\n", "a.yaml:2:3: a tab indents this line; YAML wants spaces there\n"},
    {"optim: {lr: 1\n", "a.yaml:2:1: this is not valid YAML: did not find expected ',' or '}' "
                        "while parsing a flow mapping\n"},
    {"- a\n",
     "a.yaml:1:1: the file must hold keys (seed, launch, model, data, optim, schedule, "
     "batch, parallel, collectives, memory, train, eval, checkpoint, log, check), not a list\n"},
    {"hello\n", "a.yaml:1:1: the file must hold keys (seed, launch, model, data, optim, schedule, "
                "batch, parallel, collectives, memory, train, eval, checkpoint, log, check), not a "
                "single value\n"},
    {GOOD "---\nseed: 2\n", "a.yaml:3:1: a second document begins here; one is enough\n"},
    /* keys */
    {"model: {hiden: [8]}\n", "a.yaml:1:9: unknown key model.hiden; did you mean model.hidden?\n"},
    {"modle: {hidden: [8]}\n", "a.yaml:1:1: unknown key modle; did you mean model?\n"},
    {"lr: 3\n", "a.yaml:1:1: unknown key lr; did you mean optim.lr?\n"},
    {"optim: {weight-decay: 3}\n",
     "a.yaml:1:9: unknown key optim.weight-decay; did you mean optim.weight_decay?\n"},
    {"optim.lr: 3\n", "a.yaml:1:1: unknown key optim.lr; did you mean optim.lr?\n"},
    {"train: {zzzzzz: {a: [1, {b: c}]}}\n", "a.yaml:1:9: unknown key train.zzzzzz; train has: "
                                            "epochs, steps, precision, rounding, device, "
                                            "loss_scale, loss_scale_every, skip_nonfinite\n"},
    {"train: {\"a\\e[31mb\": 1}\n", "a.yaml:1:9: unknown key train.a?[31mb; train has: epochs, "
                                    "steps, precision, rounding, device, "
                                    "loss_scale, loss_scale_every, skip_nonfinite\n"},
    {"? [a, b]\n: 3\n", "a.yaml:1:3: a key must be a plain word\n"},
    {"seed: 1\nseed: 2\n", "a.yaml:2:1: seed is given twice, first on line 1\n"},
    {"optim: {lr: 1}\noptim: {eps: 1}\n", "a.yaml:2:1: optim is given twice, first on line 1\n"},
    {"optim: {lr: x, lr: 1}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3, not \"x\"\n"
                                "a.yaml:1:16: optim.lr is given twice, first on line 1\n"},
    /* shapes */
    {"optim: 3\n",
     "a.yaml:1:8: optim wants keys below it (type, lr, momentum, nesterov, betas, eps, "
     "weight_decay, no_decay, freeze, lr_factors, ema, clip), not a single value or a list\n"},
    {"data: [a, [b]]\n",
     "a.yaml:1:7: data wants keys below it (train, eval), not a single value or a list\n"},
    {"optim: {lr: {a: 1}}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3, not a mapping\n"},
    {"optim: {lr: [1]}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3, not a list\n"},
    {"optim: {lr: \"1\"}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3 without quotes\n"},
    {"optim: {lr: }\n", "a.yaml:1:13: optim.lr has no value; give it one or remove the line\n"},
    {"optim: {lr: Null}\n", "a.yaml:1:13: optim.lr has no value; give it one or remove the line\n"},
    {"optim: {betas: [0.9, [1], 2]}\n",
     "a.yaml:1:22: optim.betas has something else than a plain value in its list\n"},
    {"optim: {betas: [0.9]}\n", "a.yaml:1:16: optim.betas wants a list of two numbers such as "
                                "[0, 0.8], not 1 of them\n"},
    {"model: {hidden: \"64\"}\n",
     "a.yaml:1:17: model.hidden wants a list of whole numbers such as [64, 32], not \"64\"\n"},
    {"model: {layers: {a: 1}}\n",
     "a.yaml:1:17: model.layers wants a number, or a list of layers such as [flatten, {linear: "
     "10}], not a mapping\n"},
    {"model: {layers: [a, {b: 1, b: 2}]}\n",
     "a.yaml:1:28: model.layers says the same name twice\n"},
    {"model: {layers: [a, *b]}\n", "a.yaml:1:21: model.layers has an alias; aliases are not "
                                   "supported, write the value out\n"},
    {"model: {layers: [a: ]}\n", "a.yaml:1:21: model.layers has a part without a value; give it "
                                 "one or remove it\n"},
    {"model: {layers: [!!str a]}\n", "a.yaml:1:18: model.layers has a tag; remove it\n"},
    {"model: {layers: [a\n", "a.yaml:2:1: this is not valid YAML: did not find expected ',' or ']' "
                             "while parsing a flow sequence\n"},
    {"optim:\n  type: adamw\n   lr: 1\n",
     "a.yaml:3:6: this is not valid YAML: mapping values are not allowed in this context\n"},
    {"model: {layers: [[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]}\n",
     "a.yaml:1:33: model.layers is nested too deep\n"},
    {"model: {classes: 2, hidden: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}\n"
     "data: {train: {path: d}}\n",
     "a.yaml:1:29: model.hidden has 17 elements, more than the limit of 16\n"},
    {"optim: {lr: &x 1, eps: *x}\n",
     "a.yaml:1:24: optim.eps is an alias; aliases are not supported, write the value out\n"},
    {"optim: {lr: !!float 3}\n",
     "a.yaml:1:13: optim.lr has a tag (tag:yaml.org,2002:float); remove it\n"},
    {"checkpoint: {dir: \"a\\0b\"}\n", "a.yaml:1:19: checkpoint.dir holds a NUL character\n"},
    /* values */
    {"optim: {lr: fast}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3, not \"fast\"\n"},
    {"optim: {lr: -1}\n", "a.yaml:1:13: optim.lr must be from 0 to 1000, not -1\n"},
    {"optim: {lr: nan}\n", "a.yaml:1:13: optim.lr wants a number such as 1e-3, not \"nan\"\n"},
    {"optim: {momentum: 1}\n",
     "a.yaml:1:19: optim.momentum must be at least 0 and below 1, not 1\n"},
    {"optim: {eps: 0}\n", "a.yaml:1:14: optim.eps must be above 0 and at most 1, not 0\n"},
    {"optim: {clip: -3}\n", "a.yaml:1:15: optim.clip must be at least 0, not -3\n"},
    {"data: {train: {std: 0}}\n", "a.yaml:1:21: data.train.std must be above 0, not 0\n"},
    {"seed: 1.5\n", "a.yaml:1:7: seed wants a whole number, not \"1.5\"\n"},
    {"seed: 9223372036854775808\n",
     "a.yaml:1:7: seed wants a whole number, not \"9223372036854775808\"\n"},
    {"optim: {type: adam}\n", "a.yaml:1:15: optim.type has no choice \"adam\"; did you mean adamw? "
                              "(choices: sgd, adamw, lion)\n"},
    {"model: {activation: selu6}\n", "a.yaml:1:21: model.activation has no choice \"selu6\"; did "
                                     "you mean relu? (choices: relu, gelu, tanh)\n"},
    {"log: {jsonl: maybe}\n", "a.yaml:1:14: log.jsonl wants true or false, not \"maybe\"\n"},
    {"parallel: {timeout: 3 days}\n",
     "a.yaml:1:21: parallel.timeout wants a duration such as 250ms, 10s or 5m, not \"3 days\"\n"},
    {"parallel: {timeout: 1ms}\n",
     "a.yaml:1:21: parallel.timeout must be from 100ms to 24h, not 1ms\n"},
    {"parallel: {bucket: 2GB}\n", "a.yaml:1:20: parallel.bucket must be from 64 to 1GB, not 2GB\n"},
    {"eval: {every: 2 weeks}\n", "a.yaml:1:15: eval.every wants a number of steps, or of epochs "
                                 "such as \"2 epochs\", not \"2 weeks\"\n"},
    {"launch: {nnodes: 2:x}\n",
     "a.yaml:1:18: launch.nnodes wants a number or MIN:MAX, not \"x\"\n"},
};

Test(yaml, each_wrong_file_gets_its_sentence_and_place)
{
    for (size_t i = 0; i < CT_COUNT(refused); i++) {
        struct loaded *l = load_yaml(refused[i].yaml);
        cr_assert_str_eq(complaints(l), refused[i].complaints, "\"%s\":\n%s", refused[i].yaml,
                         complaints(l));
        cr_assert_eq(l->code, CT_ECONFIG, "\"%s\"", refused[i].yaml);
        cr_assert_eq(ct_exit_status(l->code), 2);
        unload(l);
    }
}

Test(yaml, all_errors_of_a_file_are_reported)
{
    struct loaded *l = load_yaml("seed: x\noptim: {lr: y}\nbatch: {globl: 3, micro: 5}\n");

    cr_assert_str_eq(complaints(l),
                     "a.yaml:1:7: seed wants a whole number, not \"x\"\n"
                     "a.yaml:2:13: optim.lr wants a number such as 1e-3, not \"y\"\n"
                     "a.yaml:3:9: unknown key batch.globl; did you mean batch.global?\n"
                     "a.yaml:3:26: batch.micro must divide batch.global (32), which 5 does not; "
                     "4 would\n",
                     "%s", complaints(l));
    unload(l);
}

Test(yaml, beyond_the_limit_errors_are_counted)
{
    struct ct_buf text = {0};

    for (int i = 0; i < CT_CONFIG_ERRORS_MAX + 7; i++)
        (void)ct_buf_printf(&text, "unheard%dof: 1\n", i);
    struct loaded *l = load_yaml(ct_buf_str(&text));
    cr_assert_eq(l->errs.count, CT_CONFIG_ERRORS_MAX);
    cr_assert_eq(l->errs.dropped, 7);
    cr_assert_not_null(strstr(complaints(l), "\nand 7 more\n"));
    unload(l);
    ct_buf_deinit(&text);
}

Test(yaml, thirty_two_levels_are_deep_enough)
{
    char text[200];

    for (int levels = 31; levels <= 32; levels++) {
        (void)snprintf(text, sizeof text, "x: %.*s\n", levels,
                       "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
        struct loaded *l = load_yaml(text);
        const char *deep = strstr(complaints(l), "nested deeper than 32 levels");
        cr_assert_eq(deep != NULL, levels == 32, "%s", complaints(l));
        unload(l);
    }
}

Test(yaml, aliases_cannot_blow_up)
{
    struct ct_buf text = {0};

    (void)ct_buf_puts(&text, GOOD "a0: &a0 [x, x]\n");
    for (int i = 1; i < 40; i++)
        (void)ct_buf_printf(&text, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1);
    struct loaded *l = load_yaml(ct_buf_str(&text));
    cr_assert_eq(l->errs.count + l->errs.dropped, 40);
    cr_assert_lt(l->cfg.arena.used_bytes, 256 * 1024);
    unload(l);
    ct_buf_deinit(&text);
}

Test(yaml, a_complete_file_loads_without_a_word)
{
    struct loaded *l = load_yaml(GOOD "optim: {lr: 1e-2, betas: [0.8, 0.9]}\n"
                                      "eval: {every: 2 epochs}\n"
                                      "launch: {nproc_per_node: 2, grace: 250ms}\n");

    cr_assert_str_eq(complaints(l), "");
    cr_assert_eq(l->cfg.model.classes, 10);
    cr_assert_eq(l->cfg.optim.lr, 1e-2);
    cr_assert_eq(l->cfg.optim.betas.at[1], 0.9);
    cr_assert_eq(l->cfg.eval.every.count, 2);
    cr_assert_eq(l->cfg.eval.every.unit, CT_CONFIG_EPOCHS);
    cr_assert_str_eq(l->cfg.launch.nproc_per_node, "2");
    cr_assert_eq(l->cfg.launch.grace_ms, 250);
    cr_assert_str_eq(l->cfg.command.file, "a.yaml");
    unload(l);
}

/* ---- files ---------------------------------------------------------------------------------- */

static char folder[64];

static void enter(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ctrun-config-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

static void leave(void)
{
    cr_assert_eq(chdir("/"), 0);
    cr_assert_eq(ct_fs_remove_tree(folder), 0);
}

TestSuite(yaml_file, .init = enter, .fini = leave, .timeout = 30);

static void write_file(const char *path, const char *text, size_t size)
{
    cr_assert_eq(ct_fs_replace(path, text, size, NULL), 0, "%s", path);
}

static void expect_refusal(const char *path, const char *sentence, int code)
{
    struct loaded *l = load(&(struct given){.path = path});

    cr_assert_str_eq(complaints(l), sentence);
    cr_assert_eq(l->code, code, "%d", l->code);
    unload(l);
}

Test(yaml_file, files_that_cannot_be_read_are_inputs_that_are_not_there)
{
    static char large[(1 << 20) + 1];

    expect_refusal("none.yaml", "none.yaml: cannot be opened: No such file or directory\n",
                   CT_ENOINPUT);
    cr_assert_eq(mkdir("folder.yaml", 0755), 0);
    expect_refusal("folder.yaml", "folder.yaml: cannot be read: Is a directory\n", CT_ENOINPUT);
    memset(large, '#', sizeof large);
    write_file("large.yaml", large, sizeof large);
    expect_refusal("large.yaml", "large.yaml: larger than the limit of 1048576 bytes\n",
                   CT_ECONFIG);
}

Test(yaml_file, one_mebibyte_is_small_enough)
{
    static char large[1 << 20];

    memset(large, '#', sizeof large);
    memcpy(large, GOOD, strlen(GOOD));
    write_file("large.yaml", large, sizeof large);
    struct loaded *l = load(&(struct given){.path = "large.yaml"});
    cr_assert_str_eq(complaints(l), "");
    unload(l);
}

Test(yaml_file, munge_in_place_of_a_key_file_is_no_path)
{
    static const char text[] = GOOD "launch: {key_file: \"munge:\"}\n";
    struct ct_buf printed;

    cr_assert_eq(mkdir("sub", 0755), 0);
    write_file("sub/a.yaml", text, strlen(text));
    struct loaded *l = load(&(struct given){.path = "sub/a.yaml"});
    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.launch.key_file, "munge:");
    ct_buf_init(&printed, 0);
    ct_config_print(&l->cfg, "/home/me", &printed);
    cr_assert_not_null(strstr(ct_buf_str(&printed), "key_file: \"munge:\""), "%s",
                       ct_buf_str(&printed));
    ct_buf_deinit(&printed);
    unload(l);
}

Test(yaml_file, inputs_start_at_the_folder_of_the_file_and_outputs_do_not)
{
    static const char text[] = "model: {classes: 10}\n"
                               "data: {train: {path: data/d.csv}, eval: {path: /abs/d.csv}}\n"
                               "checkpoint: {dir: ckpt}\n";
    static const char *const env[] = {"CTRUN_DATA_EVAL_PATH=mine/e.csv", NULL};

    cr_assert_eq(mkdir("sub", 0755), 0);
    write_file("sub/a.yaml", text, strlen(text));
    struct loaded *l = load(&(struct given){.path = "sub/a.yaml"});
    cr_assert_str_eq(l->cfg.data.train.path, "sub/data/d.csv");
    cr_assert_str_eq(l->cfg.data.eval.path, "/abs/d.csv");
    cr_assert_str_eq(l->cfg.checkpoint.dir, "ckpt");
    unload(l);
    l = load(&(struct given){.path = "sub/a.yaml", .env = env});
    cr_assert_str_eq(l->cfg.data.eval.path, "mine/e.csv", "the environment knows no folder");
    unload(l);
    cr_assert_eq(chdir("sub"), 0);
    l = load(&(struct given){.path = "a.yaml"});
    cr_assert_str_eq(l->cfg.data.train.path, "data/d.csv");
    unload(l);
}
