/* Bad input: each gets one clear sentence and its documented exit status, and starts nothing. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(bad_input, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static const char good[] = "model: {type: mlp, hidden: [8], classes: 10}\n"
                           "data:\n"
                           "  train: {format: csv, path: data.csv, scale: 0.0625}\n"
                           "batch: {global: 2}\n"
                           "train: {steps: 2}\n"
                           "checkpoint: {dir: ckpt}\n"
                           "log: {dir: run}\n";

static const char rows[] = "1,2,3\n4,5,1\n7,8,9\n2,2,0\n";

/* What ctrun is given, the status, and words that the sentence must have. */
static const struct bad_case {
    const char *name;
    const char *yaml; /* written to bad.yaml when not NULL */
    const char *argv[8];
    int status;
    const char *words[3];
} cases[] = {
    {"no argument", NULL, {NULL}, 2, {"program"}},
    {"missing file", NULL, {"none.yaml"}, 66, {"none.yaml", "No such file"}},
    {"directory", NULL, {"dir.yaml"}, 66, {"dir.yaml", "directory"}},
    {"missing program", NULL, {"--no-python", "./nosuch"}, 66, {"nosuch"}},
    {"binary junk",
     "\x7f"
     "ELF\x02\x01\x01\x00\xff\xfe",
     {"bad.yaml"},
     2,
     {"bad.yaml"}},
    {"empty file", "", {"bad.yaml"}, 2, {"bad.yaml"}},
    {"tabs", "model:\n\ttype: mlp\n", {"bad.yaml"}, 2, {"bad.yaml:2:1", "tab"}},
    {"unknown key", "model: {hiden: [8]}\n", {"bad.yaml"}, 2, {"bad.yaml:1:9", "hiden", "hidden"}},
    {"unknown section", "modle: {hidden: [8]}\n", {"bad.yaml"}, 2, {"bad.yaml:1:1", "model"}},
    {"the name of a section elsewhere",
     "optimizer: {lr: 1}\n",
     {"bad.yaml"},
     2,
     {"bad.yaml:1:1: unknown key optimizer", "did you mean optim?"}},
    {"the name of a key elsewhere",
     "learning_rate: 0.1\n",
     {"bad.yaml"},
     2,
     {"bad.yaml:1:1: unknown key learning_rate", "did you mean optim.lr?"}},
    {"wrong type", "optim: {lr: fast}\n", {"bad.yaml"}, 2, {"bad.yaml:1:13", "fast"}},
    {"out of range", "optim: {lr: -1}\n", {"bad.yaml"}, 2, {"bad.yaml:1:13", "optim.lr", "-1"}},
    {"duplicate key", "seed: 1\nseed: 2\n", {"bad.yaml"}, 2, {"bad.yaml:2:1", "seed"}},
    {"two documents", "seed: 1\n---\nseed: 2\n", {"bad.yaml"}, 2, {"bad.yaml"}},
    {"alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", {"bad.yaml"}, 2, {"bad.yaml"}},
    {"zero workers", NULL, {"--nproc_per_node", "0", "/bin/true"}, 2, {"nproc_per_node", "0"}},
    {"no GPUs here", NULL, {"--nproc_per_node", "gpus", "/bin/true"}, 2, {"nproc_per_node"}},
    {"nodes reversed", NULL, {"--nnodes", "3:2", "/bin/true"}, 2, {"nnodes", "3:2"}},
    {"nodes not a number", NULL, {"--nnodes", "many", "/bin/true"}, 2, {"nnodes", "many"}},
    {"unknown option", NULL, {"--nproc_per_nofe", "2", "/bin/true"}, 2, {"nproc_per_node"}},
    {"value missing", NULL, {"--nnodes"}, 2, {"nnodes"}},
    {"rank without nodes", NULL, {"--node_rank", "3", "/bin/true"}, 2, {"node_rank"}},
    {"two nodes, nowhere to meet", NULL, {"--nnodes", "2", "/bin/true"}, 2, {"rdzv_endpoint"}},
    {"a file for a folder",
     "seed: 1\n",
     {"--log_dir", "bad.yaml", "/bin/true"},
     73,
     {"bad.yaml", "file of that name"}},
    {"port too large",
     NULL,
     {"--nnodes", "2", "--rdzv_endpoint", "127.0.0.1:99999", "/bin/true"},
     2,
     {"99999"}},
    {"unresolvable host",
     NULL,
     {"--nnodes", "2", "--node_rank", "1", "--rdzv_endpoint", "no-such-host.invalid:29400",
      "--join_timeout=1s", "/bin/true"},
     2,
     {"no-such-host.invalid"}},
    {"listening beyond this machine without a key",
     NULL,
     {"--nnodes", "2", "--node_rank", "0", "--rdzv_endpoint", "0.0.0.0:0", "/bin/true"},
     77,
     {"key"}},
    {"a key that is a folder",
     NULL,
     {"--key_file", "dir.yaml", "/bin/true"},
     77,
     {"ctrun: error: key file dir.yaml is no regular file"}},
    {"a key without a byte, of one node that meets nobody",
     "",
     {"--standalone", "--key_file", "bad.yaml", "/bin/true"},
     77,
     {"ctrun: error: key file bad.yaml has 0 bytes", "ctrun key new"}},
    {"a setting of rdzv_conf that there is not",
     NULL,
     {"--rdzv_conf", "wait=1", "/bin/true"},
     2,
     {"wait", "join_timeout, timeout, last_call_timeout, rank"}},
    {"a backend that the bench does not know",
     NULL,
     {"bench", "collectives", "--backend", "smh"},
     2,
     {"ctrun bench: error: --backend: backend \"smh\" is not known", "shm"}},
    {"a backend that the bench has no device for",
     NULL,
     {"bench", "collectives", "--backend=nccl"},
     2,
     {"ctrun bench: error: --backend: backend nccl", "device"}},
    {"config of a wrong file",
     "optim: {lr: -1}\n",
     {"config", "bad.yaml"},
     2,
     {"ctrun: error: bad.yaml:1:13: optim.lr"}},
    {"a misspelt option of status",
     NULL,
     {"status", "--wach"},
     2,
     {"ctrun status: error: unknown option --wach; did you mean --watch?"}},
    {"a misspelt option of config", NULL, {"config", "--schma"}, 2, {"did you mean --schema?"}},
    {"a misspelt option of slurm", NULL, {"slurm", "--tim", "3"}, 2, {"did you mean --time?"}},
    {"a misspelt key in a plan",
     NULL,
     {"plan", "x.yaml", "--modle.hidden=3"},
     2,
     {"ctrun plan: error: unknown option --modle.hidden", "did you mean --model.hidden?"}},
    {"a version of ctrun", NULL, {"--version=3"}, 2, {"--version takes no value"}},
    {"one dash", NULL, {"-nproc_per_node", "2", "x.py"}, 2, {"two dashes: --nproc_per_node"}},
    {"a misspelt operation of the bench",
     NULL,
     {"bench", "collectives", "--op", "allreduce"},
     2,
     {"ctrun bench: error: --op \"allreduce\" is not known; did you mean all_reduce?"}},
    {"a size of the bench that is none",
     NULL,
     {"bench", "collectives", "--max", "1XB"},
     2,
     {"ctrun bench: error: --max wants a size such as 64MiB, not \"1XB\""}},
    {"no bench", NULL, {"bench"}, 2, {"usage: ctrun bench collectives [OPTIONS]"}},
    {"no key",
     NULL,
     {"key", "new"},
     2,
     {"ctrun key: error: usage: ctrun key new FILE (copy the file to every node)"}},
    {"a space too many",
     "optim:\n  type: adamw\n   lr: 1\n",
     {"bad.yaml"},
     2,
     {"ctrun: error: bad.yaml:3:6: this is not valid YAML"}},
    {"a program for Slurm that is no file here",
     NULL,
     {"slurm", "env"},
     2,
     {"ctrun: error: env is neither a subcommand nor an executable file here", "ctrun -- env"}},
    {"config of no shell", NULL, {"config", "--completion"}, 2, {"ctrun: error: --completion"}},
};

