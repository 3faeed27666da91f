/* ctrun bench: measure this job's machines. `bench collectives` starts a job whose workers are this
 * program itself, as `bench worker`; what it does not know are options of `run`. */
#include "cli/commands.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "collectives/bench/bench.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(int code, const struct ct_error *err)
{
    return ct_command_fail("ctrun bench", code, err->text);
}

static int work(int argc, char **argv)
{
    struct ct_bench_options options;
    struct ct_error err = {0};
    struct ct_job *job = NULL;
    int code = ct_bench_read(argc, (const char *const *)argv, &options, &err);

    if (code == 0)
        code = ct_job_open(&job, &err);
    if (code == 0)
        code = options.tune ? ct_bench_tune(job, &options, stdout, &err)
                            : ct_bench_run(job, &options, stdout, &err);
    if (code != 0 && job != NULL)
        (void)ct_job_failure(job, &err);
    ct_job_close(job);
    return code == 0 ? 0 : fail(code, &err);
}

static bool has_option(int argc, char **argv, const char *option)
{
    for (int i = 0; i < argc; i++)
        if (ct_starts_with(argv[i], option))
            return true;
    return false;
}

static int argument_count(int argc, char **argv)
{
    return ct_bench_option_words(argc, (const char *const *)argv);
}

/* ctrun [options of run] --no_python ctrun bench worker [options of the bench], in `arguments`,
 * which has room for `argc` and 8 more. Returns how many; *ret_own is where the bench's begin. */
static int split_arguments(int argc, char **argv, char *self, char **arguments, int *ret_own)
{
    static char plain[] = "--log_line_prefix_template= ", no_python[] = "--no_python",
                two[] = "--nproc_per_node=2", bench[] = "bench", worker[] = "worker";
    char *const between[] = {no_python, self, bench, worker};
    int count = 0;

    arguments[count++] = bench;
    if (!has_option(argc, argv, "--nproc"))
        arguments[count++] = two;
    arguments[count++] = plain;
    for (int i = 0, taken; i < argc; i += CT_MAX(taken, 1)) {
        taken = argument_count(argc - i, argv + i);
        if (taken == 0)
            arguments[count++] = argv[i];
    }
    for (size_t i = 0; i < CT_COUNT(between); i++)
        arguments[count++] = between[i];
    *ret_own = count;
    for (int i = 0, taken; i < argc; i += CT_MAX(taken, 1)) {
        taken = argument_count(argc - i, argv + i);
        for (int j = 0; j < taken; j++)
            arguments[count++] = argv[i + j];
    }
    return count;
}

/* What is wrong with the bench's own words is said once, and not by every worker. */
static int launch(int argc, char **argv)
{
    struct ct_bench_options options;
    struct ct_error err = {0};
    char self[PATH_MAX] = "";
    char **arguments = calloc((size_t)argc + 8, sizeof *arguments);
    int own, status;

    if (arguments == NULL || readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        free(arguments);
        (void)ct_error_set(&err, CT_EUNAVAILABLE, "this program's own path cannot be read");
        return fail(CT_EUNAVAILABLE, &err);
    }
    int count = split_arguments(argc, argv, self, arguments, &own);
    int code = ct_bench_read(count - own, (const char *const *)arguments + own, &options, &err);
    status = code == 0 ? ct_run_job(count, arguments, true) : fail(code, &err);
    free(arguments);
    return status;
}

int ct_cmd_bench(int argc, char **argv)
{
    struct ct_error err = {0};

    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return work(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "collectives") == 0)
        return launch(argc - 2, argv + 2);
    (void)ct_error_set(&err, CT_EUSAGE, "usage: ctrun bench collectives [OPTIONS]");
    return fail(CT_EUSAGE, &err);
}
