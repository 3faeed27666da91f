/* Names and folders of runs; see runs.h. */
#include "train/runs.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_A_SECOND = 1000 };

void ct_run_name(const struct tm *local, unsigned number, char name[64])
{
    char stamp[32] = "";

    (void)strftime(stamp, sizeof stamp, "%Y-%m-%d_%H-%M-%S", local);
    if (number > 1)
        (void)snprintf(name, 64, "%s-%u", stamp, number);
    else
        (void)snprintf(name, 64, "%s", stamp);
}

const char *ct_run_title(const char *folder)
{
    return ct_starts_with(folder, CT_RUNS_FOLDER "/") ? folder + sizeof CT_RUNS_FOLDER : folder;
}

static bool join(char to[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool holds(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return join(path, folder, name) && access(path, R_OK) == 0;
}

/* A training has both files, a Python script that logs (lib/python) the second alone. */
static bool is_run(const char *folder)
{
    return holds(folder, "config.yaml") || holds(folder, "run.json");
}

/* ---- a new one ------------------------------------------------------------------------------ */

/* A file system without links has no `latest`: then the last by name is the newest. */
static void point_latest(const char *base, const char *name)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    int length =
        snprintf(temporary, sizeof temporary, "%s/.%s.%ld", base, CT_RUNS_LATEST, (long)getpid());

    if (length >= PATH_MAX || !join(path, base, CT_RUNS_LATEST))
        return;
    (void)unlink(temporary);
    if (symlink(name, temporary) == 0 && rename(temporary, path) != 0)
        (void)unlink(temporary);
}

int ct_runs_make(const char *base, time_t now, char ret_folder[PATH_MAX], struct ct_error *err)
{
    char name[64], path[PATH_MAX];
    struct tm local;
    int code = ct_fs_make_dirs(base, err);

    if (code != 0)
        return code;
    (void)localtime_r(&now, &local);
    for (unsigned number = 1; number <= MOST_A_SECOND; number++) {
        ct_run_name(&local, number, name);
        if (!join(path, base, name))
            return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", base);
        if (mkdir(path, 0777) == 0) {
            point_latest(base, name);
            (void)ct_str_copy(ret_folder, PATH_MAX, path);
            return 0;
        }
        if (errno != EEXIST)
            return ct_error_set(err, CT_ECANTCREAT, "%s: cannot be made: %s", path,
                                ct_strerror(-errno));
    }
    return ct_error_set(err, CT_ECANTCREAT, "%s: too many runs began in one second", path);
}

/* ---- those that are there ------------------------------------------------------------------- */

static int compare_folders(const void *a, const void *b)
{
    return ct_natural_compare(a, b);
}

/* The runs of one name. */
static int add_runs(const char *base, struct ct_buf *to)
{
    DIR *dir = opendir(base);
    const struct dirent *entry;
    char path[PATH_MAX] = "";
    int code = 0;

    if (dir == NULL)
        return 0;
    while (code == 0 && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, CT_RUNS_LATEST) != 0 &&
            join(path, base, entry->d_name) && is_run(path))
            code = ct_buf_append(to, path, sizeof path);
    (void)closedir(dir);
    return code;
}

static int add_names(struct ct_buf *to)
{
    DIR *dir = opendir(CT_RUNS_FOLDER);
    const struct dirent *entry;
    char path[PATH_MAX];
    int code = 0;

    if (dir == NULL)
        return 0;
    while (code == 0 && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && join(path, CT_RUNS_FOLDER, entry->d_name))
            code = is_run(path) ? ct_buf_append(to, path, sizeof path) : add_runs(path, to);
    (void)closedir(dir);
    return code;
}

int ct_runs_list(const char *base, char (**ret_folders)[PATH_MAX], size_t *ret_count)
{
    struct ct_buf found;

    ct_buf_init(&found, 0);
    int code = base != NULL ? add_runs(base, &found) : add_names(&found);
    if (code != 0) {
        ct_buf_deinit(&found);
        return CT_ENOMEM;
    }
    *ret_folders = (void *)found.data;
    *ret_count = found.size / PATH_MAX;
    if (*ret_count > 0)
        qsort(*ret_folders, *ret_count, PATH_MAX, compare_folders);
    return 0;
}

