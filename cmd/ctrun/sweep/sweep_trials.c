/* See sweep_trials.h. */
#include "cmd/ctrun/sweep/sweep_trials.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cmd/ctrun/cli/commands.h"
#include "cmd/ctrun/sweep/sweep_results.h"
#include "launch/spawn.h"
#include "train/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 200 };

/* ---- what a trial has done ------------------------------------------------------------------ */

static void note_evaluation(struct sweep *sweep, int i, const char *line, size_t size)
{
    struct sweep_trial *facts = &sweep->facts[i];
    json_t *root = json_loadb(line, size, 0, NULL);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const json_t *value = json_object_get(root, sweep->metric);
    uint64_t step = (uint64_t)json_integer_value(json_object_get(root, "step"));

    if (kind != NULL && strcmp(kind, "eval") == 0) {
        double number = json_is_number(value) ? json_number_value(value) : NAN;
        bool better = facts->evaluations == 0 || isnan(facts->best) ||
                      (sweep->rules.higher ? number > facts->best : number < facts->best);

        facts->last = number;
        if (better && !isnan(number)) {
            facts->best = number;
            facts->best_step = step;
        } else if (facts->evaluations == 0) {
            facts->best = number;
        }
        facts->evaluations++;
        facts->step = CT_MAX(facts->step, step);
        ct_sweep_note(&sweep->rules, &sweep->trials[i], step, facts->steps, number);
    }
    json_decref(root);
}

/* Read the whole lines that have come since; of a file that was cut, all. */
static void read_metrics(struct sweep *sweep, int i)
{
    struct sweep_trial *facts = &sweep->facts[i];
    char path[PATH_MAX + 16], *line = NULL;
    struct stat info;
    size_t room = 0;
    ssize_t size;

    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", facts->folder);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fstat(fileno(file), &info) == 0 && info.st_size < facts->read) {
        facts->read = 0;
        facts->evaluations = 0;
    }
    (void)fseeko(file, facts->read, SEEK_SET);
    while ((size = getline(&line, &room, file)) > 0 && line[size - 1] == '\n') {
        facts->read += size;
        if (strstr(line, "\"eval\"") != NULL)
            note_evaluation(sweep, i, line, (size_t)size);
    }
    free(line);
    (void)fclose(file);
}

static void read_trial(struct sweep *sweep, int i)
{
    struct sweep_trial *facts = &sweep->facts[i];
    struct ct_run_record *record = calloc(1, sizeof *record);

    if (record != NULL && ct_run_record_read(facts->folder, record, NULL) == 0) {
        facts->steps = record->steps;
        if (!sweep->trials[i].running) {
            sweep->trials[i].finished = record->how == CT_RUN_FINISHED;
            facts->step = CT_MAX(facts->step, record->step);
        }
    }
    free(record);
    if (facts->steps > 0)
        read_metrics(sweep, i);
}

void sweep_read(struct sweep *sweep)
{
    for (int i = 0; i < sweep->rules.trials; i++)
        read_trial(sweep, i);
}

/* ---- processes ------------------------------------------------------------------------------ */

/* Append a word; its place is known once the buffer stands still. */
static void put_word(struct ct_buf *buf, const char *name, const char *value)
{
    (void)ct_buf_printf(buf, "--%s=%s", name, value);
    (void)ct_buf_append(buf, "", 1);
}

/* The GPUs of a seat. */
static void put_devices(const struct sweep *sweep, int seat, struct ct_buf *buf)
{
    (void)ct_buf_puts(buf, "--devices=");
    for (int i = 0; i < sweep->workers; i++)
        (void)ct_buf_printf(buf, "%s%d", i > 0 ? "," : "", seat * sweep->workers + i);
    (void)ct_buf_append(buf, "", 1);
}

int sweep_words(const struct sweep *sweep, int trial, int seat, struct ct_buf *buf, char **argv)
{
    static char name[] = "ctrun";
    int count = 0;

    ct_buf_clear(buf);
    put_word(buf, "log.dir", sweep->facts[trial].folder);
    put_word(buf, "checkpoint.dir", "auto");
    put_word(buf, "checkpoint.resume", "auto");
    put_word(buf, "log.overwrite", "true");
    if (seat >= 0)
        put_word(buf, "standalone", "true");
    if (seat >= 0 && sweep->gpus)
        put_devices(sweep, seat, buf);
    for (int i = 0; i < sweep->axis_count; i++)
        put_word(buf, sweep->axes[i].key,
                 ct_sweep_grid_value(sweep->axes, sweep->axis_count, trial, i));
    argv[count++] = name;
    for (int i = 0; i < sweep->word_count; i++)
        argv[count++] = sweep->words[i];
    for (size_t at = 0; at < buf->size; at += strlen(buf->data + at) + 1)
        argv[count++] = buf->data + at;
    argv[count++] = (char *)(uintptr_t)sweep->file;
    argv[count] = NULL;
    return count;
}

static int free_seat(const struct sweep *sweep)
{
    bool taken[SWEEP_SEATS] = {false};
    int seat = 0;

    for (int i = 0; i < sweep->rules.trials; i++)
        if (sweep->facts[i].pid != 0)
            taken[sweep->facts[i].seat] = true;
    while (taken[seat])
        seat++;
    CT_ASSERT(seat < sweep->rules.seats);
    return seat;
}

