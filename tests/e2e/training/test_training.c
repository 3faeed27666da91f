/* The main job on real digits: what it reaches, which bits it gives, what it survives.
 *
 * Equality of runs is asserted on the checkpoint's model.safetensors and optim.safetensors, byte
 * for byte. Rows E1, E7, E9 and E15 of the equivalence table, through the real binaries. */
#include "e2e.h"
#include "faults/drill.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/hash.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

TestSuite(training, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

/* A short training on the shipped digits: 3 epochs, 60 steps each, a checkpoint at each epoch. */
static const char short_yaml[] = "seed: 3\n"
                                 "model: {type: mlp, hidden: [32, 24], classes: 10}\n"
                                 "data:\n"
                                 "  train: {format: csv, path: digits.csv.gz, scale: 0.0625, "
                                 "split: [0, 0.8]}\n"
                                 "  eval: {format: csv, path: digits.csv.gz, scale: 0.0625, "
                                 "split: [0.8, 1]}\n"
                                 "optim: {type: adamw, lr: 3e-3, clip: 1.0}\n"
                                 "schedule: {type: cosine, warmup: 10}\n"
                                 "batch: {global: 24, micro: 3}\n"
                                 "parallel: {reduce: invariant}\n"
                                 "train: {epochs: 3}\n"
                                 "checkpoint: {every: 1 epoch, keep: 10}\n";

static const char *short_config(void)
{
    char command[PATH_MAX + 64];

    (void)snprintf(command, sizeof command, "cp '%s' digits.csv.gz",
                   e2e_in_root("configs/data/digits.csv.gz"));
    cr_assert_eq(system(command), 0);
    return e2e_write("short.yaml", short_yaml);
}

/* The newest checkpoint folder below `dir`. */
static const char *newest(const char *dir)
{
    static char path[PATH_MAX];
    char best[NAME_MAX + 1] = "";
    DIR *listing = opendir(dir);

    cr_assert_not_null(listing, "%s", dir);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strncmp(entry->d_name, "step_", 5) == 0 && strchr(entry->d_name, '.') == NULL &&
            strcmp(entry->d_name, best) > 0)
            (void)snprintf(best, sizeof best, "%s", entry->d_name);
    (void)closedir(listing);
    cr_assert_str_neq(best, "", "no checkpoint in %s", dir);
    cr_assert_lt(snprintf(path, sizeof path, "%s/%s", dir, best), PATH_MAX);
    return path;
}

static uint64_t file_hash(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct ct_error err = {0};
    struct ct_buf content;

    ct_buf_init(&content, 0);
    cr_assert_lt(snprintf(path, sizeof path, "%s/%s", folder, name), PATH_MAX);
    cr_assert_eq(ct_fs_read(path, 1u << 26, &content, &err), 0, "%s", err.text);
    uint64_t hash = ct_hash64(content.data, content.size, 0);
    ct_buf_deinit(&content);
    return hash;
}

/* The bits of the newest checkpoint: parameters and moments. */
static uint64_t bits_of(const char *dir)
{
    const char *folder = newest(dir);

    return file_hash(folder, "model.safetensors") ^ (3 * file_hash(folder, "optim.safetensors"));
}

/* Train `config` on `workers` with up to two more options; the bits of the last checkpoint. */
static uint64_t train_bits(const char *config, const char *workers, const char *name,
                           const char *const more[])
{
    struct proc run;
    char dir[64];
    char log[64];
    const char *argv[16] = {proc_program("ctrun"), "--nproc_per_node", workers};
    int count = 3;

    (void)snprintf(dir, sizeof dir, "--checkpoint.dir=%s", name);
    (void)snprintf(log, sizeof log, "--log.dir=%s.run", name);
    argv[count++] = dir;
    argv[count++] = log;
    while (more != NULL && *more != NULL)
        argv[count++] = *more++;
    argv[count] = config;
    cr_assert_eq(proc_run(&run, argv, NULL, 120), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    return bits_of(name);
}

Test(training, the_main_job_reaches_its_accuracy_with_two_workers)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--checkpoint.dir=ckpt", "--log.dir=run",
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&run.text));
    cr_assert_geq(proc_number_after(&run, "\naccuracy"), 96.5, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "samples/s");
    e2e_said(&run, "ckpt");
    e2e_said(&run, "metrics.jsonl");
    cr_assert(e2e_exists("run/metrics.jsonl"));
    proc_free(&run);
}

