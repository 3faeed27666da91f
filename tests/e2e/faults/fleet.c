/* See fleet.h. */
#include "fleet.h"

#include "e2e.h"

#include "base/assert.h"
#include "base/fs.h"
#include "preload/interpose.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 16, WORD_BYTES = 256, STEPS_MAX = 4096, BATCH = 48, SLOW_MS = 8 };

static int batch_of(const struct fleet *fleet)
{
    return fleet->batch != 0 ? fleet->batch : BATCH;
}

/* ---- running -------------------------------------------------------------------------------- */

/* The options of a training, in static storage: one list at a time. */
static const char *const *options_of(const struct fleet *fleet)
{
    static char words[5][WORD_BYTES];
    static const char *list[WORDS_MAX];
    size_t count = 0;

    (void)snprintf(words[0], WORD_BYTES, "--train.steps=%d", fleet->steps);
    (void)snprintf(words[1], WORD_BYTES, "--log.dir=%s/log", e2e_in_folder(fleet->name));
    (void)snprintf(words[2], WORD_BYTES, "--checkpoint.dir=%s/ckpt", e2e_in_folder(fleet->name));
    (void)snprintf(words[3], WORD_BYTES, "--batch.global=%d", batch_of(fleet));
    (void)snprintf(words[4], WORD_BYTES, "--batch.micro=%d", FLEET_MICRO);
    for (size_t i = 0; i < CT_COUNT(words); i++)
        list[count++] = words[i];
    list[count++] = "--log.every=1";
    list[count++] = "--parallel.reduce=invariant";
    list[count++] = "--model.activation=tanh"; /* smooth: rounding does not turn a unit on */
    for (size_t i = 0; fleet->words != NULL && fleet->words[i] != NULL; i++) {
        cr_assert_lt(count + 1, CT_COUNT(list));
        list[count++] = fleet->words[i];
    }
    list[count] = NULL;
    return list;
}

static const char *program(void)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s", e2e_in_root("configs/digits_mlp.yaml"));
    return path;
}

void fleet_job(const struct fleet *fleet, struct drill_job *job)
{
    cr_assert_leq(fleet->steps, STEPS_MAX);
    job->options = options_of(fleet);
    job->program = program();
}

static struct interpose_page *disk;

void fleet_disk_slow(void)
{
    disk = drill_interpose();
    disk->metrics_ms = SLOW_MS;
}

void fleet_disk_fast(void)
{
    disk->metrics_ms = 0;
}

