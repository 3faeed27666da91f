/* Which failure was the first, and torchrun's table. */
#include "launch/failure/failure_report.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void set_up(void)
{
    cr_assert_eq(setenv("TZ", "UTC", 1), 0);
    tzset();
}

TestSuite(report, .init = set_up, .timeout = 30);

static struct ct_worker_failure failure(int32_t rank, int status, int signal, uint64_t time_ms)
{
    return (struct ct_worker_failure){.record = {.host = "node1",
                                                 .rank = rank,
                                                 .local_rank = rank % 2,
                                                 .pid = 4000 + rank,
                                                 .status = status,
                                                 .signal = signal,
                                                 .time_ms = time_ms,
                                                 .error_file = "",
                                                 .text = ""}};
}

static bool precedes(struct ct_worker_failure a, struct ct_worker_failure b)
{
    return ct_failure_precedes((int64_t)a.record.time_ms, ct_failure_exit(&a.record),
                               (int64_t)b.record.time_ms, ct_failure_exit(&b.record));
}

Test(report, the_earlier_is_the_cause)
{
    struct ct_worker_failure early = failure(1, 1, 0, 1000), crash = failure(2, 0, SIGSEGV, 1001);

    cr_assert(precedes(early, failure(0, 1, 0, 2000)));
    cr_assert(precedes(early, crash));
    cr_assert_not(precedes(crash, early));
}

Test(report, at_one_moment_the_likelier_is_the_cause)
{
    struct ct_worker_failure status = failure(3, 1, 0, 1000), crash = failure(5, 0, SIGSEGV, 1000),
                             echo = failure(0, 0, SIGPIPE, 1000);

    cr_assert(precedes(crash, status), "a crash before a status");
    cr_assert(precedes(status, echo), "an echo last");
    cr_assert_not(precedes(status, crash) || precedes(echo, status));
    cr_assert_not(precedes(status, failure(2, 1, 0, 1000)), "nothing tells them apart");
}

Test(report, the_table_is_torchruns)
{
    struct ct_worker_failure list[] = {
        failure(0, 0, SIGTERM, 1790000003000), failure(3, 0, SIGKILL, 1790000002500),
        failure(2, 1, 0, 1790000000000), failure(1, 5, 0, 1790000004000)};
    struct ct_buf text = {0};

    list[0].stopped = true;
    list[2].record.error_file = "/logs/none_x/attempt_0/0/error.json";
    list[2].record.text = "Traceback (most recent call last):\n"
                          "ValueError: x\n";
    list[3].record.text = "last words\n";
    ct_report_print("train.py", list, 4, 2, &text);
    cr_assert_str_eq(ct_buf_str(&text), "=====================================================\n"
                                        "train.py FAILED\n"
                                        "-----------------------------------------------------\n"
                                        "Failures:\n"
                                        "[1]:\n"
                                        "  time      : 2026-09-21_14:13:22\n"
                                        "  host      : node1\n"
                                        "  rank      : 3 (local_rank: 1)\n"
                                        "  exitcode  : -9 (pid: 4003)  (SIGKILL)\n"
                                        "  error_file: <N/A>\n"
                                        "  traceback : Signal 9 (SIGKILL) received by PID 4003\n"
                                        "[2]:\n"
                                        "  time      : 2026-09-21_14:13:24\n"
                                        "  host      : node1\n"
                                        "  rank      : 1 (local_rank: 1)\n"
                                        "  exitcode  : 5 (pid: 4001)\n"
                                        "  error_file: <N/A>\n"
                                        "  traceback : last words\n"
                                        "-----------------------------------------------------\n"
                                        "Root Cause (first observed failure):\n"
                                        "[0]:\n"
                                        "  time      : 2026-09-21_14:13:20\n"
                                        "  host      : node1\n"
                                        "  rank      : 2 (local_rank: 0)\n"
                                        "  exitcode  : 1 (pid: 4002)\n"
                                        "  error_file: /logs/none_x/attempt_0/0/error.json\n"
                                        "  traceback : Traceback (most recent call last):\n"
                                        "  ValueError: x\n"
                                        "=====================================================\n");
    ct_buf_deinit(&text);
}

Test(report, one_failure_has_no_others_and_the_frame_is_never_wider_than_sixty)
{
    struct ct_worker_failure one = failure(0, 1, 0, 0);
    struct ct_buf text = {0};

    one.record.text =
        "a last line of the log that is much longer than the sixty characters of the frame";
    ct_report_print("train.py", &one, 1, 0, &text);
    cr_assert(strstr(ct_buf_str(&text), "Failures:\n  <NO_OTHER_FAILURES>\n-----") != NULL);
    cr_assert_eq(strspn(ct_buf_str(&text), "="), 60);
    ct_buf_deinit(&text);
}

Test(report, without_error_file_and_output_the_table_says_how_to_get_a_traceback)
{
    const struct ct_worker_failure one = failure(0, 1, 0, 0);
    struct ct_buf text = {0};

    ct_report_print("train.py", &one, 1, 0, &text);
    cr_assert(strstr(ct_buf_str(&text),
                     "traceback : see the worker's output; it left no error file\n") != NULL);
    ct_buf_deinit(&text);
}

Test(report, neither_traceback_nor_path_drives_the_terminal_or_forges_a_line)
{
    struct ct_worker_failure one = {
        .record = {.host = "h", .error_file = "/a\x1b[1m\nb", .text = "x\x1b[2J\ny\x9b\r"}};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_report_print("train.py", &one, 1, 0, &text);
    cr_assert_null(strchr(ct_buf_str(&text), '\x1b'));
    cr_assert_not_null(strstr(ct_buf_str(&text), "  error_file: /a\\x1b[1m\\nb\n"), "%s",
                       ct_buf_str(&text));
    cr_assert_not_null(strstr(ct_buf_str(&text), "  traceback : x\\x1b[2J\n  y"), "%s",
                       ct_buf_str(&text));
    ct_buf_deinit(&text);
}

Test(report, what_happened_becomes_an_error_file)
{
    struct ct_arena arena;
    struct ct_wire_failure killed = failure(2, -1, SIGSEGV, 7000).record,
                           bad = failure(3, 9, 0, 7000).record;

    ct_arena_init(&arena, 1 << 16);
    killed.text = "some output";
    struct ct_error_file file = ct_report_error_file(&killed, &arena);
    cr_assert_str_eq(file.message, "Signal 11 (SIGSEGV) received by PID 4002");
    cr_assert_str_eq(file.callstack, "some output");
    cr_assert_eq(file.error_code, 139);
    cr_assert_eq(file.timestamp_s, 7);
    file = ct_report_error_file(&bad, &arena);
    cr_assert_str_eq(file.message, "rank 3 exited with status 9");
    bad.text = "Traceback:\n  line\nValueError: x\n\n";
    file = ct_report_error_file(&bad, &arena);
    cr_assert_str_eq(file.message, "ValueError: x");
    cr_assert_str_eq(file.callstack, bad.text);
    cr_assert_eq(file.error_code, 9, "as a launcher that passes it on adds it");
    ct_arena_deinit(&arena);
}
