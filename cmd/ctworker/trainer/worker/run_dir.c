/* See run_dir.h. */
#include "run_dir.h"

#include "agree.h"
#include "base/fs.h"
#include "base/number/rng.h"
#include "base/str.h"
#include "base/version.h"
#include "job/job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/runs.h"
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMAND_BYTES = 1 << 16 };

int ct_run_dir_path(const struct ct_run_dir *dir, const char *name, char path[PATH_MAX],
                    struct ct_error *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir->path, name) < PATH_MAX)
        return 0;
    return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", dir->path);
}

/* Where checkpoints are kept: nowhere, in the run's folder, or where the user says. */
static int place_checkpoints(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;

    if (ct_config_keeps_checkpoints_in_run(worker->cfg))
        return ct_run_dir_path(dir, "checkpoints", dir->checkpoints, err);
    if (ct_str_copy(dir->checkpoints, PATH_MAX, worker->cfg->checkpoint.dir))
        return 0;
    return ct_error_set(err, CT_ECANTCREAT, "checkpoint.dir %.64s...: the path is too long",
                        worker->cfg->checkpoint.dir);
}

/* ---- which folder --------------------------------------------------------------------------- */

/* Nobody knows the run's folder. A job that Slurm has queued again, or whose nodes have all been
 * lost, has one already. */
static int choose(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;
    bool again = ct_worker_restarted(worker) || worker->me->published_generation > 0;
    char base[PATH_MAX];

    if (worker->cfg->log.dir[0] != '\0') {
        if (ct_str_copy(dir->path, PATH_MAX, worker->cfg->log.dir))
            return 0;
        return ct_error_set(err, CT_ECANTCREAT, "log.dir %.64s...: the path is too long",
                            worker->cfg->log.dir);
    }
    ct_config_run_base(worker->cfg, base);
    if (again && ct_runs_of_job(base, worker->me->run_id, dir->path))
        return 0;
    time_t now = (time_t)(ct_clock_wall_ns(worker->clock) / 1000000000u);
    return ct_runs_make(base, now, dir->path, err);
}

/* The path of the lowest rank that knows it, or else of rank 0, to all. */
static int agree(struct ct_worker *worker, bool *ret_known, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;
    int64_t first = dir->path[0] != '\0' ? worker->me->rank : INT64_MAX;
    char path[PATH_MAX] = "";
    int code = 0, chosen = 0;

    if (worker->group != NULL)
        code = ct_all_reduce(worker->group, ct_inplace(&first, 1, CT_I64), CT_REDUCE_MIN, NULL);
    if (code != 0)
        return ct_group_explain(worker->group, code, err);
    *ret_known = first != INT64_MAX;
    if (!*ret_known && worker->me->rank == 0)
        chosen = choose(worker, err);
    (void)ct_str_copy(path, sizeof path, dir->path);
    if (worker->group != NULL)
        code = ct_broadcast(worker->group, ct_inplace(path, PATH_MAX, CT_U8),
                            *ret_known ? (int)first : 0, NULL);
    if (code != 0)
        return chosen != 0 ? chosen : ct_group_explain(worker->group, code, err);
    code = ct_agree_outcome(worker, chosen, err);
    if (code != 0)
        return code;
    if (worker->cfg->log.dir[0] == '\0' || worker->me->rank == 0)
        (void)ct_str_copy(dir->path, PATH_MAX, path);
    else if (!ct_str_copy(dir->path, PATH_MAX, worker->cfg->log.dir))
        return ct_error_set(err, CT_ECANTCREAT, "log.dir: the path is too long");
    return 0;
}

/* ---- what is in it -------------------------------------------------------------------------- */

static int write_config(const char *folder, const struct ct_config *cfg, struct ct_error *err)
{
    char path[PATH_MAX], here[PATH_MAX] = "";
    struct ct_buf text;

    if (snprintf(path, sizeof path, "%s/config.yaml", folder) >= (int)sizeof path)
        return ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", folder);
    ct_buf_init(&text, 0);
    ct_config_print_run(cfg, getcwd(here, sizeof here), &text);
    int code = ct_fs_replace(path, ct_buf_str(&text), text.size, err);
    ct_buf_deinit(&text);
    return code;
}

