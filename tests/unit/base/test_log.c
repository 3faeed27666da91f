/* Logs that others cause lines of: a reader that stalls holds nobody up, and lines have a limit. */
#include "base/log/log_limit.h"
#include "base/log/log_writer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(log, .timeout = 30);

enum { LINES = 20000 };

struct reading {
    FILE *from;
    char line[512];
};

static bool next(struct reading *reading)
{
    return fgets(reading->line, sizeof reading->line, reading->from) != NULL;
}

Test(log, a_reader_that_stalls_holds_nobody_up_and_is_told_what_it_missed)
{
    struct ct_log log;
    struct reading reading = {NULL, ""};
    unsigned long long kept = 0, lost = 0;
    int ends[2];

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    ct_log_init_fd(&log, "test", &ends[1]);
    struct ct_log_writer *writer = ct_log_writer_new(&log, ends[1]);
    cr_assert_not_null(writer);
    for (int i = 0; i < LINES;
         i++) /* some 1.2 MB: more than pipe and ring hold, and nobody reads */
        ct_log_event(&log, CT_LOG_INFO, "x", "line %d, which is somewhat longer than its number",
                     i);
    reading.from = fdopen(ends[0], "r");
    cr_assert_not_null(reading.from);
    while (next(&reading) && sscanf(reading.line, "test: warning: %llu lines", &lost) != 1) {
        unsigned long long number = LINES;
        cr_assert_eq(sscanf(reading.line, "test: line %llu, ", &number), 1, "%s", reading.line);
        cr_assert_eq(number, kept, "in order, and whole");
        kept++;
    }
    cr_assert_gt(lost, 0u);
    cr_assert_eq(kept + lost, (unsigned long long)LINES);
    cr_assert_not_null(strstr(reading.line, "its reader had stalled"), "%s", reading.line);
    ct_log_event(&log, CT_LOG_INFO, "x", "afterwards");
    ct_log_writer_free(writer, 10000);
    (void)close(ends[1]);
    cr_assert(next(&reading));
    cr_assert_str_eq(reading.line, "test: afterwards\n");
    cr_assert_not(next(&reading));
    (void)fclose(reading.from);
}

Test(log, the_end_of_a_program_does_not_wait_for_a_reader_that_stalls)
{
    struct ct_log log;
    int ends[2];

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    ct_log_init_fd(&log, "test", &ends[1]);
    struct ct_log_writer *writer = ct_log_writer_new(&log, ends[1]);
    cr_assert_not_null(writer);
    for (int i = 0; i < LINES; i++)
        ct_log_event(&log, CT_LOG_INFO, "x", "line %d, which is somewhat longer than its number",
                     i);
    ct_log_writer_free(writer, 10); /* returns, though nobody ever reads */
}

Test(log, no_reason_and_not_all_of_them_together_get_more_lines_than_their_limit)
{
    struct ct_log_limit limit = {.until_ms = 0};
    uint32_t left_out = 0, written = 0;

    for (int i = 0; i < 1000; i++) /* two reasons that share a counter */
        written += ct_log_limit_pass(&limit, 5, 7 + (uint64_t)(i % 2) * CT_LOG_REASONS, &left_out);
    cr_assert_eq(written, (uint32_t)CT_LOG_PER_REASON);
    cr_assert(ct_log_limit_pass(&limit, 5, 8, &left_out), "another reason has its own");
    for (uint64_t reason = 0; reason < 100000; reason++)
        written += ct_log_limit_pass(&limit, 6, reason, &left_out);
    cr_assert_eq(written, (uint32_t)CT_LOG_IN_ALL - 1);
    cr_assert_eq(left_out, 0u);
    cr_assert(ct_log_limit_pass(&limit, 5 + CT_LOG_WINDOW_MS, 7, &left_out));
    cr_assert_eq(left_out, 101000u + 1 - CT_LOG_IN_ALL, "and told once how many were left out");
    cr_assert(ct_log_limit_pass(&limit, 6 + CT_LOG_WINDOW_MS, 7, &left_out));
    cr_assert_eq(left_out, 0u);
}
