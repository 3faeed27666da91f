/* The sentence about settings that differ between nodes. */
#include "rendezvous/core/settings.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(settings, .timeout = 30);

Test(settings, the_first_that_differs_is_named_with_both_values)
{
    static const struct {
        const char *here, *before, *expected;
    } rows[] = {
        {"--a=1\n--b=2\n", "--a=1\n--b=3\n", "--b 2 here, 3 on the nodes before"},
        {"--b=2\n", "--a=1\n--b=2\n", "--a its default here, 1 on the nodes before"},
        {"--a=1\n--b=2\n", "--b=2\n", "--a 1 here, its default on the nodes before"},
        {"--a=\"x=y\"\n", "--a=\"x=z\"\n", "--a \"x=y\" here, \"x=z\" on the nodes before"},
        {"--a=1", "--a=10", "--a 1 here, 10 on the nodes before"},
        {"--ab=1\n", "--a=1\n", "--ab 1 here, its default on the nodes before"},
        {"--a=\n", "--a=1\n", "--a  here, 1 on the nodes before"},
        {"flag\n", "", "flag  here, its default on the nodes before"},
    };
    char text[512];

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert(ct_rdzv_settings_differ(rows[i].here, rows[i].before, text, sizeof text));
        cr_assert_str_eq(text, rows[i].expected, "row %zu", i);
    }
}

Test(settings, equal_ones_have_no_difference_to_name)
{
    char text[512];

    cr_assert_not(ct_rdzv_settings_differ("", "", text, sizeof text));
    cr_assert_not(ct_rdzv_settings_differ("--a=1\n--b=2\n", "--a=1\n--b=2\n", text, sizeof text));
    cr_assert_not(ct_rdzv_settings_differ("--a=1\n", "--a=1", text, sizeof text));
}

Test(settings, a_long_value_is_cut)
{
    char here[1024] = "--layers=", text[512];

    memset(here + strlen(here), 'x', 900);
    cr_assert(ct_rdzv_settings_differ(here, "--layers=y\n", text, sizeof text));
    cr_assert_not_null(strstr(text, "xxx... here, y on the nodes before"));
}
