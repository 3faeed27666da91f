/* What a certificate's URIs allow. */
#include "keys/certificate_uri.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(certificate_uri, .timeout = 10);

static int read_text(const char *text, struct ct_grant *grant, struct ct_error *err)
{
    return ct_certificate_uri_read(text, strlen(text), grant, err);
}

Test(certificate_uri, a_role_and_patterns_of_jobs_are_read)
{
    static const struct {
        const char *uri, *jobs;
        enum ct_role role;
    } rows[] = {
        {"ctrun://all/*", "*", CT_ROLE_ALL},
        {"CTRUN://agent/ada-*,night", "ada-*,night", CT_ROLE_AGENT},
        {"ctrun://reader/%5Bab%5D%2a", "[ab]*", CT_ROLE_READER},
        {"ctrun://relay/a/b", "a/b", CT_ROLE_RELAY},
        {"ctrun://operator/%C3%A4", "\xc3\xa4", CT_ROLE_OPERATOR},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_grant grant = {.name = "kept"};
        struct ct_error err = {0};

        cr_assert_eq(read_text(rows[i].uri, &grant, &err), 1, "%s", err.text);
        cr_assert_str_eq(grant.jobs, rows[i].jobs);
        cr_assert_eq(grant.role, rows[i].role);
        cr_assert_str_eq(grant.name, "kept");
    }
}

Test(certificate_uri, those_of_others_are_passed_over)
{
    static const char *const others[] = {"", "ctrun:", "ctrun:/all/*", "https://ctrun://all/*",
                                         "spiffe://site/ctrun"};

    for (size_t i = 0; i < CT_COUNT(others); i++)
        cr_assert_eq(read_text(others[i], &(struct ct_grant){.name = ""}, NULL), 0);
}

Test(certificate_uri, wrong_ones_are_named)
{
    static const struct {
        const char *uri, *words;
    } rows[] = {
        {"ctrun://", "names no jobs"},
        {"ctrun://agent", "names no jobs"},
        {"ctrun://agent/", "has an empty pattern"},
        {"ctrun:///x", "names a role that is none of all, agent, operator, reader, relay"},
        {"ctrun://root/x", "names a role"},
        {"ctrun://agent@host/x", "names a role"},
        {"ctrun://agentagentagentagentagentagentagent/x", "names a role"},
        {"ctrun://agent/a,,b", "has an empty pattern"},
        {"ctrun://agent/a%20b", "has a space or control character"},
        {"ctrun://agent/a%0Ab", "has a space or control character"},
        {"ctrun://agent/a%00b", "without two hexadecimal digits"},
        {"ctrun://agent/a%", "without two hexadecimal digits"},
        {"ctrun://agent/a%2", "without two hexadecimal digits"},
        {"ctrun://agent/a%g0", "without two hexadecimal digits"},
    };
    char longest[CT_GRANT_JOBS + 32] = "ctrun://agent/";

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_grant grant = {.name = ""};
        struct ct_error err = {0};

        cr_assert_eq(read_text(rows[i].uri, &grant, &err), CT_EDATA, "%s", rows[i].uri);
        cr_assert_not_null(strstr(err.text, rows[i].words), "%s", err.text);
        cr_assert_not_null(strstr(err.text, "as ctrun://agent/ada-*"), "%s", err.text);
    }
    memset(longest + 14, 'x', CT_GRANT_JOBS);
    cr_assert_eq(read_text(longest, &(struct ct_grant){.name = ""}, NULL), CT_EDATA);
    longest[14 + CT_GRANT_JOBS - 1] = '\0';
    cr_assert_eq(read_text(longest, &(struct ct_grant){.name = ""}, NULL), 1);
}

Test(certificate_uri, a_zero_within_ends_nothing)
{
    struct ct_grant grant = {.name = ""};

    cr_assert_eq(ct_certificate_uri_read("ctrun://all\0x/*", 15, &grant, NULL), CT_EDATA);
    cr_assert_eq(ct_certificate_uri_read("ctrun://all/x\0,y", 16, &grant, NULL), CT_EDATA);
}

Test(certificate_uri, a_refused_uri_forges_no_line)
{
    struct ct_error err = {0};

    cr_assert_eq(read_text("ctrun://a\nb\x1b[2J/x", &(struct ct_grant){.name = ""}, &err),
                 CT_EDATA);
    cr_assert_not_null(strstr(err.text, "ctrun://a?b?[2J/x"), "%s", err.text);
    cr_assert_eq(read_text("ctrun://all/a%0Ab%1B\x9b,", &(struct ct_grant){.name = ""}, &err),
                 CT_EDATA);
    cr_assert_not_null(strstr(err.text, "jobs \"a?b??,\" has an empty pattern"), "%s", err.text);
}

Test(certificate_uri, a_name_has_only_letters_that_a_log_may_show)
{
    char name[CT_GRANT_NAME];

    ct_certificate_name_clean("Ada L\"\n\0z", 9, name);
    cr_assert_str_eq(name, "Ada_L___z");
    ct_certificate_name_clean("0123456789012345678901234567890123456789", 40, name);
    cr_assert_str_eq(name, "01234567890123456789012345678901");
    ct_certificate_name_clean("", 0, name);
    cr_assert_str_eq(name, "");
}