/* Its console goes to a file, as several would mix on this one. */
static int open_output(const struct sweep_trial *facts, struct ct_error *err)
{
    char path[PATH_MAX + 16];
    int code = ct_fs_make_dirs(facts->folder, err);

    if (code != 0)
        return code;
    (void)snprintf(path, sizeof path, "%s/output.log", facts->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return fd >= 0 ? fd
                   : ct_error_set(err, CT_ECANTCREAT, "%s: cannot be created: %s", path,
                                  strerror(errno));
}

static int start(struct sweep *sweep, int i, struct ct_error *err)
{
    struct sweep_trial *facts = &sweep->facts[i];
    char **argv = calloc((size_t)sweep->word_count + CT_SWEEP_AXES + SWEEP_OWN_WORDS, sizeof *argv);
    bool again = sweep->trials[i].passed > 0 || facts->step > 0;
    int seat = free_seat(sweep), output = open_output(facts, err), code = output;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    if (code >= 0 && argv != NULL) {
        (void)sweep_words(sweep, i, seat, &buf, argv);
        const struct ct_spawn spawn = {.path = "/proc/self/exe",
                                       .argv = argv,
                                       .envp = environ,
                                       .fds = {null, output, output, -1, -1, -1},
                                       .cpus = sweep->bound[seat] ? &sweep->cpus[seat] : NULL};
        code = ct_spawn(&spawn, &facts->pid, err);
    }
    if (code == 0) {
        facts->seat = seat;
        sweep->trials[i].running = true;
        ct_command_note("trial %d %s: %s", i, again ? "goes on" : "starts", facts->label);
    }
    ct_buf_deinit(&buf);
    free(argv);
    if (output >= 0)
        (void)close(output);
    if (null >= 0)
        (void)close(null);
    return code;
}

/* A stop is in order: the trial saves a checkpoint. */
static void stop(struct sweep *sweep, int i)
{
    if (sweep->facts[i].pid != 0 && !sweep->trials[i].stopping)
        (void)kill(sweep->facts[i].pid, SIGTERM);
    sweep->trials[i].stopping = sweep->facts[i].pid != 0;
}

static void note_end(struct sweep *sweep, int i, int status)
{
    struct ct_sweep_trial *trial = &sweep->trials[i];
    struct sweep_trial *facts = &sweep->facts[i];
    bool stopped = trial->stopping && status == 128 + SIGTERM;

    facts->pid = 0;
    facts->status = status;
    trial->running = trial->stopping = false;
    read_trial(sweep, i);
    trial->failed = status != 0 && !stopped;
    if (trial->failed)
        ct_command_note("trial %d failed with status %d (%s): see %s/output.log", i, status,
                        facts->label, facts->folder);
    else if (trial->finished)
        ct_command_note("trial %d finished: %s: %s %.4g", i, facts->label, sweep->metric,
                        facts->best);
}

static bool reap(struct sweep *sweep)
{
    bool any = false;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < sweep->rules.trials; i++)
            if (sweep->facts[i].pid == pid) {
                note_end(sweep, i,
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
                any = true;
            }
    return any;
}

/* ---- the sweep ------------------------------------------------------------------------------ */

static void tell_out(const struct sweep *sweep, int i)
{
    const struct ct_sweep_trial *trial = &sweep->trials[i];
    int rung = sweep->decisions[i].out;

    if (trial->failed)
        return;
    ct_command_note("trial %d %s: %s: %s %.4g after 1/%d of the steps is among the worst half", i,
                    trial->finished ? "ended before it could be stopped" : "is stopped",
                    sweep->facts[i].label, sweep->metric, trial->value[rung],
                    1 << (sweep->rules.rungs - rung));
}

/* Do what is decided; *ret_left as ct_sweep_decide. */
static int act(struct sweep *sweep, int *ret_left, struct ct_error *err)
{
    struct ct_sweep_decision before[CT_SWEEP_TRIALS];
    int code = 0;

    memcpy(before, sweep->decisions, sizeof before);
    *ret_left = ct_sweep_decide(&sweep->rules, sweep->trials, sweep->decisions);
    for (int i = 0; i < sweep->rules.trials && code == 0; i++) {
        if (before[i].out < 0 && sweep->decisions[i].out >= 0)
            tell_out(sweep, i);
        if (sweep->decisions[i].order == CT_SWEEP_START)
            code = start(sweep, i, err);
        else if (sweep->decisions[i].order != CT_SWEEP_WAIT)
            stop(sweep, i);
    }
    return code;
}

static int count_running(const struct sweep *sweep)
{
    int running = 0;

    for (int i = 0; i < sweep->rules.trials; i++)
        running += sweep->trials[i].running;
    return running;
}

static void stop_all(struct sweep *sweep)
{
    for (int i = 0; i < sweep->rules.trials; i++)
        stop(sweep, i);
}

int sweep_run(struct sweep *sweep, struct ct_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    int code = 0, stopped_by = 0, left = 1;
    bool changed = true;
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)ct_sweep_decide(&sweep->rules, sweep->trials, sweep->decisions); /* told before */
    while (code == 0 || count_running(sweep) > 0) {
        if (code == 0 && stopped_by == 0)
            code = act(sweep, &left, err);
        if (code != 0 || stopped_by != 0) {
            stop_all(sweep);
            left = 0;
        }
        for (int i = 0; i < sweep->rules.trials; i++)
            changed = changed || sweep->decisions[i].order != CT_SWEEP_WAIT;
        if (changed && code == 0)
            code = sweep_results_write(sweep, err);
        if (left == 0 && count_running(sweep) == 0)
            break;
        int signo = sigtimedwait(&signals, NULL, &pause);
        stopped_by = signo == SIGINT || signo == SIGTERM ? signo : stopped_by;
        changed = reap(sweep);
        for (int i = 0; i < sweep->rules.trials; i++)
            if (sweep->trials[i].running)
                read_trial(sweep, i);
    }
    (void)sigprocmask(SIG_UNBLOCK, &signals, NULL);
    return code != 0 ? code : stopped_by;
}