/* This process's words; under an agent they are ctrun's own, behind the program's name. */
static void put_command(const struct ct_worker *worker, char *to, size_t room)
{
    struct ct_buf words;
    size_t used = 0;

    ct_buf_init(&words, 0);
    if (ct_fs_read("/proc/self/cmdline", COMMAND_BYTES, &words, NULL) == 0 && words.size > 0) {
        const char *end = words.data + words.size;
        const char *name = worker->survives ? "ctrun" : words.data;

        for (const char *word = words.data; word < end && used < room; word += strlen(word) + 1) {
            const char *shown = word == words.data ? name : word;
            bool plain = shown[0] != '\0' && strpbrk(shown, " \t\n'\"\\$`*?;&|<>(){}[]!#~") == NULL;

            used += (size_t)snprintf(to + used, room - used, plain ? "%s%s" : "%s'%s'",
                                     used > 0 ? " " : "", shown);
        }
    }
    ct_buf_deinit(&words);
}

static void describe(const struct ct_worker *worker, uint64_t now_ns, struct ct_run_record *record)
{
    *record = (struct ct_run_record){.started = now_ns / 1000000000u};
    (void)snprintf(record->id, sizeof record->id, "%.100s/%016" PRIx64, worker->me->run_id,
                   ct_mix64(now_ns ^ (uint64_t)getpid() << 40));
    (void)ct_str_copy(record->job, sizeof record->job, worker->me->run_id);
    put_command(worker, record->command, sizeof record->command);
    if (getcwd(record->directory, sizeof record->directory) == NULL)
        record->directory[0] = '\0';
    ct_run_commit(record->commit);
}

/* Does the run go on that is in the folder? */
static bool goes_on(const struct ct_worker *worker, bool known)
{
    char newest[PATH_MAX];

    return known || ct_worker_restarted(worker) || worker->me->lineage > 0 ||
           worker->me->published_generation > 0 ||
           (strcmp(worker->cfg->checkpoint.resume, "none") != 0 &&
            worker->run_dir.checkpoints[0] != '\0' &&
            ct_ckpt_latest(worker->run_dir.checkpoints, newest, NULL) == 0);
}

/* Only a folder that was named can hold another run, which is replaced when the user says so, or
 * when resume: auto finds nothing of it to go on from. */
static int spare_other(const struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    const char *folder = worker->run_dir.path;
    char path[PATH_MAX];

    if (ct_run_dir_path(&worker->run_dir, "run.json", path, NULL) != 0 || access(path, F_OK) != 0)
        return 0;
    if (!cfg->log.overwrite && strcmp(cfg->checkpoint.resume, "none") == 0)
        return ct_error_set(err, CT_ECANTCREAT,
                            "log.dir: %s holds another run; name another folder, go on with "
                            "ctrun resume %s, or replace that run with --log.overwrite yes",
                            folder, folder);
    ct_log_event(worker->log, CT_LOG_WARN, "overwrites",
                 "%s holds another run, whose configuration and metrics are replaced", folder);
    return 0;
}

/* run.json: of a new run, or with one start more. */
static int note_start(struct ct_worker *worker, bool known, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;
    struct ct_run_record *record = calloc(1, sizeof *record);
    uint64_t now_ns = ct_clock_wall_ns(worker->clock);
    int code = 0;

    if (record == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the record of the run");
    if (!goes_on(worker, known)) {
        code = spare_other(worker, err);
        describe(worker, now_ns, record);
    } else if (ct_run_record_read(dir->path, record, NULL) != 0) {
        describe(worker, now_ns, record);
    }
    (void)ct_str_copy(dir->run, sizeof dir->run, record->id);
    (void)ct_str_copy(record->version, sizeof record->version, CT_VERSION);
    (void)gethostname(record->host, sizeof record->host - 1);
    record->pid = worker->survives ? getppid() : getpid();
    record->how = CT_RUN_RUNNING;
    record->steps = worker->steps;
    record->began = now_ns / 1000000000u;
    record->starts++;
    record->status = 0;
    record->cause[0] = '\0';
    if (code == 0)
        code = ct_run_record_write(dir->path, record, err);
    free(record);
    return code;
}

/* Rank 0 makes the run's folder, once. */
static int make(struct ct_worker *worker, bool known, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;
    int code = 0;

    if (worker->me->rank != 0 || dir->run[0] != '\0')
        return 0;
    code = ct_fs_make_dirs(dir->path, err);
    if (code == 0)
        code = note_start(worker, known, err);
    if (code == 0)
        code = write_config(dir->path, worker->cfg, err);
    return code;
}

int ct_run_dir_open(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_run_dir *dir = &worker->run_dir;
    bool known = false;
    int code = agree(worker, &known, err);

    if (code == 0)
        code = place_checkpoints(worker, err);
    if (code != 0)
        return code;
    code = ct_agree_outcome(worker, make(worker, known, err), err);
    if (code == 0)
        (void)ct_job_output(worker->job, dir->path);
    return code;
}
