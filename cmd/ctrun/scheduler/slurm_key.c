/* The key of a job under Slurm, in a home directory that all nodes share; see slurm_layer.h. */
#include "slurm_layer.h"

#include "base/clock.h"
#include "base/fs.h"
#include "keys/key.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_MS = 50, /* how often to look: no file system tells another machine's news */
    REPORT_MS = 1000,
};

static bool is_there(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0;
}

/* The directory of `path`, open to this user alone when it has to be made. */
static int make_directory(const char *path, struct ct_error *err)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path) >= PATH_MAX)
        return ct_error_set(err, CT_ECANTCREAT, "the path %.60s... is too long for a key", path);
    if (is_there(directory))
        return 0;
    int rc = ct_fs_make_dirs(directory, err);
    if (rc == 0)
        (void)chmod(directory, 0700);
    return rc;
}

/* The key appears whole, under its name, or not at all. */
static int make_key(const char *path, struct ct_error *err)
{
    char fresh[PATH_MAX];
    int rc = make_directory(path, err);

    if (rc != 0)
        return rc;
    if (snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= PATH_MAX)
        return ct_error_set(err, CT_ECANTCREAT, "the path %.60s... is too long for a key", path);
    (void)unlink(fresh);
    rc = ct_net_key_new(fresh, err);
    if (rc == 0 && rename(fresh, path) != 0) {
        rc = ct_error_set(err, CT_ECANTCREAT, "%s cannot be renamed to %s: %s", fresh, path,
                          strerror(errno));
        (void)unlink(fresh);
    }
    return rc;
}

int slurm_key_make(const char *path, struct ct_error *err)
{
    struct ct_key key = {.kind = CT_KEY_SECRET};
    int rc = is_there(path) ? ct_net_key_load(path, &key, err) : make_key(path, err);

    ct_net_key_wipe(&key);
    if (rc != 0)
        return ct_error_prefix(err, "no key for the nodes of this job (or give --key_file)");
    return 0;
}

int slurm_key_await(const struct ct_log *log, const char *path, const char *host, int64_t limit_ms,
                    struct ct_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    int64_t begin_ms = (int64_t)ct_clock_mono_ms(&ct_clock_system), waited_ms = 0;
    bool allocation = false;

    while (!is_there(path)) {
        waited_ms = (int64_t)ct_clock_mono_ms(&ct_clock_system) - begin_ms;
        if (waited_ms >= limit_ms)
            return ct_error_set(err, CT_ETIMEOUT,
                                "%s has not made the job's key, or %s is not shared with it: "
                                "make a key that all nodes can read with `ctrun key new FILE` "
                                "and give --key_file FILE",
                                host, path);
        if (!allocation && waited_ms >= REPORT_MS) {
            allocation = true;
            ct_log_event(log, CT_LOG_INFO, "waiting", "waiting for %s to make the job's key, %s",
                         host, path);
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}
