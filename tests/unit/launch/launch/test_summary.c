/* What is said about a failure. */
#include "launch/failure/summary.h"

#include "base/assert.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

static struct ct_buf out;

static void set_up(void)
{
    ct_buf_init(&out, 0);
}

static void tear_down(void)
{
    ct_buf_deinit(&out);
}

TestSuite(summary, .timeout = 10, .init = set_up, .fini = tear_down);

static const struct ct_summary killed = {
    .cause = {.rank = 3,
              .local_rank = 1,
              .pid = 4711,
              .status = -1,
              .signal = SIGKILL,
              .host = "b",
              .text = "step 10\nstep 11\n"},
    .node = 1,
};

Test(summary, the_first_failure_is_named_with_its_last_lines)
{
    ct_summary_failed("digits", &killed, 2, 2, 137, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job \"digits\" failed: rank 3 (node 1, host b, local rank 1, pid "
                     "4711) was killed by signal 9 (SIGKILL)\n"
                     "  | step 10\n"
                     "  | step 11\n"
                     "  hint: often the out-of-memory killer; check dmesg\n"
                     "ctrun: 2 of 2 restarts were used; exit status 137\n");
}

Test(summary, one_that_hung_was_killed_by_ctrun_and_not_by_the_kernel)
{
    struct ct_summary hung = killed;

    hung.cause.code = CT_EHUNG;
    hung.cause.text = "rank 3 (host b, pid 4711) hangs outside any collective";
    ct_summary_failed("digits", &hung, 0, 0, 137, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job \"digits\" failed: rank 3 (node 1, host b, local rank 1, pid "
                     "4711) hung and was killed by ctrun\n"
                     "  | rank 3 (host b, pid 4711) hangs outside any collective\n"
                     "  hint: launch.hang_timeout sets how long a rank may give no sign of life; "
                     "with launch.log_dir its stack is kept in a file hang-*\n"
                     "ctrun: exit status 137\n");
}