ParameterizedTestParameters(bad_input, ctrun_says_what_is_wrong)
{
    static int indices[CT_COUNT(cases)];

    for (size_t i = 0; i < CT_COUNT(cases); i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, CT_COUNT(cases));
}

static int lines_of(const char *text)
{
    return e2e_count(text, "\n");
}

ParameterizedTest(int *index, bad_input, ctrun_says_what_is_wrong)
{
    const struct bad_case *bad = &cases[*index];
    const char *argv[16] = {proc_program("ctrun")};
    struct proc run;

    if (bad->yaml != NULL)
        cr_assert_eq(chmod(e2e_write("bad.yaml", bad->yaml), 0600), 0); /* it may be a key */
    cr_assert_eq(system("mkdir -p dir.yaml"), 0);
    for (int i = 0; i < 8 && bad->argv[i] != NULL; i++)
        argv[i + 1] = bad->argv[i];
    int status = proc_run(&run, argv, NULL, 30);
    cr_assert_eq(status, bad->status, "%s: status %d:\n%s", bad->name, status,
                 ct_buf_str(&run.text));
    for (int i = 0; i < 3 && bad->words[i] != NULL; i++)
        cr_assert_not_null(strstr(ct_buf_str(&run.text), bad->words[i]), "%s: no \"%s\" in:\n%s",
                           bad->name, bad->words[i], ct_buf_str(&run.text));
    cr_assert_leq(lines_of(ct_buf_str(&run.text)), 5, "%s", ct_buf_str(&run.text));
    cr_assert_lt(run.seconds, 5);
    e2e_not_said(&run, "exit status"); /* no job began that could fail */
    proc_free(&run);
}