Test(training, one_two_and_four_workers_give_the_same_bits_in_invariant_mode)
{
    const char *config = short_config();
    uint64_t one = train_bits(config, "1", "one", NULL);

    cr_assert_eq(train_bits(config, "2", "two", NULL), one);
    cr_assert_eq(train_bits(config, "4", "four", NULL), one);
    const char *const other[] = {"--seed=4", NULL};
    cr_assert_neq(train_bits(config, "1", "other", other), one, "another seed, other bits");
}

Test(training, stages_of_a_pipeline_have_the_bits_of_one_worker)
{
    const char *config = short_config();
    const char *const plain[] = {"--optim.clip=0", NULL};
    const char *const stages[] = {"--optim.clip=0", "--parallel.pipeline=2", NULL};
    const char *const chunks[] = {
        "--optim.clip=0",      "--parallel.pipeline=2",   "--parallel.schedule=interleaved",
        "--parallel.chunks=2", "--model.hidden=32,24,16", NULL};
    uint64_t bits = train_bits(config, "1", "plain", plain);
    struct proc run;

    cr_assert_eq(train_bits(config, "2", "stages", stages), bits);
    cr_assert_eq(train_bits(config, "4", "both", stages), bits, "two ranks a stage");
    cr_assert_neq(train_bits(config, "2", "chunks", chunks), bits, "another model");
    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "4", "--parallel.pipeline=4", config, NULL), 2);
    e2e_said(&run, "the pipeline wants 4 parts of the model (parallel.pipeline times "
                   "parallel.chunks), which can be cut into 3 at most");
    proc_free(&run);
}

Test(training, buckets_overlap_and_backend_change_no_bit)
{
    const char *config = short_config();
    const char *const small[] = {"--parallel.bucket=1KB", "--parallel.first_bucket=256", NULL};
    const char *const serial[] = {"--parallel.overlap=false", NULL};
    const char *const tcp[] = {"--parallel.backend=tcp", NULL};
    uint64_t bits = train_bits(config, "2", "plain", NULL);

    cr_assert_eq(train_bits(config, "2", "small", small), bits);
    cr_assert_eq(train_bits(config, "2", "serial", serial), bits);
    cr_assert_eq(train_bits(config, "2", "tcp", tcp), bits);
}

/* The last value of `key` in the metrics of a run. */
static double last_metric(const char *path, const char *key)
{
    const char *text = e2e_read(path);
    const char *at = NULL;
    char quoted[64];

    (void)snprintf(quoted, sizeof quoted, "\"%s\":", key);
    for (const char *next = strstr(text, quoted); next != NULL; next = strstr(next + 1, quoted))
        at = next + strlen(quoted);
    cr_assert_not_null(at, "no %s in %s", quoted, path);
    return strtod(at, NULL);
}

Test(training, three_workers_give_the_same_loss_within_rounding)
{
    const char *config = short_config();
    const char *const few[] = {"--train.steps=20", "--batch.micro=4", NULL};

    (void)train_bits(config, "1", "one", few);
    double one = last_metric("one.run/metrics.jsonl", "loss");
    (void)train_bits(config, "3", "three", few);
    double three = last_metric("three.run/metrics.jsonl", "loss");
    cr_assert_gt(one, 0.1);
    cr_assert_lt(fabs(one - three) / one, 1e-5, "%.9g %.9g", one, three);
}

Test(training, a_resumed_run_equals_the_uninterrupted_one)
{
    const char *config = short_config();
    const char *const half[] = {"--schedule.type=constant", "--train.steps=80", NULL};
    const char *const whole[] = {"--schedule.type=constant", "--train.steps=150", NULL};

    uint64_t bits = train_bits(config, "2", "whole", whole);
    (void)train_bits(config, "2", "parts", half);
    cr_assert_neq(bits_of("parts"), bits);
    const char *const rest[] = {"--schedule.type=constant", "--train.steps=150",
                                "--checkpoint.resume=auto", NULL};
    cr_assert_eq(train_bits(config, "2", "parts", rest), bits);
}

