/* See plan_calibrate.h. The workers are `ctrun plan worker PATH`, as those of `ctrun bench` are
 * `ctrun bench worker`. */
#include "plan_calibrate.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "cmd/ctrun/cli/commands.h"
#include "collectives/planner/calibrate/calibrate.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* So many ranks measure at least, so that also more than there are processors are seen. */
enum { LEAST_RANKS = 4 };

static int fail(const struct ct_error *err)
{
    return ct_command_fail("ctrun plan", err->code, err->text);
}

int ct_plan_calibrate_worker(const char *path)
{
    struct ct_error err = {0};
    struct ct_job *job = NULL;
    int code = ct_job_open(&job, &err);

    if (code == 0)
        code = ct_calibrate(job, *path != '\0' ? path : NULL, stdout, &err);
    if (code != 0 && job != NULL)
        (void)ct_job_failure(job, &err);
    ct_job_close(job);
    return code == 0 ? 0 : fail(&err);
}

static bool has_ranks(int count, char **words)
{
    for (int i = 0; i < count; i++)
        if (ct_starts_with(words[i], "--nproc"))
            return true;
    return false;
}

/* A file that is broken is said to be so before anything is measured. */
static int check_file(const char *path, struct ct_error *err)
{
    struct ct_costs *costs = calloc(1, sizeof *costs);
    char where[PATH_MAX];
    bool found;

    if (costs == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    ct_costs_path(path, where, sizeof where);
    int code =
        *where != '\0' && access(where, F_OK) == 0 ? ct_costs_load(costs, path, &found, err) : 0;
    free(costs);
    return code == CT_ENOTFOUND ? 0 : code;
}

int ct_plan_calibrate(const char *path, int count, char **words)
{
    static char anywhere[] = "--cpu_affinity=none", plan[] = "plan",
                plain[] = "--log_line_prefix_template= ", no_python[] = "--no_python",
                worker[] = "worker", nowhere[] = "";
    char self[PATH_MAX] = "", ranks[40];
    struct ct_error err = {0};
    cpu_set_t cpus;
    char **arguments = calloc((size_t)count + 10, sizeof *arguments);
    int used = 0;

    if (arguments == NULL || readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        free(arguments);
        (void)ct_error_set(&err, CT_EUNAVAILABLE, "this program's own path cannot be read");
        return fail(&err);
    }
    if (check_file(path, &err) != 0) {
        free(arguments);
        return fail(&err);
    }
    (void)snprintf(
        ranks, sizeof ranks, "--nproc_per_node=%ld",
        CT_MAX(sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (long)CPU_COUNT(&cpus) : 1,
               (long)LEAST_RANKS));
    arguments[used++] = plan;
    if (!has_ranks(count, words))
        arguments[used++] = ranks;
    arguments[used++] = plain;
    arguments[used++] = anywhere;
    for (int i = 0; i < count; i++)
        arguments[used++] = words[i];
    char *const rest[] = {no_python, self, plan, worker,
                          path != NULL ? (char *)(uintptr_t)path : nowhere};
    for (size_t i = 0; i < CT_COUNT(rest); i++)
        arguments[used++] = rest[i];
    int status = ct_run_job(used, arguments, true);
    free(arguments);
    return status;
}
