/* See harness.h. */
#include "harness.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/rng.h"
#include "base/str.h"
#include "cmd/ctworker/trainer/loop.h"
#include "cmd/ctworker/trainer/setup.h"
#include "cmd/ctworker/trainer/worker/parts.h"
#include "collectives/job/job.h"
#include "digest.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 44, WIDTH = 6, CLASSES = 3 };

static char folder[PATH_MAX], before[PATH_MAX];

/* 44 * 0.8 = 35 rows in batches of 8: the last batch of an epoch has 3. */
static const char yaml[] = "seed: 5\n"
                           "model: {type: mlp, hidden: [10], classes: 3}\n"
                           "data:\n"
                           "  train: {format: csv, path: train.csv, split: [0, 0.8]}\n"
                           "  eval: {format: csv, path: train.csv, split: [0.8, 1]}\n"
                           "optim: {type: adamw, lr: 2e-2, clip: 1.0}\n"
                           "schedule: {type: cosine, warmup: 4}\n"
                           "batch: {global: 8, micro: 2}\n"
                           "parallel: {reduce: invariant, bucket: 256, first_bucket: 64}\n"
                           "train: {epochs: 4}\n"
                           "checkpoint: {dir: ckpt, every: 1 epoch, keep: 0}\n"
                           "log: {every: 1, dir: run, overwrite: yes}\n";

void harness_write_rows(const char *path, int rows)
{
    struct ct_rng rng;
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    ct_rng_init(&rng, 1);
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < WIDTH; i++)
            (void)fprintf(file, "%.3f,",
                          (double)ct_rng_below(&rng, 1000) / 1000 + (i == row % CLASSES));
        (void)fprintf(file, "%d\n", row % CLASSES);
    }
    cr_assert_eq(fclose(file), 0);
}

