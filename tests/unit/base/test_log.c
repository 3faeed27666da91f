/* Logs that others cause lines of: a reader that stalls holds nobody up, and lines have a limit. */
#include "base/log/log_limit.h"
#include "base/log/log_writer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(log, what_a_full_disk_did_not_take_is_counted_when_it_has_room_again)
{
    enum { FULL = 1000, MANY = 100 };
    struct ct_log log;
    char path[] = "/tmp/ctrun-log-XXXXXX";
    int fd = mkstemp(path), whole = 0, last = 0, i;
    struct reading reading = {fdopen(dup(fd), "r"), ""};
    unsigned long long lost = 0;

    cr_assert(fd >= 0 && reading.from != NULL && unlink(path) == 0);
    cr_assert_neq(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    limit_files(FULL);
    ct_log_init_fd(&log, "test", &fd);
    struct ct_log_writer *writer = ct_log_writer_new(&log, fd);
    for (i = 0; i < MANY; i++)
        ct_log_event(&log, CT_LOG_INFO, "x", "line %d, of which some have no room", i);
    while (lseek(fd, 0, SEEK_END) < FULL) /* until the disk is full */
        continue;
    limit_files(RLIM_INFINITY);
    for (; lseek(fd, 0, SEEK_END) == FULL; i++) /* until a line finds that it is not */
        ct_log_event(&log, CT_LOG_INFO, "x", "line %d, of which some have no room", i);
    ct_log_writer_free(writer, 10000);
    (void)fseek(reading.from, 0, SEEK_SET);
    while (next(&reading)) {
        unsigned long long more = 0;
        if (sscanf(reading.line, "test: warning: %llu lines", &more) == 1)
            lost += strstr(reading.line, " was full\n") != NULL ? more : 0; /* it is whole */
        if (sscanf(reading.line, "test: line %d, of which some have no %*[r]", &last) == 1)
            whole += strcmp(strchr(reading.line, ','), ", of which some have no room\n") == 0;
    }
    cr_assert_gt(lost, 0u);
    cr_assert_eq((unsigned long long)whole + lost, (unsigned long long)i, "%d + %llu of %d", whole,
                 lost, i);
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
