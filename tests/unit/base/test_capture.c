/* What another program prints, and when it is given up. */
#include "base/capture.h"

#include "base/clock.h"
#include "base/error.h"

#include <criterion/criterion.h>

TestSuite(capture, .timeout = 30);

static int capture(char *script, uint64_t within_ms, const atomic_bool *stop, struct ct_buf *to)
{
    char sh[] = "sh", c[] = "-c";
    char *argv[] = {sh, c, script, NULL};

    return ct_capture("sh", argv, ct_clock_mono_ms(&ct_clock_system) + within_ms, stop, to);
}

Test(capture, both_streams_are_read_to_their_end)
{
    char script[] = "echo one; echo two >&2; cat";
    struct ct_buf text;

    ct_buf_init(&text, 0);
    cr_assert_eq(capture(script, 20000, NULL, &text), 0);
    cr_assert_str_eq(ct_buf_str(&text), "one\ntwo\n");
    ct_buf_deinit(&text);
}

Test(capture, a_program_that_is_not_there_is_told_from_one_that_says_nothing)
{
    char name[] = "no-such-program-here";
    char *argv[] = {name, NULL};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    cr_assert_eq(ct_capture(name, argv, UINT64_MAX, NULL, &text), CT_ENOINPUT);
    ct_buf_deinit(&text);
}

Test(capture, one_that_does_not_end_or_is_not_wanted_or_says_too_much_is_given_up)
{
    char endless[] = "echo begun; exec tail -f /dev/null", much[] = "yes";
    const atomic_bool stop = true;
    struct ct_buf text;

    ct_buf_init(&text, 4096);
    cr_assert_eq(capture(endless, 300, NULL, &text), CT_ETIMEOUT);
    cr_assert_eq(capture(endless, 20000, &stop, &text), CT_ETIMEOUT);
    cr_assert_eq(capture(much, 20000, NULL, &text), CT_ETIMEOUT);
    ct_buf_deinit(&text);
}