Test(bad_input, a_script_with_windows_line_ends_is_refused_with_the_remedy)
{
    struct proc run;
    const char *const lines[] = {"#!/bin/sh\r\ntrue\r\n", "#! /usr/bin/env python3\r\n"};

    for (size_t i = 0; i < CT_COUNT(lines); i++) {
        cr_assert_eq(chmod(e2e_write("crlf.sh", lines[i]), 0700), 0);
        cr_assert_eq(e2e_run(&run, "./crlf.sh", NULL), 66, "%s", ct_buf_str(&run.text));
        e2e_said(&run, "its first line ends in CR LF (Windows line ends): convert it, e.g. "
                       "sed -i 's/\\r$//' ./crlf.sh\n");
        e2e_not_said(&run, "exit status"); /* no job began */
        proc_free(&run);
    }
    cr_assert_eq(chmod(e2e_write("crlf.sh", "#!/usr/bin/perl -w\r\n"), 0700), 0);
    (void)e2e_run(&run, "./crlf.sh", NULL); /* perl takes that for a blank */
    e2e_not_said(&run, "CR LF");
    proc_free(&run);
}

/* What is wrong in data and checkpoints: the file's content, the status, the words. */
static const struct data_case {
    const char *name;
    const char *csv;
    const char *extra; /* one more option */
    int status;
    const char *words[3];
} data_cases[] = {
    {"unreadable data", NULL, NULL, 66, {"data.csv", "No such file", "--data.train.path=FILE"}},
    {"not a number", "1,2,3\n4,x,1\n", NULL, 65, {"data.csv:2", "x"}},
    {"NaN in data", "1,2,3\nnan,5,1\n", NULL, 65, {"data.csv:2", "nan"}},
    {"infinity in data", "1,2,3\n4,inf,1\n", NULL, 65, {"data.csv:2", "inf"}},
    {"label out of range", "1,2,3\n4,5,10\n", NULL, 65, {"data.csv:2", "10"}},
    {"negative label", "1,2,3\n4,5,-1\n", NULL, 65, {"data.csv:2", "-1"}},
    {"label not whole", "1,2,3\n4,5,1.5\n", NULL, 65, {"data.csv:2", "1.5"}},
    {"ragged row", "1,2,3\n4,5\n", NULL, 65, {"data.csv:2"}},
    {"empty data", "", NULL, 65, {"data.csv"}},
    {"batch that does not divide", rows, "--batch.global=3", 2, {"batch", "3"}},
    {"features differ", rows, "--model.input=7", 65, {"model.input is 7", "2 features"}},
    {"checkpoint that is none", rows, "--checkpoint.resume=data.csv", 65, {"data.csv"}},
    {"checkpoint that is not there", rows, "--checkpoint.resume=nosuch", 66, {"nosuch"}},
};

ParameterizedTestParameters(bad_input, the_trainer_says_what_is_wrong)
{
    static int indices[CT_COUNT(data_cases)];

    for (size_t i = 0; i < CT_COUNT(data_cases); i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, CT_COUNT(data_cases));
}

ParameterizedTest(int *index, bad_input, the_trainer_says_what_is_wrong)
{
    const struct data_case *bad = &data_cases[*index];
    const char *config = e2e_write("good.yaml", good);
    struct proc run;

    if (bad->csv != NULL)
        (void)e2e_write("data.csv", bad->csv);
    int status = e2e_run(&run, "--nproc_per_node", "2", "--max_restarts", "3",
                         bad->extra != NULL ? bad->extra : "--seed=1", config, NULL);
    cr_assert_eq(status, bad->status, "%s: status %d:\n%s", bad->name, status,
                 ct_buf_str(&run.text));
    for (int i = 0; i < 3 && bad->words[i] != NULL; i++)
        cr_assert_not_null(strstr(ct_buf_str(&run.text), bad->words[i]), "%s: no \"%s\" in:\n%s",
                           bad->name, bad->words[i], ct_buf_str(&run.text));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), bad->words[0]) > 4, 0,
                 "the sentence is not repeated without end:\n%s", ct_buf_str(&run.text));
    cr_assert_lt(run.seconds, 5, "what cannot get better is not tried again");
    proc_free(&run);
}