Test(summary, an_exit_status_is_given_as_it_was)
{
    struct ct_summary cause = {.cause = {.pid = 7, .status = 3, .host = "", .text = ""},
                               .node = -1};

    ct_summary_failed("none", &cause, 0, 0, 3, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job failed: rank 0 (local rank 0, pid 7) exited with status 3\n");
    ct_buf_clear(&out);
    ct_summary_failed("none", &cause, 0, 0, 4, &out);
    cr_assert_not_null(strstr(ct_buf_str(&out), "status 3\nctrun: exit status 4\n"));
}

/* A worker, and whoever speaks for a node, chooses these words. */
Test(summary, no_words_of_a_failure_drive_the_terminal_or_forge_a_line)
{
    struct ct_summary summary = {
        .cause = {.rank = 1, .pid = 4, .status = 3, .text = "a\x1b[2Jb\nctrun: job done\rc\n"},
        .node = 0};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    summary.cause.host = "host";
    ct_summary_failed("none", &summary, 0, 0, 3, &text);
    cr_assert_not_null(strstr(ct_buf_str(&text), "  | a\\x1b[2Jb\n  | ctrun: job done\\x0dc\n"),
                       "%s", ct_buf_str(&text));
    summary.cause.rank = -1;
    summary.cause.text = "lost\x1b]0;title\x07\nforged";
    ct_buf_clear(&text);
    ct_summary_failed("none", &summary, 0, 0, 79, &text);
    cr_assert_str_eq(ct_buf_str(&text), "ctrun: job failed: lost\\x1b]0;title\\x07\n"
                                        "ctrun: exit status 79\n");
    ct_buf_deinit(&text);
}

Test(summary, lines_that_are_on_the_console_are_not_quoted)
{
    struct ct_summary cause = {
        .cause = {.pid = 7, .status = 3, .host = "", .text = "a.csv: empty\n"},
        .node = -1,
        .seen = true};

    ct_summary_failed("none", &cause, 0, 0, 3, &out);
    cr_assert_str_eq(ct_buf_str(&out), "ctrun: job failed: rank 0 (local rank 0, pid 7) exited "
                                       "with status 3 (see above)\n");
    ct_buf_clear(&out);
    cause.cause.signal = SIGKILL; /* what it wrote last is not why */
    ct_summary_failed("none", &cause, 0, 0, 137, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job failed: rank 0 (local rank 0, pid 7) was killed by signal 9 "
                     "(SIGKILL)\n  hint: often the out-of-memory killer; check dmesg\n"
                     "ctrun: exit status 137\n");
}

Test(summary, who_failed_for_the_same_reason_is_named_in_the_same_line)
{
    const struct ct_summary both = {.cause = {.rank = 1,
                                              .local_rank = 1,
                                              .pid = 7,
                                              .status = 65,
                                              .host = "",
                                              .text = "a.csv: empty\n"},
                                    .node = -1,
                                    .also = "ranks 0 and 2",
                                    .seen = true};

    ct_summary_failed("none", &both, 0, 0, 65, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job failed: rank 1 (local rank 1, pid 7) exited with status 65 (see "
                     "above); ranks 0 and 2 failed for the same reason\n");
}

Test(summary, one_that_never_ran_could_not_be_started)
{
    const struct ct_wire_failure failure = {.rank = 2, .local_rank = 2, .status = 66, .host = "h"};

    ct_failure_print(&failure, 0, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "rank 2 (node 0, host h, local rank 2) could not be started");
}

Test(summary, one_that_lives_but_has_lost_the_others_cannot_go_on)
{
    const struct ct_wire_failure failure = {
        .rank = 2, .local_rank = 2, .status = 75, .code = CT_EREVOKED, .host = "h"};

    ct_failure_print(&failure, 0, &out);
    cr_assert_str_eq(ct_buf_str(&out), "rank 2 (node 0, host h, local rank 2) cannot go on");
}

Test(summary, a_failure_that_is_no_workers_is_its_sentence)
{
    struct ct_summary cause = {
        .cause = {.rank = -1, .host = "n7", .text = "node n7 was lost\nsecond line"}, .node = -1};

    ct_summary_failed("x", &cause, 0, 1, 79, &out);
    cr_assert_str_eq(ct_buf_str(&out), "ctrun: job \"x\" failed: node n7 was lost\n"
                                       "ctrun: 0 of 1 restarts were used; exit status 79\n");
}

Test(summary, a_stop_that_failed_says_who_and_what_there_is_to_go_on_from)
{
    struct ct_summary cause = {.cause = {.pid = 7, .signal = SIGBUS, .host = "h", .text = "a\nb"},
                               .node = -1};

    ct_summary_stopped("x", &cause, 2, "the newest checkpoint is that of step 40", 135, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job \"x\" did not stop in order: rank 0 (host h, local rank 0, pid 7) "
                     "was killed by "
                     "signal 7 (SIGBUS), and 2 others failed, too\n"
                     "  | a\n  | b\n"
                     "  hint: often a full /dev/shm, or a mapped file that was cut short\n"
                     "ctrun: the newest checkpoint is that of step 40; exit status 135\n");
    ct_buf_clear(&out);
    cause =
        (struct ct_summary){.cause = {.pid = 7, .status = 3, .host = "", .text = ""}, .node = -1};
    ct_summary_stopped("none", &cause, 0, "", 3, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "ctrun: job did not stop in order: rank 0 (local rank 0, pid "
                     "7) exited with status 3\n"
                     "ctrun: exit status 3\n");
}

Test(summary, restarts_left_over_are_explained)
{
    const struct ct_summary cause = {.cause = {.pid = 7, .status = 65, .host = "", .text = ""}};

    ct_summary_failed("none", &cause, 0, 3, 65, &out);
    cr_assert_not_null(strstr(ct_buf_str(&out),
                              "ctrun: not restarted, it would end the same way; exit status 65\n"));
}

Test(summary, signals_have_names)
{
    char room[32];

    cr_assert_str_eq(ct_signal_name(SIGSEGV, room, sizeof room), "SIGSEGV");
    cr_assert_str_eq(ct_signal_name(61, room, sizeof room), "signal 61");
}

Test(summary, a_status_of_a_shell_gets_its_hint)
{
    struct ct_wire_failure failure = {.status = 127, .host = "", .text = ""};

    cr_assert_not_null(strstr(ct_failure_hint(&failure), "not found"));
    failure.status = 1;
    cr_assert_null(ct_failure_hint(&failure));
    failure.status = 0;
    cr_assert_null(ct_failure_hint(&failure));
}
