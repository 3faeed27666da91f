/* Runs of trainings, each in a folder of its own below the working directory:
 *
 *     runs/NAME/2026-11-23_20-15-04/     config.yaml, run.json, metrics.jsonl, checkpoints/, trace/
 *     runs/NAME/2026-11-23_20-15-04-2/   began in the same second
 *     runs/NAME/latest                   a link to the newest
 *
 * NAME is that of the YAML file; the rest is the local date and time. No run writes into another's
 * folder: only a restart of the same job, or `ctrun resume`, goes on in one. */
#ifndef CT_TRAIN_RUNS_H
#define CT_TRAIN_RUNS_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define CT_RUNS_FOLDER "runs"
#define CT_RUNS_LATEST "latest"

/* ---- names (pure) ---------------------------------------------------------------------------- */

/* Write the name of the run that begins at `local`, the `number`th of that second (from 1). */
void ct_run_name(const struct tm *local, unsigned number, char name[64]);

/* Return the title of the run in `folder`: "NAME/RUN" for "runs/NAME/RUN", else the path itself. */
const char *ct_run_title(const char *folder);

/* ---- what is known of a run: run.json ------------------------------------------------------- */

enum ct_run_how { CT_RUN_RUNNING, CT_RUN_FINISHED, CT_RUN_INTERRUPTED, CT_RUN_FAILED };

/* Return "running", "finished", "interrupted" or "failed": the word in run.json. */
const char *ct_run_how_text(enum ct_run_how how);

struct ct_run_record {
    char id[128];  /* "<job>/<16 hex digits>": it is in each checkpoint of the run, too */
    char job[132]; /* launch.rdzv_id, under Slurm the job's id */
    char command[2048];
    char directory[PATH_MAX]; /* the working directory */
    char version[32];         /* of ctrun */
    char commit[72];          /* git's, of the working directory; "" without one */
    char host[256];
    int64_t pid;      /* of ctrun, on that host */
    uint64_t started; /* seconds since 1970 */
    uint64_t starts;  /* 1, and one more each time that it went on */
    uint64_t steps;   /* of the whole training */
    enum ct_run_how how;
    uint64_t ended;   /* seconds since 1970, unless it is running */
    uint64_t seconds; /* that it ran, all starts together; up to its last end */
    uint64_t began;   /* seconds since 1970: of the last start */
    uint64_t step;    /* the last completed one that was heard of */
    uint64_t status;  /* exit status */
    char cause[512];  /* of a failure: one sentence */
};

/* Read FOLDER/run.json. CT_ENOINPUT, CT_EDATA. */
int ct_run_record_read(const char *folder, struct ct_run_record *ret, struct ct_error *err);

/* Write it, whole or not at all. CT_ECANTCREAT, CT_EIO. */
int ct_run_record_write(const char *folder, const struct ct_run_record *record,
                        struct ct_error *err);

/* Record the end of the run in `folder` at `now` (seconds since 1970): `how`, `step` unless 0,
 * `status` and `cause`. A folder without run.json is not changed. */
int ct_run_record_end(const char *folder, const struct ct_run_record *end, uint64_t now,
                      struct ct_error *err);

/* Return git's checked-out commit of the working directory or a parent, in hex; "" if none. Reads
 * git's files, runs no program. */
void ct_run_commit(char commit[72]);

/* ---- folders -------------------------------------------------------------------------------- */

/* Make a new folder in `base` ("runs/NAME") for the run that begins at `now`, and have `latest`
 * name it. CT_ECANTCREAT. */
int ct_runs_make(const char *base, time_t now, char ret_folder[PATH_MAX], struct ct_error *err);

/* Find the newest run in `base`: that of `latest`, or else the last by name. */
bool ct_runs_newest(const char *base, char ret_folder[PATH_MAX]);

/* Find the newest run in `base` whose record has this job. */
bool ct_runs_of_job(const char *base, const char *job, char ret_folder[PATH_MAX]);

/* Find a run by name: NAME (its newest), NAME/RUN, RUN, a path, or "": the newest of all. 0;
 * CT_ENOTFOUND with the accepted forms. */
int ct_runs_find(const char *words, char ret_folder[PATH_MAX], struct ct_error *err);

/* List the folders of all runs below `base`, or with NULL of all names, oldest first; the caller
 * frees the array. CT_ENOMEM. A missing folder has none. */
int ct_runs_list(const char *base, char (**ret_folders)[PATH_MAX], size_t *ret_count);

#endif