Test(training, a_checkpoint_of_two_workers_is_resumed_by_four)
{
    const char *config = short_config();
    const char *const half[] = {"--schedule.type=constant", "--train.steps=80", NULL};
    const char *const rest[] = {"--schedule.type=constant", "--train.steps=150",
                                "--checkpoint.resume=auto", NULL};

    uint64_t bits = train_bits(config, "2", "whole", rest);
    (void)train_bits(config, "2", "parts", half);
    cr_assert_eq(train_bits(config, "4", "parts", rest), bits);
}

/* A pid of a ctworker of this run: the n-th child of ctrun. */
static pid_t worker_of(const struct proc *run, int nth)
{
    char path[64];
    pid_t pid = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)run->pid, (int)run->pid);
    const char *text = e2e_read(path);
    for (int i = 0; i <= nth; i++) {
        char *end = NULL;
        pid = (pid_t)strtol(text, &end, 10);
        if (end == text)
            return 0;
        text = end;
    }
    return pid;
}

static bool has_checkpoint(void *context)
{
    return e2e_exists(e2e_in_folder(context));
}

/* Kill one worker once the first checkpoint exists; the training is long enough to be under way. */
static void kill_a_worker(struct proc *run)
{
    proc_until(has_checkpoint, (char[]){"killed/latest"}, 60, "the first checkpoint");
    pid_t worker = worker_of(run, 1);
    cr_assert_gt(worker, 0);
    cr_assert_eq(kill(worker, SIGKILL), 0);
}

Test(training, a_killed_worker_costs_one_restart_and_no_bit)
{
    const char *config = short_config();
    const char *const longer[] = {"--train.epochs=40", NULL};
    struct proc run;
    uint64_t bits = train_bits(config, "2", "whole", longer);

    e2e_start(&run, "--nproc_per_node", "2", "--max_restarts=1", "--train.epochs=40",
              "--checkpoint.dir=killed", "--log.dir=killed.run", config, NULL);
    kill_a_worker(&run);
    cr_assert_eq(proc_finish(&run, 120), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "restart");
    cr_assert_eq(bits_of("killed"), bits);
    proc_free(&run);
}

Test(training, beyond_the_budget_the_summary_names_the_worker)
{
    const char *config = short_config();
    struct proc run;

    e2e_start(&run, "--nproc_per_node", "2", "--train.epochs=4000", "--checkpoint.dir=killed",
              "--log.dir=killed.run", config, NULL);
    kill_a_worker(&run);
    cr_assert_eq(proc_finish(&run, 60), 128 + SIGKILL, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "SIGKILL");
    e2e_said(&run, "rank ");
    proc_free(&run);
}

Test(training, control_c_in_a_training_ends_in_under_two_seconds)
{
    const char *config = short_config();
    struct proc run;

    e2e_start(&run, "--nproc_per_node", "2", "--train.epochs=4000", "--checkpoint.dir=killed",
              "--log.dir=killed.run", config, NULL);
    proc_until(has_checkpoint, (char[]){"killed/latest"}, 60, "the first checkpoint");
    double start = proc_now_s();
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 10), 130);
    cr_assert_lt(proc_now_s() - start, 2);
    proc_free(&run);
}

/* No rank holds the whole state, so all of them save it together before they end. */
static void stop_and_look(const char *strategy)
{
    const char *config = short_config();
    struct proc run;
    unsigned long long step = 0;
    char option[64], folder[64];

    (void)snprintf(option, sizeof option, "--parallel.strategy=%s", strategy);
    e2e_start(&run, "--nproc_per_node=2", "--train.epochs=40000", "--checkpoint.dir=stopped",
              "--checkpoint.keep=2", "--log.dir=stopped.run", option, config, NULL);
    proc_until(has_checkpoint, (char[]){"stopped/latest"}, 60, "the first checkpoint");
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 30), 128 + SIGTERM, "%s", ct_buf_str(&run.text));
    const char *said = strstr(ct_buf_str(&run.text), "stopped after step ");
    cr_assert(said != NULL && sscanf(said, "stopped after step %llu of", &step) == 1, "%s: %s",
              strategy, ct_buf_str(&run.text));
    (void)snprintf(folder, sizeof folder, "stopped/step_%08llu", step);
    cr_assert_str_eq(newest("stopped"), folder, "%s", strategy);
    proc_free(&run);
    cr_assert_eq(system("rm -r stopped stopped.run"), 0);
}

