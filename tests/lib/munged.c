/* See munged.h. */
#include "munged.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

static bool is_installed(void)
{
    return access("/usr/sbin/munged", X_OK) == 0 || access("/usr/local/sbin/munged", X_OK) == 0;
}

void munged_demand(void)
{
    if (!is_installed())
        cr_skip_test("skipped: munged is not installed (scripts/deps --test)");
}

static void write_key(const char *folder)
{
    char key[128], path[PATH_MAX];
    struct ct_error err = {0};

    cr_assert_lt(snprintf(path, sizeof path, "%s/munge.key", folder), PATH_MAX);
    if (access(path, F_OK) == 0)
        return;
    cr_assert_eq(getrandom(key, sizeof key, 0), (ssize_t)sizeof key);
    cr_assert_eq(ct_fs_replace_private(path, key, sizeof key, &err), 0, "%s", err.text);
}

static bool answers(void *context)
{
    const struct munged *munged = context;

    return access(munged->socket, F_OK) == 0 || !process_runs(&munged->proc);
}

void munged_start(struct munged *munged, const char *folder)
{
    static const char *const options[][2] = {{"--key-file=", "munge.key"},
                                             {"--pid-file=", "munged.pid"},
                                             {"--seed-file=", "munge.seed"},
                                             {"--log-file=", "munged.log"}};
    char words[CT_COUNT(options)][PATH_MAX], socket[MUNGED_SOCKET + 16];
    const char *argv[CT_COUNT(options) + 5] = {"munged", "--foreground", "--force"};

    if (access("/usr/sbin/munged", X_OK) == 0)
        argv[0] = "/usr/sbin/munged"; /* a user's PATH does not have it */
    write_key(folder);
    cr_assert_lt(snprintf(munged->socket, MUNGED_SOCKET, "%s/munge.socket", folder), MUNGED_SOCKET);
    (void)snprintf(socket, sizeof socket, "--socket=%s", munged->socket);
    argv[3] = socket;
    for (size_t i = 0; i < CT_COUNT(options); i++) {
        cr_assert_lt(snprintf(words[i], PATH_MAX, "%s%s/%s", options[i][0], folder, options[i][1]),
                     PATH_MAX);
        argv[4 + i] = words[i];
    }
    proc_start(&munged->proc, argv, NULL);
    proc_until(answers, munged, 10, "a munged with a socket");
    cr_assert(process_runs(&munged->proc), "munged has ended");
}

void munged_stop(struct munged *munged)
{
    if (munged->proc.pid <= 0)
        return;
    if (process_runs(&munged->proc) && kill(munged->proc.pid, SIGTERM) == 0)
        (void)proc_finish(&munged->proc, 10);
    proc_free(&munged->proc);
    *munged = (struct munged){.socket = ""};
}
