/* Errors and logs: codes, statuses, sentences and lines. */
#include "base/error.h"
#include "base/log/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(error, .timeout = 30);

Test(error, every_code_has_a_text_a_name_and_a_status_of_its_own_table_row)
{
    static const int codes[] = {
#define CT_ERROR(name, value, status, text) CT_E##name,
#include "base/error.def"
#undef CT_ERROR
    };

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        cr_assert_lt(codes[i], -1000, "must not clash with errno");
        cr_assert_str_neq(ct_strerror(codes[i]), "unknown error");
        cr_assert(strncmp(ct_error_name(codes[i]), "CT_E", 4) == 0);
        int status = ct_exit_status(codes[i]);
        cr_assert(status > 0 && status < 128, "%d", status);
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(codes[i], codes[j]);
    }
    cr_assert_eq(ct_exit_status(0), 0);
    cr_assert_eq(ct_exit_status(CT_ECONFIG), 2);
    cr_assert_eq(ct_exit_status(CT_EBUG), 70);
}

Test(error, errno_values_pass_through)
{
    cr_assert_str_eq(ct_strerror(-ENOENT), "No such file or directory");
    cr_assert_str_eq(ct_error_name(-ENOENT), "ENOENT");
    cr_assert_eq(ct_exit_status(-EACCES), 71);
    cr_assert_str_eq(ct_strerror(-999), "unknown error");
    cr_assert_str_eq(ct_strerror(0), "success");
}

Test(error, a_sentence_can_be_prefixed_and_is_cut_not_overrun)
{
    struct ct_error err = {0};
    char longer[2000];

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    cr_assert_eq(ct_error_set(&err, CT_EDATA, "row %d", 7), CT_EDATA);
    cr_assert_eq(ct_error_prefix(&err, "%s", "a.csv"), CT_EDATA);
    cr_assert_str_eq(err.text, "a.csv: row 7");
    (void)ct_error_prefix(&err, "%s", longer);
    cr_assert_eq(strlen(err.text), sizeof err.text - 1);
    cr_assert_eq(ct_error_set(NULL, CT_EDATA, "nobody reads"), CT_EDATA);
    cr_assert_eq(ct_error_prefix(NULL, "nobody"), 0);
}

Test(error, an_error_is_an_echo_until_one_of_our_own_is_set)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_error_echo(&err, CT_EMISMATCH, "rank %d ended it", 3), CT_EMISMATCH);
    cr_assert_eq(err.echo, 1);
    cr_assert_eq(ct_error_prefix(&err, "barrier"), CT_EMISMATCH);
    cr_assert_eq(err.echo, 1, "it still is one with more words");
    cr_assert_str_eq(err.text, "barrier: rank 3 ended it");
    (void)ct_error_set(&err, CT_EMISMATCH, "rank 1 called this, rank 2 called that");
    cr_assert_eq(err.echo, 0);
    cr_assert_eq(ct_error_echo(NULL, CT_EMISMATCH, "nobody reads"), CT_EMISMATCH);
}

struct capture {
    char text[512];
};

static void capture_line(void *context, const char *line, unsigned long size)
{
    struct capture *capture = context;

    cr_assert_lt(size, sizeof capture->text);
    memcpy(capture->text, line, size);
    capture->text[size] = '\0';
}

static uint64_t fixed_ns(void *context)
{
    (void)context;
    return 1700000000123000000u;
}

Test(error, a_log_line_is_text_or_json_and_respects_the_level)
{
    static const struct ct_clock clock = {fixed_ns, fixed_ns, NULL};
    struct capture capture = {""};
    const int node = 1;
    struct ct_log log = {.write = capture_line,
                         .context = &capture,
                         .clock = &clock,
                         .program = "ctrun",
                         .level = CT_LOG_INFO};

    ct_log_event(&log, CT_LOG_DEBUG, "x", "hidden");
    cr_assert_str_eq(capture.text, "");
    ct_log_event(&log, CT_LOG_WARN, "late", "node %d is late", 3);
    cr_assert_str_eq(capture.text, "ctrun: warning: node 3 is late\n");
    log.node = &node;
    log.json = true;
    ct_log_event(&log, CT_LOG_ERROR, "lost", "node \"a\"");
    cr_assert_str_eq(capture.text,
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"log\",\"node\":1,"
                     "\"level\":\"error\",\"program\":\"ctrun\",\"event\":\"lost\",\"message\":"
                     "\"node \\\"a\\\"\"}\n");
    log.json = false;
    ct_log_event(&log, CT_LOG_INFO, "job", "%s",
                 "evil\nctrun: error: \x1b[2J\xc2\x9b"
                 "2J \xc3\xa9\t\x7f");
    cr_assert_str_eq(capture.text,
                     "ctrun: evil\\nctrun: error: \\x1b[2J\\xc2\\x9b2J \xc3\xa9\\t\\x7f\n",
                     "one line, and nothing that drives a terminal");
    log.stamped = true;
    (void)setenv("TZ", "UTC", 1);
    ct_log_event(&log, CT_LOG_INFO, "x", "hello");
    cr_assert_str_eq(capture.text, "2023-11-14 22:13:20 ctrun: hello\n");
    log.stamped = false;
    log.coloured = true;
    ct_log_event(&log, CT_LOG_WARN, "x", "yellow");
    cr_assert_str_eq(capture.text, "ctrun: \x1b[33mwarning: \x1b[0myellow\n");
    ct_log_event(NULL, CT_LOG_ERROR, "x", "no log, no crash");
    cr_assert_eq(ct_log_level_find("warn"), CT_LOG_WARN);
    cr_assert_eq(ct_log_level_find("loud"), -1);
}