void fleet_run_alone(const struct fleet *fleet)
{
    const char *argv[WORDS_MAX + 4] = {proc_program("ctrun"), "--nproc_per_node=1"};
    const char *const *options = options_of(fleet);
    struct proc run;
    size_t count = 2;

    for (size_t i = 0; options[i] != NULL; i++)
        argv[count++] = options[i];
    argv[count] = program();
    cr_assert_eq(proc_run(&run, argv, NULL, 60), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

pid_t fleet_worker_now(int index)
{
    pid_t pids[64];
    int count = e2e_workers(drill_proc(index), pids, (int)CT_COUNT(pids));

    for (int i = 0; i < count; i++)
        if (proc_alive(pids[i]))
            return pids[i];
    return 0;
}

struct search {
    int index;
    pid_t found;
};

static bool has_worker(void *context)
{
    struct search *search = context;

    return (search->found = fleet_worker_now(search->index)) != 0;
}

pid_t fleet_worker(int index, double seconds)
{
    struct search search = {.index = index};

    proc_until(has_worker, &search, seconds, "a native worker");
    return search.found;
}

int fleet_finish(int index, double seconds)
{
    return proc_finish(drill_proc(index), seconds);
}

/* ---- what was written ----------------------------------------------------------------------- */

struct line {
    int step;
    long long samples; /* the sampler's position after the step */
    double loss;
    double time; /* of the wall clock */
};

static FILE *open_metrics(const struct fleet *fleet)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/log/metrics.jsonl", e2e_in_folder(fleet->name));
    return fopen(path, "re");
}

/* A whole line of a training step. */
static bool parse(const char *text, struct line *line)
{
    const char *step = strstr(text, "\"step\":");
    const char *loss = strstr(text, "\"loss\":");
    const char *samples = strstr(text, "\"samples\":");
    const char *time = strstr(text, "\"time\":");

    if (strstr(text, "\"kind\":\"train\"") == NULL || strchr(text, '\n') == NULL || step == NULL ||
        loss == NULL || samples == NULL || time == NULL)
        return false;
    line->step = atoi(step + strlen("\"step\":"));
    line->loss = strtod(loss + strlen("\"loss\":"), NULL);
    line->time = strtod(time + strlen("\"time\":"), NULL);
    line->samples = atoll(samples + strlen("\"samples\":"));
    return true;
}

static struct line last_line(const struct fleet *fleet)
{
    char text[1024];
    struct line line = {0};
    FILE *file = open_metrics(fleet);

    if (file == NULL)
        return line;
    (void)fseek(file, -4096, SEEK_END); /* fails in a shorter file: then from its begin */
    while (fgets(text, sizeof text, file) != NULL)
        (void)parse(text, &line);
    (void)fclose(file);
    return line;
}

int fleet_step(const struct fleet *fleet)
{
    return last_line(fleet).step;
}

double fleet_last_time(const struct fleet *fleet)
{
    return last_line(fleet).time;
}

struct wish {
    const struct fleet *fleet;
    int step;
};

static bool has_step(void *context)
{
    const struct wish *wish = context;

    return fleet_step(wish->fleet) >= wish->step;
}

void fleet_wait_step(const struct fleet *fleet, int step, double seconds)
{
    struct wish wish = {fleet, step};
    char what[32];

    (void)snprintf(what, sizeof what, "step %d", step);
    proc_until(has_step, &wish, seconds, what);
}

/* All lines in their order; how many. */
static int read_lines(const struct fleet *fleet, struct line lines[STEPS_MAX])
{
    char text[1024];
    int count = 0;
    FILE *file = open_metrics(fleet);

    cr_assert_not_null(file, "%s has no metrics", fleet->name);
    while (count < STEPS_MAX && fgets(text, sizeof text, file) != NULL)
        count += parse(text, &lines[count]);
    (void)fclose(file);
    return count;
}

void fleet_expect_samples(const struct fleet *fleet)
{
    enum { EPOCH = 1438 }; /* samples of the training part */
    static struct line lines[STEPS_MAX];
    long long before = 0;

    int count = read_lines(fleet, lines);
    for (int i = 0; i < count; i++) {
        long long left = EPOCH - before % EPOCH;
        cr_assert_eq(lines[i].step, i + 1, "line %d has step %d", i + 1, lines[i].step);
        cr_assert_eq(lines[i].samples - before, CT_MIN(left, (long long)batch_of(fleet)),
                     "step %d takes samples %lld to %lld", i + 1, before, lines[i].samples);
        before = lines[i].samples;
    }
    cr_assert_eq(count, fleet->steps);
}

double fleet_loss_difference(const struct fleet *a, const struct fleet *b)
{
    static struct line one[STEPS_MAX], other[STEPS_MAX];
    int count = read_lines(a, one);
    double worst = 0;

    cr_assert_eq(read_lines(b, other), count);
    for (int i = 0; i < count; i++)
        worst = fmax(worst, fabs(one[i].loss - other[i].loss));
    return worst;
}

static void read_result(const struct fleet *fleet, const char *which, struct ct_buf *to)
{
    char path[PATH_MAX];
    struct ct_error err = {0};

    ct_buf_init(to, 0);
    (void)snprintf(path, sizeof path, "%s/ckpt/step_%08d/%s.safetensors",
                   e2e_in_folder(fleet->name), fleet->steps, which);
    cr_assert_eq(ct_fs_read(path, 1 << 24, to, &err), 0, "%s", err.text);
}

bool fleet_same_result(const struct fleet *a, const struct fleet *b)
{
    static const char *const files[] = {"model", "optim"};
    bool same = true;

    for (int i = 0; i < 2; i++) {
        struct ct_buf one, other;

        read_result(a, files[i], &one);
        read_result(b, files[i], &other);
        same = same && one.size > 1000 && one.size == other.size &&
               memcmp(one.data, other.data, one.size) == 0;
        ct_buf_deinit(&one);
        ct_buf_deinit(&other);
    }
    return same;
}
