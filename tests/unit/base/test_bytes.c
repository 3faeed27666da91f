/* Buffers, arenas, JSON text: growth, limits, and what stays after a refusal. */
#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(bytes, .timeout = 30);

Test(bytes, integers_are_little_endian_at_any_alignment)
{
    unsigned char at[9];

    ct_put_le64(at + 1, 0x0102030405060708u);
    cr_assert_eq(at[1], 8);
    cr_assert_eq(at[8], 1);
    cr_assert_eq(ct_get_le64(at + 1), 0x0102030405060708u);
    cr_assert_eq(ct_get_le32(at + 1), 0x05060708u);
    cr_assert_eq(ct_get_le16(at + 1), 0x0708u);
    cr_assert_eq(ct_get_be32(at + 1), 0x08070605u);
    ct_put_le32(at, 0xfffffffeu);
    cr_assert_eq(ct_get_le32(at), 0xfffffffeu);
    ct_put_le16(at, 0xabcdu);
    cr_assert_eq(ct_get_le16(at), 0xabcdu);
}

Test(bytes, a_buffer_grows_and_stays_terminated)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    cr_assert_str_eq(ct_buf_str(&buf), "");
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(ct_buf_printf(&buf, "%d,", i), 0);
    cr_assert_eq(buf.size, strlen(ct_buf_str(&buf)));
    ct_buf_consume(&buf, 4);
    cr_assert(strncmp(ct_buf_str(&buf), "2,3,", 4) == 0);
    ct_buf_clear(&buf);
    cr_assert_str_eq(ct_buf_str(&buf), "");
    ct_buf_deinit(&buf);
}

Test(bytes, reserving_leaves_a_string)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    cr_assert_not_null(ct_buf_reserve(&buf, 100));
    cr_assert_str_eq(ct_buf_str(&buf), "");
    ct_buf_deinit(&buf);
}

Test(bytes, an_append_over_the_limit_changes_nothing_but_the_flag)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 4);
    cr_assert_eq(ct_buf_puts(&buf, "abcd"), 0);
    cr_assert_eq(ct_buf_puts(&buf, "e"), CT_ELIMIT);
    cr_assert(buf.failed);
    cr_assert_str_eq(ct_buf_str(&buf), "abcd");
    cr_assert_null(ct_buf_reserve(&buf, SIZE_MAX - 8));
    ct_buf_deinit(&buf);
}

Test(bytes, an_arena_hands_out_zeroed_aligned_memory_up_to_its_limit)
{
    struct ct_arena arena;

    ct_arena_init(&arena, 100000);
    for (int i = 0; i < 100; i++) {
        char *at = ct_arena_alloc(&arena, 33);
        cr_assert_not_null(at);
        cr_assert_eq((uintptr_t)at % _Alignof(max_align_t), 0);
        cr_assert_eq(at[0] | at[32], 0);
        memset(at, 0xff, 33);
    }
    cr_assert_not_null(ct_arena_array(&arena, 50, 1000), "larger than a block");
    cr_assert_null(ct_arena_alloc(&arena, 90000), "above the limit");
    cr_assert_null(ct_arena_array(&arena, SIZE_MAX / 2, 3), "overflow");
    cr_assert_str_eq(ct_arena_printf(&arena, "%s-%d", "x", 7), "x-7");
    cr_assert_str_eq(ct_arena_strndup(&arena, "hello", 4), "hell");
    ct_arena_deinit(&arena);
    cr_assert_not_null(ct_arena_strdup(&arena, "again"));
    ct_arena_deinit(&arena);
    ct_arena_deinit(NULL);
}

Test(bytes, json_strings_escape_control_bytes_and_bad_utf8)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    ct_json_string(&buf, "a\"b\\c\n\x01\xff"
                         "\xc3\xbc");
    cr_assert_str_eq(ct_buf_str(&buf), "\"a\\\"b\\\\c\\n\\u0001\\ufffd\xc3\xbc\"");
    ct_buf_deinit(&buf);
}

/* As printf writes them with as few digits as read back as the same. */
Test(bytes, json_numbers_with_few_decimals_are_written_as_others_are)
{
    static const double units[] = {1, 0.5, 0.1, 0.01, 0.001, 0.0005, 1000, 1048576, 8589934592.001};
    struct ct_buf buf;
    char text[40];

    ct_buf_init(&buf, 0);
    for (int i = 0; i < 9 * 2000; i++) {
        double value = units[i % 9] * (i % 17 == 0 ? -i : i) + (double)(i % 5) / 1e3;
        int digits = 6;
        do
            (void)snprintf(text, sizeof text, "%.*g", digits, value);
        while (strtod(text, NULL) != value && digits++ < 17);
        if (trunc(value) == value)
            (void)snprintf(text, sizeof text, "%.0f", value);
        ct_buf_clear(&buf);
        ct_json_number(&buf, value);
        cr_assert_str_eq(ct_buf_str(&buf), text);
    }
    ct_buf_deinit(&buf);
}

Test(bytes, json_numbers_read_back_as_the_same_double)
{
    static const double values[] = {0,
                                    -0.0,
                                    1,
                                    0.1,
                                    1e300,
                                    5e-324,
                                    1.0 / 3.0,
                                    -0.0004,
                                    -123456789.125,
                                    8.8e12,
                                    8.8e12 + 0.125,
                                    9.1e12 + 0.5,
                                    1e15,
                                    999999999999999,
                                    0.0009999,
                                    0.9999999};
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        ct_buf_clear(&buf);
        ct_json_number(&buf, values[i]);
        double back = strtod(ct_buf_str(&buf), NULL);
        cr_assert_eq(memcmp(&back, &values[i], sizeof back), 0, "%s", ct_buf_str(&buf));
    }
    ct_buf_clear(&buf);
    ct_json_number(&buf, NAN);
    ct_json_number(&buf, INFINITY);
    cr_assert_str_eq(ct_buf_str(&buf), "nullnull");
    ct_buf_clear(&buf);
    ct_json_number(&buf, 1800000);
    cr_assert_str_eq(ct_buf_str(&buf), "1800000", "counts are whole, for readers of all kinds");
    ct_buf_deinit(&buf);
}

Test(bytes, hexadecimal_digits_are_read_in_either_case)
{
    static const char digits[] = "0123456789abcdefABCDEF";

    for (int i = 0; digits[i] != '\0'; i++)
        cr_assert_eq(ct_hex_digit(digits[i]), i < 16 ? i : i - 6);
    for (const char *none = "/:@G`g \xff"; *none != '\0'; none++)
        cr_assert_eq(ct_hex_digit(*none), -1);
    cr_assert_eq(ct_hex_digit('\0'), -1);
}

Test(bytes, secrets_are_equal_when_each_of_their_bytes_is)
{
    cr_assert(ct_secret_equal("secret", "secret", 6));
    cr_assert(ct_secret_equal("secretA", "secretB", 6));
    cr_assert_not(ct_secret_equal("Secret", "secret", 6));
    cr_assert_not(ct_secret_equal("secreT", "secret", 6));
    cr_assert(ct_secret_equal("a", "b", 0));
}
