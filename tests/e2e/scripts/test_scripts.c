/* How the scripts count: scripts/run-tests, with test programs that only pretend, and
 * scripts/sum-tests. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(scripts, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* A program of 5 tests in Criterion's words. `shaky/one` and `shaky/two` pass when they run alone,
 * as a machine that stood still would have it; `broken/all` never does with TEST_BROKEN. */
static const char pretender[] =
    "#!/bin/bash\n"
    "sum() { echo \"[====] Synthesis: Tested: $1 | Passing: $2 | Failing: $3 | Crashing: 0\"; }\n"
    "filter=\n"
    "while [ $# -gt 0 ]; do [ \"$1\" != --filter ] || filter=$2; shift; done\n"
    "case $filter in\n"
    "shaky/*) sum 1 1 0 ;;\n"
    "broken/*) sum 1 0 1; exit 1 ;;\n"
    "*) echo '[FAIL] shaky::one: (0.10s)'; echo '[FAIL] shaky::two: (0.10s)'\n"
    "   [ -z \"$TEST_BROKEN\" ] || { echo '[FAIL] broken::all: (0.10s)'; sum 5 2 3; exit 1; }\n"
    "   sum 5 3 2; exit 1 ;;\n"
    "esac\n";

/* Run the pretender by scripts/run-tests and return the exit status; `last` is the last line. */
static int run_tests(struct proc *run, const char *repeats, const char *broken, const char **last)
{
    char sums[PATH_MAX];
    const char *const env[] = {repeats, broken, "TEST_SKIP=none", sums, NULL};
    const char *const argv[] = {e2e_in_root("scripts/run-tests"), e2e_in_folder(""),
                                "unit_pretender", NULL};

    (void)snprintf(sums, sizeof sums, "TEST_SUMS=%s", e2e_in_folder("sums"));
    (void)mkdir("tests", 0700);
    (void)e2e_script("tests/unit_pretender", pretender);
    int status = proc_run(run, argv, env, 60);
    *last = strstr(ct_buf_str(&run->text), "[====] Synthesis: Tested: 5 | Passing: ");
    for (const char *next = *last; next != NULL; next = strstr(next + 1, "[====] "))
        *last = next;
    cr_assert_not_null(*last, "%s", ct_buf_str(&run->text));
    cr_assert_str_eq(e2e_read(e2e_in_folder("sums")), *last);
    return status;
}

Test(scripts, tests_that_passed_alone_are_counted_and_named_in_the_last_line)
{
    struct proc run;
    const char *last;

    cr_assert_eq(run_tests(&run, "TEST_REPEAT=2", "TEST_BROKEN=", &last), 0, "%s",
                 ct_buf_str(&run.text));
    cr_assert_str_eq(last, "[====] Synthesis: Tested: 5 | Passing: 5 | Failing: 0 | Crashing: 0 | "
                           "Repeated: 2 (shaky/one, shaky/two)\n");
    proc_free(&run);
}

Test(scripts, more_failures_than_repeats_fail_the_run)
{
    struct proc run;
    const char *last;

    cr_assert_eq(run_tests(&run, "TEST_REPEAT=1", "TEST_BROKEN=", &last), 1);
    cr_assert_str_eq(last, "[====] Synthesis: Tested: 5 | Passing: 3 | Failing: 2 | Crashing: 0 | "
                           "Repeated: 0\n");
    e2e_said(&run, "failed: shaky::one shaky::two");
    proc_free(&run);
}

Test(scripts, what_fails_alone_too_fails_the_run_and_nothing_counts_as_repeated)
{
    struct proc run;
    const char *last;

    cr_assert_eq(run_tests(&run, "TEST_REPEAT=3", "TEST_BROKEN=1", &last), 1);
    cr_assert_str_eq(last, "[====] Synthesis: Tested: 5 | Passing: 2 | Failing: 3 | Crashing: 0 | "
                           "Repeated: 0\n");
    proc_free(&run);
}

Test(scripts, the_sum_of_several_runs_names_what_each_repeated)
{
    struct proc run;
    const char *lines = e2e_write(
        "lines",
        "[====] Synthesis: Tested: 5 | Passing: 5 | Failing: 0 | Crashing: 0 | Repeated: 1 (a/b)\n"
        "[====] Synthesis: Tested: 70 | Passing: 68 | Failing: 1 | Crashing: 1\n"
        "[====] Synthesis: Tested: 900 | Passing: 900 | Failing: 0 | Crashing: 0 | Repeated: 2 "
        "(c/d, e/f)\n");
    const char *const argv[] = {e2e_in_root("scripts/sum-tests"), lines, NULL};

    cr_assert_eq(proc_run(&run, argv, NULL, 60), 0);
    cr_assert_str_eq(ct_buf_str(&run.text),
                     "[====] Synthesis: Tested: 975 | Passing: 973 | Failing: 1 | Crashing: 1 | "
                     "Repeated: 3 (a/b, c/d, e/f)\n");
    proc_free(&run);
}