void harness_enter(void)
{
    cr_assert_not_null(getcwd(before, sizeof before));
    (void)strcpy(folder, "/tmp/ct_worker_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    harness_write_rows("train.csv", ROWS);
}

void harness_leave(void)
{
    cr_assert_eq(chdir(before), 0);
    (void)ct_fs_remove_tree(folder);
}

const char *harness_root(void)
{
    return before;
}

/* A clock that counts completed steps by the calls that rank 0 makes, and asks for a stop. */
struct stopper {
    const struct ct_worker *worker;
    struct ct_stop *stop;
    uint64_t at;
};

static uint64_t stopping_ns(void *context)
{
    const struct stopper *stopper = context;

    if (stopper->at != 0 && stopper->worker->step >= stopper->at)
        stopper->stop->signal = SIGTERM;
    return ct_clock_mono_ns(&ct_clock_system);
}

static uint64_t wall_ns(void *context)
{
    (void)context;
    return ct_clock_wall_ns(&ct_clock_system);
}

static void load_config(struct ct_config *cfg, const struct training *training, bool odd)
{
    char *argv[HARNESS_OPTIONS + 2];
    int argc = 0;
    struct ct_config_errors errs = {0};

    for (int i = 0; training->options[i] != NULL; i++)
        argv[argc++] = (char *)(uintptr_t)training->options[i];
    if (odd && training->odd_option != NULL)
        argv[argc++] = (char *)(uintptr_t)training->odd_option;
    struct ct_config_input in = {.argc = argc, .argv = argv, .command_needed = training->is_file};
    if (!training->is_file) {
        in.yaml_path = "test.yaml";
        in.yaml_text = yaml;
        in.yaml_size = sizeof yaml - 1;
    }
    int code = ct_config_load(cfg, &in, &errs);
    if (code != 0)
        (void)fprintf(stderr, "harness: %s\n", errs.at[0].text);
    CT_ASSERT(code == 0);
}

/* Of the whole state, however ranks hold it. Collective where they hold parts, 0 after a failure.
 */
static uint64_t digest_of(struct ct_worker *worker, int code)
{
    struct ct_snapshot whole = {.tensors = NULL};
    uint64_t digest = 0;

    if (worker->exec == NULL || !ct_parts_held(worker))
        return worker->exec == NULL ? 0 : ct_exec_digest(worker->exec);
    if (code != 0)
        return 0;
    CT_ASSERT(ct_snapshot_init(&whole, &worker->plan, NULL) == 0);
    bool first = worker->me->rank == 0;
    if (ct_exec_collect(worker->exec, first ? whole.data : NULL, NULL) == 0 && first)
        digest = digest_of_tensors(&worker->plan, whole.data);
    (void)ct_broadcast(worker->group, ct_inplace(&digest, 1, CT_I64), 0, NULL);
    ct_snapshot_deinit(&whole);
    return digest;
}

static void keep_results(struct training *training, struct ct_worker *worker)
{
    int rank = worker->me->rank;

    training->scope[rank] = worker->scope;
    training->first_step[rank] = worker->report.first_step;
    training->step[rank] = worker->step;
    training->loss_scale[rank] = worker->scaler.scale;
    training->position[rank] = worker->position;
    training->evaluation[rank] = worker->report.evaluation;
    training->digest[rank] = digest_of(worker, training->code[rank]);
    if (rank == 0)
        (void)ct_str_copy(training->checkpoint, sizeof training->checkpoint,
                          worker->report.checkpoint);
}

/* One rank's life, as in main.c. */
static int body(struct ct_job *job, void *context)
{
    struct training *training = context;
    const struct ct_assignment *me = ct_job_assignment(job);
    bool last = me->rank == training->world - 1;
    struct ct_config cfg = {0};
    struct ct_stop stop = {.signal = 0};
    struct ct_worker worker = {.job = job, .me = me, .cfg = &cfg, .stop = &stop};
    struct stopper stopper = {&worker, &stop, training->stop_step};
    const struct ct_clock clock = {stopping_ns, wall_ns, &stopper};
    struct ct_error *err = &training->error[me->rank];

    worker.clock = &clock;
    load_config(&cfg, training, last);
    int code = ct_setup(&worker, err);
    if (code == 0 && last && training->tamper != NULL)
        training->tamper(&worker);
    if (code == 0 && training->instead != NULL)
        code = training->instead(&worker, err);
    else if (code == 0)
        code = ct_loop_run(&worker, &training->stopped[me->rank], err);
    training->code[me->rank] = code;
    keep_results(training, &worker);
    ct_setup_undo(&worker);
    ct_config_deinit(&cfg);
    return code;
}

static void set_assignment(struct ct_assignment *assignment, const struct training *training)
{
    assignment->restart_count = training->restart_count;
    assignment->published_step = training->published_step;
    assignment->published_generation = training->published_step > 0 ? 1 : 0;
}

void harness_run(struct training *training)
{
    struct ct_thread_world *world = NULL;

    cr_assert(training->world >= 1 && training->world <= HARNESS_RANKS);
    cr_assert_eq(ct_thread_world_new(training->world, &world), 0);
    for (int rank = 0; rank < training->world; rank++)
        set_assignment(&ct_thread_world_job(world, rank)->assignment, training);
    (void)thread_ranks_run(world, body, training);
    ct_thread_world_free(world);
}

uint64_t harness_train(struct training *training)
{
    harness_run(training);
    for (int rank = 0; rank < training->world; rank++) {
        cr_assert_eq(training->code[rank], 0, "rank %d: %s", rank, training->error[rank].text);
        cr_assert_eq(training->digest[rank], training->digest[0], "rank %d has other bits", rank);
        cr_assert_eq(training->step[rank], training->step[0]);
    }
    return training->digest[0];
}

struct ct_buf harness_read(const char *path)
{
    struct ct_buf buf;
    struct ct_error err = {0};

    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_read(path, 1 << 24, &buf, &err), 0, "%s", err.text);
    return buf;
}

void harness_expect_equal_files(const char *a, const char *b)
{
    struct ct_buf first = harness_read(a), second = harness_read(b);

    cr_assert_eq(first.size, second.size);
    cr_assert_eq(memcmp(first.data, second.data, first.size), 0, "%s and %s differ", a, b);
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
}
