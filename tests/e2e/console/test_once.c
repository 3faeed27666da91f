/* One error, once: the cause, where, the remedy; a traceback and a worker's own sentence stand on
 * the console one time, however many ranks have them. */
#include "e2e.h"
#include "speech.h"

#include <criterion/criterion.h>
#include <signal.h>

TestSuite(once, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* How often lines are there that the summary need not quote: a record is read alone, so it does. */
static int quoted(void)
{
    return speech_is_json() ? 2 : 1;
}

Test(once, a_data_error_is_said_once_and_the_summary_points_at_it)
{
    struct proc run;
    const char *config = e2e_write("bad.yaml", "model: {type: mlp, hidden: [4], classes: 10}\n"
                                               "data: {train: {format: csv, path: bad.csv}}\n"
                                               "train: {steps: 4}\nbatch: {global: 2}\n"
                                               "checkpoint: {every: 0}\n");

    (void)e2e_write("bad.csv", "1,2,x\n");
    cr_assert_eq(e2e_run(&run, config, NULL), 65);
    const char *text = ct_buf_str(&run.text);
    cr_assert_eq(e2e_count(text, "is not a number"), quoted(), "%s", text);
    cr_assert_eq(e2e_count(text, "exited with status 65"), 1, "%s", text);
    e2e_said(&run, "ctrun: job failed: rank 0 (node 0, host ");
    e2e_wrote(&run, "exited with status 65 (see above)\n");
    proc_free(&run);
}

/* Rank 0 alone prints what all ranks find. */
Test(once, an_error_that_all_ranks_find_is_said_once_with_the_ranks)
{
    const char *config = e2e_write("bad.yaml", "model: {type: mlp, hidden: [4], classes: 10}\n"
                                               "data: {train: {format: csv, path: bad.csv}}\n"
                                               "train: {steps: 4}\nbatch: {global: 4}\n");

    (void)e2e_write("bad.csv", "1,2,x\n");
    for (int i = 0; i < 5; i++) { /* whoever is first */
        struct proc run;
        cr_assert_eq(e2e_run(&run, "--nproc_per_node=4", config, NULL), 65);
        const char *text = ct_buf_str(&run.text);
        int count = e2e_count(text, "is not a number"); /* rank 0 may end before it says so */
        cr_assert(count >= 1 && count <= quoted(), "%s", text);
        proc_free(&run);
    }
}

/* Its lines are written by a shell, as Python writes them: not every machine has one. */
#define TRACEBACK                                                                               \
    "#!/bin/sh\nprintf '%s\\n' 'Traceback (most recent call last):' '  File \"p.py\", line 3' " \
    "'ValueError: bad shape' >&2\nexit 1\n"

Test(once, a_traceback_is_shown_once_and_its_last_line_beside_the_rank)
{
    struct proc run;
    const char *fail = e2e_script("fail", TRACEBACK);

    cr_assert_eq(e2e_run(&run, fail, NULL), 1);
    const char *text = ct_buf_str(&run.text);
    cr_assert_eq(e2e_count(text, "Traceback (most recent"), quoted(), "%s", text);
    cr_assert_eq(e2e_count(text, "job failed: rank 0 (node 0, host "), 1, "%s", text);
    e2e_wrote(&run, "exited with status 1\n  | ValueError: bad shape\n");
    e2e_not_said(&run, "Root Cause");
    proc_free(&run);
}

Test(once, a_traceback_that_went_to_a_file_is_quoted_in_the_summary)
{
    struct proc run;
    const char *fail = e2e_script("fail", TRACEBACK);

    cr_assert_eq(e2e_run(&run, "--redirects=3", "--log_dir=logs", fail, NULL), 1);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "Traceback (most recent"), 1, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "exited with status 1\n  | Traceback (most recent call last):\n  |   File ");
    e2e_wrote(&run, "Root Cause (first observed failure):\n");
    proc_free(&run);
}

Test(once, a_kill_is_said_once)
{
    struct proc run;
    const char *fail = e2e_script("fail", "#!/bin/sh\necho step 7\nkill -KILL $$\n");

    cr_assert_eq(e2e_run(&run, fail, NULL), 128 + SIGKILL);
    const char *text = ct_buf_str(&run.text);
    cr_assert_eq(e2e_count(text, "SIGKILL"), 1, "%s", text);
    cr_assert_eq(e2e_count(text, "step 7"), quoted(), "%s", text);
    e2e_said(&run, "  hint: often the out-of-memory killer; check dmesg\n");
    proc_free(&run);
}