Test(training, a_stop_saves_a_state_that_workers_hold_in_parts)
{
    static const char *const strategies[] = {"zero1", "fsdp", "ps"};

    for (size_t i = 0; i < CT_COUNT(strategies); i++)
        stop_and_look(strategies[i]);
}

/* Change one byte in the middle of a file, or cut the file there. */
static void damage(const char *path, bool cut)
{
    struct ct_error err = {0};
    struct ct_buf content;

    ct_buf_init(&content, 0);
    cr_assert_eq(ct_fs_read(path, 1u << 26, &content, &err), 0, "%s", err.text);
    content.data[content.size / 2] ^= 1;
    cr_assert_eq(ct_fs_replace(path, content.data, cut ? content.size / 2 : content.size, &err), 0);
    ct_buf_deinit(&content);
}

static void expect_refused_checkpoint(const char *config, const char *hint)
{
    struct proc run;

    int status = e2e_run(&run, "--nproc_per_node", "2", "--train.steps=90", "--checkpoint.dir=c",
                         "--log.dir=run", hint, config, NULL);
    cr_assert_eq(status, 65, "status %d:\n%s", status, ct_buf_str(&run.text));
    proc_free(&run);
}

Test(training, damaged_and_foreign_checkpoints_are_refused)
{
    const char *config = short_config();
    const char *const few[] = {"--train.steps=80", NULL};
    char path[PATH_MAX + 32];

    (void)train_bits(config, "2", "c", few);
    expect_refused_checkpoint(config, "--model.hidden=32,16");
    (void)snprintf(path, sizeof path, "%s/model.safetensors", newest("c"));
    damage(path, false);
    expect_refused_checkpoint(config, "--seed=3");
    damage(path, true);
    expect_refused_checkpoint(config, "--seed=3");
    drill_fact(24, "a flipped bit, a cut file: both refused by name");
}

Test(training, a_full_disk_while_checkpointing_keeps_the_old_one)
{
    const char *config = short_config();
    struct proc run;

    cr_assert_eq(system("mkdir small"), 0);
    if (mount("tmpfs", "small", "tmpfs", 0, "size=64k") != 0)
        cr_skip_test("skipped: mounting a small file system needs root");
    int status = e2e_run(&run, "--nproc_per_node", "2", "--checkpoint.dir=small/c",
                         "--model.hidden=512,512", "--log.dir=run", config, NULL);
    (void)umount2("small", MNT_DETACH);
    cr_assert_eq(status, 74, "status %d:\n%s", status, ct_buf_str(&run.text));
    e2e_said(&run, "No space left");
    e2e_said(&run, "small/c");
    drill_fact(23, "exit status 74, the file is named");
    proc_free(&run);
}

Test(training, metrics_hold_each_step_once)
{
    const char *config = short_config();
    const char *const few[] = {"--train.steps=30", "--log.every=1", "--log.tensorboard=true", NULL};
    struct proc find;

    (void)train_bits(config, "2", "m", few);
    const char *text = e2e_read("m.run/metrics.jsonl");
    for (int step = 1; step <= 30; step++) {
        char key[32];
        (void)snprintf(key, sizeof key, "\"step\":%d,", step);
        cr_assert_geq(e2e_count(text, key), 1, "%s", key);
    }
    const char *const list[] = {"sh", "-c", "ls m.run | grep tfevents", NULL};
    cr_assert_eq(proc_run(&find, list, NULL, 10), 0, "%s", ct_buf_str(&find.text));
    proc_free(&find);
}

Test(training, the_trainer_runs_alone_without_ctrun)
{
    const char *config = short_config();
    const char *const argv[] = {proc_program("ctworker"),
                                "--train.steps=20",
                                "--log.dir=run",
                                "--checkpoint.dir=c",
                                config,
                                NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 60), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "accuracy");
    proc_free(&run);
}