/* What `latest` in `base` names. */
static bool follow_latest(const char *base, char ret_folder[PATH_MAX])
{
    char link[PATH_MAX], name[256];
    ssize_t length = join(link, base, CT_RUNS_LATEST) ? readlink(link, name, sizeof name - 1) : -1;

    name[CT_MAX(length, 0)] = '\0';
    return length > 0 && join(ret_folder, base, name) && is_run(ret_folder);
}

bool ct_runs_newest(const char *base, char ret_folder[PATH_MAX])
{
    char(*folders)[PATH_MAX] = NULL;
    size_t count = 0;

    if (follow_latest(base, ret_folder))
        return true;
    if (ct_runs_list(base, &folders, &count) != 0)
        return false;
    if (count > 0)
        (void)ct_str_copy(ret_folder, PATH_MAX, folders[count - 1]);
    free(folders);
    return count > 0;
}

bool ct_runs_of_job(const char *base, const char *job, char ret_folder[PATH_MAX])
{
    char(*folders)[PATH_MAX] = NULL;
    size_t count = 0;
    bool found = false;

    if (ct_runs_list(base, &folders, &count) != 0)
        return false;
    struct ct_run_record *record = malloc(sizeof *record);
    for (size_t i = count; record != NULL && i > 0 && !found; i--) {
        found =
            ct_run_record_read(folders[i - 1], record, NULL) == 0 && strcmp(record->job, job) == 0;
        if (found)
            (void)ct_str_copy(ret_folder, PATH_MAX, folders[i - 1]);
    }
    free(record);
    free(folders);
    return found;
}

/* ---- by words ------------------------------------------------------------------------------- */

/* The run that was started last, or `words` when it names one without its NAME. */
static bool search_all(const char *words, char ret_folder[PATH_MAX])
{
    char(*folders)[PATH_MAX] = NULL;
    size_t count = 0;
    uint64_t newest = 0;
    bool found = false;
    struct ct_run_record *record = malloc(sizeof *record);

    if (record == NULL || ct_runs_list(NULL, &folders, &count) != 0)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        bool named = words[0] == '\0' || strcmp(strrchr(folders[i], '/') + 1, words) == 0;
        if (!named || ct_run_record_read(folders[i], record, NULL) != 0 || record->started < newest)
            continue;
        newest = record->started;
        found = true;
        (void)ct_str_copy(ret_folder, PATH_MAX, folders[i]);
    }
    free(record);
    free(folders);
    return found;
}

/* "runs/NAME/latest" means what it points to, by whatever name it was reached. */
static void drop_latest(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash != NULL && slash > path && strcmp(slash + 1, CT_RUNS_LATEST) == 0)
        *slash = '\0';
}

int ct_runs_find(const char *words, char ret_folder[PATH_MAX], struct ct_error *err)
{
    char path[PATH_MAX], below[PATH_MAX] = "";

    (void)ct_str_copy(path, sizeof path, words);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    drop_latest(path);
    if (ct_starts_with(path, CT_RUNS_FOLDER "/"))
        (void)ct_str_copy(below, sizeof below, path);
    else
        (void)join(below, CT_RUNS_FOLDER, path);
    const char *const run = is_run(path) ? path : is_run(below) ? below : NULL;
    if (path[0] != '\0' && run != NULL) {
        (void)ct_str_copy(ret_folder, PATH_MAX, run);
        return 0;
    }
    if (path[0] != '\0' && (follow_latest(path, ret_folder) || ct_runs_newest(below, ret_folder)))
        return 0;
    if (search_all(path, ret_folder))
        return 0;
    if (path[0] == '\0')
        return ct_error_set(err, CT_ENOTFOUND, "there is no run in %s/ here", CT_RUNS_FOLDER);
    return ct_error_set(err, CT_ENOTFOUND, "there is no run \"%s\"; `ctrun runs` lists them", path);
}