Test(bad_input, data_that_are_not_there_are_said_with_the_setting_that_names_them_and_their_source)
{
    const char *mnist = e2e_in_root("configs/mnist_mlp.yaml");
    const char *const argv[] = {proc_program("ctworker"),
                                "--data.train.images=none-images-idx3-ubyte", mnist, NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 20), 66);
    e2e_said(&run, "ctworker: error: none-images-idx3-ubyte: cannot be opened");
    e2e_said(&run, "--data.train.images=FILE");
    e2e_said(&run, "MNIST");
    proc_free(&run);
}

Test(bad_input, a_trainer_without_a_launcher_complains_as_every_program_does)
{
    const char *const argv[] = {proc_program("ctworker"),
                                e2e_write("bad.yaml", "optim: {lr: -1}\n"), NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 20), 2);
    e2e_said(&run, "ctworker: error: ");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "ctworker: error: "),
                 lines_of(ct_buf_str(&run.text)));
    proc_free(&run);
}

Test(bad_input, the_daemon_complains_as_every_program_does)
{
    const char *const argv[] = {proc_program("ctrund"), "--nosuch", NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 20), 2);
    e2e_said(&run, "ctrund: error: ");
    proc_free(&run);
}

Test(bad_input, every_error_of_a_file_is_reported)
{
    struct proc run;
    const char *config = e2e_write("bad.yaml", "seed: x\noptim: {lr: y}\nbatch: {globl: 3}\n");

    cr_assert_eq(e2e_run(&run, config, NULL), 2);
    e2e_said(&run, "bad.yaml:1:7");
    e2e_said(&run, "bad.yaml:2:13");
    e2e_said(&run, "bad.yaml:3:9");
    proc_free(&run);
}

Test(bad_input, the_checked_configuration_is_good_when_nothing_is_wrong)
{
    struct proc run;
    const char *config = e2e_write("good.yaml", good);

    (void)e2e_write("data.csv", rows);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", config, NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
}

Test(bad_input, a_yaml_file_above_one_mebibyte_is_refused)
{
    struct proc run;
    static char large[1200000];

    memset(large, '#', sizeof large - 2);
    cr_assert_eq(e2e_run(&run, e2e_write("large.yaml", large), NULL), 2);
    e2e_said(&run, "large.yaml");
    cr_assert_lt(run.seconds, 2);
    proc_free(&run);
}

Test(bad_input, a_yaml_file_nested_too_deeply_is_refused)
{
    struct proc run;
    char deep[400] = "";

    memset(deep, '[', 200);
    cr_assert_eq(e2e_run(&run, e2e_write("deep.yaml", deep), NULL), 2);
    e2e_said(&run, "deep.yaml");
    proc_free(&run);
}

Test(bad_input, a_misspelt_variable_of_ours_is_named)
{
    struct proc run;
    const char *const argv[] = {proc_program("ctrun"), "/bin/true", NULL};
    const char *const env[] = {"CTRUN_OPTIM_LRR=3", NULL};

    cr_assert_eq(proc_run(&run, argv, env, 10), 2);
    e2e_said(&run, "CTRUN_OPTIM_LRR");
    e2e_said(&run, "CTRUN_OPTIM_LR");
    proc_free(&run);
}

/* ---- what this machine has not -------------------------------------------------------------- */

/* By the launcher, before there is a worker. */
Test(bad_input, a_gpu_that_is_not_there_is_missed_once_with_the_remedy)
{
    static const struct {
        const char *option, *says;
    } wishes[] = {
        {"--train.device=cuda", "ctrun: error: --train.device: this ctrun was built without CUDA"},
        {"--train.device=cuda", "; or compute on the CPU (train.device: cpu)\n"},
        {"--parallel.backend=nccl",
         "ctrun: error: --parallel.backend nccl carries memory of a GPU, and this training "
         "computes on the CPU (this ctrun was built without CUDA"},
        {"--parallel.backend=staged", "; leave it out\n"},
    };

    if (access(proc_program("../lib/libctrun_cuda.so"), F_OK) == 0)
        cr_skip_test("skipped: this ctrun was built with CUDA");
    for (size_t i = 0; i < CT_COUNT(wishes); i++) {
        struct proc run;
        cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", wishes[i].option,
                             e2e_in_root("configs/digits_mlp.yaml"), NULL),
                     69, "%s", ct_buf_str(&run.text));
        e2e_said(&run, wishes[i].says);
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
        proc_free(&run);
    }
}
