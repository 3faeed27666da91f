/* Strings: what counts as a number, how near two names are. */
#include "base/str.h"

#include "base/assert.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(str, .timeout = 30);

Test(str, digit_runs_compare_as_numbers)
{
    cr_assert_lt(ct_natural_compare("node2", "node10"), 0);
    cr_assert_gt(ct_natural_compare("node10", "node9"), 0);
    cr_assert_eq(ct_natural_compare("node01", "node1"), 0);
    cr_assert_lt(ct_natural_compare("a", "a1"), 0);
    cr_assert_gt(ct_natural_compare("rack2-n1", "rack1-n12"), 0);
}

Test(str, only_whole_decimal_integers_are_integers)
{
    static const char *const refused[] = {
        "", "-", " 1", "1 ", "1x", "0x10", "1.0", "1e3", "9223372036854775808"};
    int64_t value = 7;

    for (size_t i = 0; i < CT_COUNT(refused); i++)
        cr_assert_eq(ct_parse_i64(refused[i], &value), CT_EUSAGE, "\"%s\"", refused[i]);
    cr_assert_eq(value, 7, "a refused text leaves the value alone");
    cr_assert_eq(ct_parse_i64("-9223372036854775808", &value), 0);
    cr_assert_eq(value, INT64_MIN);
    cr_assert_eq(ct_parse_i64("+012", &value), 0);
    cr_assert_eq(value, 12, "no octal");
}

Test(str, unsigned_refuses_signs_and_overflow)
{
    uint64_t value = 0;

    cr_assert_eq(ct_parse_u64("-1", &value), CT_EUSAGE);
    cr_assert_eq(ct_parse_u64("18446744073709551616", &value), CT_EUSAGE);
    cr_assert_eq(ct_parse_u64("18446744073709551615", &value), 0);
    cr_assert_eq(value, UINT64_MAX);
}

Test(str, floats_are_finite_and_decimal)
{
    static const char *const refused[] = {"", "nan", "inf", "1e999", "0x1p3", ".", "1.0f"};
    double value = 0;

    for (size_t i = 0; i < CT_COUNT(refused); i++)
        cr_assert_eq(ct_parse_f64(refused[i], &value), CT_EUSAGE, "\"%s\"", refused[i]);
    cr_assert_eq(ct_parse_f64("-2.5e-3", &value), 0);
    cr_assert_float_eq(value, -0.0025, 1e-18);
}

Test(str, sizes_and_durations_carry_units)
{
    uint64_t value = 0;

    cr_assert_eq(ct_parse_bytes("25MB", &value), 0);
    cr_assert_eq(value, 25u << 20);
    cr_assert_eq(ct_parse_bytes("1.5 KiB", &value), 0);
    cr_assert_eq(value, 1536);
    cr_assert_eq(ct_parse_bytes("-1", &value), CT_EUSAGE);
    cr_assert_eq(ct_parse_bytes("5 parsecs", &value), CT_EUSAGE);
    cr_assert_eq(ct_parse_duration_ms("250ms", &value), 0);
    cr_assert_eq(value, 250);
    cr_assert_eq(ct_parse_duration_ms("0.5", &value), 0);
    cr_assert_eq(value, 500, "a bare number means seconds");
    cr_assert_eq(ct_parse_duration_ms("10m", &value), 0);
    cr_assert_eq(value, 600000);
}

Test(str, booleans_have_four_spellings_each)
{
    static const char *const yes[] = {"true", "YES", "on", "1"};
    static const char *const no[] = {"False", "no", "OFF", "0"};
    bool value = false;

    for (size_t i = 0; i < CT_COUNT(yes); i++) {
        cr_assert_eq(ct_parse_bool(yes[i], &value), 0);
        cr_assert(value);
        cr_assert_eq(ct_parse_bool(no[i], &value), 0);
        cr_assert_not(value);
    }
    cr_assert_eq(ct_parse_bool("maybe", &value), CT_EUSAGE);
}

static const char *name_at(const void *context, size_t index)
{
    return ((const char *const *)context)[index];
}

Test(str, the_nearest_name_is_a_typing_error_away)
{
    static const char *const names[] = {"max_restarts", "nnodes", "node_rank", "lr"};

    cr_assert_str_eq(ct_nearest("max_restart", 4, name_at, names), "max_restarts");
    cr_assert_str_eq(ct_nearest("max-Restarts", 4, name_at, names), "max_restarts");
    cr_assert_str_eq(ct_nearest("nodes", 4, name_at, names), "nnodes");
    cr_assert_null(ct_nearest("checkpoint", 4, name_at, names));
}

Test(str, copying_terminates_and_reports_the_cut)
{
    char room[4];

    cr_assert(ct_str_copy(room, sizeof room, "abc"));
    cr_assert_not(ct_str_copy(room, sizeof room, "abcd"));
    cr_assert_str_eq(room, "abc");
}

Test(str, the_last_lines_that_fit_are_whole_ones)
{
    cr_assert_str_eq(ct_str_last_lines("one\ntwo\nthree\n", 100), "one\ntwo\nthree\n");
    cr_assert_str_eq(ct_str_last_lines("one\ntwo\nthree\n", 14), "one\ntwo\nthree\n");
    cr_assert_str_eq(ct_str_last_lines("one\ntwo\nthree\n", 13), "two\nthree\n");
    cr_assert_str_eq(ct_str_last_lines("one\ntwo\nthree\n", 7), "three\n");
    cr_assert_str_eq(ct_str_last_lines("one\ntwo\nthree\n", 4), "ree\n");
    cr_assert_str_eq(ct_str_last_lines("", 4), "");
}

Test(str, utf8_prefix_stops_at_the_first_wrong_byte)
{
    cr_assert_eq(ct_utf8_valid_prefix("gr\xc3\xbc\xc3\x9f", 6), 6);
    cr_assert_eq(ct_utf8_valid_prefix("a\xff", 2), 1);
    cr_assert_eq(ct_utf8_valid_prefix("a\xc3", 2), 1, "cut sequence");
    cr_assert_eq(ct_utf8_valid_prefix("\xc0\xaf", 2), 0, "overlong");
    cr_assert_eq(ct_utf8_valid_prefix("\xed\xa0\x80", 3), 0, "surrogate");
    cr_assert_eq(ct_utf8_valid_prefix("\xf0\x9f\x98\x80", 4), 4);
}

Test(str, prefixes_and_suffixes)
{
    cr_assert(ct_ends_with("train.yaml", ".yaml"));
    cr_assert_not(ct_ends_with("yaml", ".yaml"));
    cr_assert(ct_starts_with("CTRUN_SEED", "CTRUN_"));
    cr_assert_not(ct_starts_with("CT", "CTRUN_"));
}
