/* torchelastic's error files, in both shapes. */
#include "launch/failure/error_file.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ct_arena arena;

static void set_up(void)
{
    ct_arena_init(&arena, 4 << 20);
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
}

TestSuite(error_file, .init = set_up, .fini = tear_down, .timeout = 30);

static int parse(const char *json, struct ct_error_file *file, struct ct_error *err)
{
    return ct_error_file_parse(json, strlen(json), &arena, file, err);
}

Test(error_file, both_shapes_are_read)
{
    static const struct {
        const char *json, *message, *callstack;
        int64_t timestamp_s, error_code;
    } rows[] = {
        {"{\"message\": {\"message\": \"ValueError: x\", \"extraInfo\": {\"py_callstack\": "
         "\"Traceback\\n  line\", \"timestamp\": \"1790000000\"}}}",
         "ValueError: x", "Traceback\n  line", 1790000000, -1},
        {"{\"message\": {\"message\": \"m\", \"errorCode\": 37, \"extraInfo\": {\"timestamp\": "
         "5}}, "
         "\"errorTraits\": {\"category\": \"x\"}}",
         "m", "", 5, 37},
        {"{\"message\": \"short\", \"timestamp\": 12}", "short", "", 12, -1},
        {"{\"message\": \"short\", \"timestamp\": \"12\"}", "short", "", 12, -1},
        {"{\"message\": \"short\", \"timestamp\": 12.9}", "short", "", 12, -1},
        {"{\"message\": \"no time\"}", "no time", "", -1, -1},
        {"{\"message\": \"odd time\", \"timestamp\": \"yesterday\"}", "odd time", "", -1, -1},
        {"{\"message\": {\"message\": \"m\", \"extraInfo\": \"odd\"}}", "m", "", -1, -1},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_error_file file;
        struct ct_error err = {0};
        cr_assert_eq(parse(rows[i].json, &file, &err), 0, "row %zu: %s", i, err.text);
        cr_assert_str_eq(file.message, rows[i].message);
        cr_assert_str_eq(file.callstack, rows[i].callstack);
        cr_assert_eq(file.timestamp_s, rows[i].timestamp_s, "row %zu", i);
        cr_assert_eq(file.error_code, rows[i].error_code, "row %zu", i);
    }
}

Test(error_file, what_is_neither_is_refused)
{
    static const char *const rows[] = {
        "",
        "{",
        "[]",
        "3",
        "{}",
        "{\"message\": 3}",
        "{\"message\": {\"message\": 3}}",
        "{\"message\": {}}",
        "{\"message\": \"a\", \"message\": \"b\"}",
        "{\"message\": \"half",
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_error_file file = {.timestamp_s = 7};
        struct ct_error err = {0};
        cr_assert_eq(parse(rows[i], &file, &err), CT_EDATA, "row %zu", i);
        cr_assert_eq(file.timestamp_s, 7, "untouched");
        cr_assert(strstr(err.text, "the error file") != NULL, "%s", err.text);
    }
    struct ct_error_file file;
    cr_assert_eq(ct_error_file_parse("", CT_ERROR_FILE_BYTES + 1, &arena, &file, NULL), CT_ELIMIT);
}

Test(error_file, what_is_written_reads_back)
{
    static const struct ct_error_file files[] = {
        {"Type: \"quoted\"\n\ttext", "Traceback:\n  größe \\ \x01", 1790000000, 139},
        {"m", "", 0, -1},
    };

    for (size_t i = 0; i < CT_COUNT(files); i++) {
        struct ct_error_file back;
        struct ct_error err = {0};
        struct ct_buf text = {0};
        ct_error_file_print(&files[i], &text);
        cr_assert_eq(parse(ct_buf_str(&text), &back, &err), 0, "%s", err.text);
        cr_assert_str_eq(back.message, files[i].message);
        cr_assert_str_eq(back.callstack, files[i].callstack);
        cr_assert_eq(back.timestamp_s, files[i].timestamp_s);
        cr_assert_eq(back.error_code, files[i].error_code);
        ct_buf_deinit(&text);
    }
}
