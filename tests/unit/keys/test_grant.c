/* What the holder of a key may do: each role, patterns of jobs, users. */
#include "keys/grant.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ct_error err;

static struct ct_grant grant_of(enum ct_role role, const char *jobs, const char *users)
{
    struct ct_grant grant = {.id = "0123456789abcdef", .name = "ada", .role = role};

    cr_assert_eq(ct_grant_read_jobs(&grant, jobs, &err), 0, "%s", err.text);
    cr_assert_eq(ct_grant_read_users(&grant, users, &err), 0, "%s", err.text);
    return grant;
}

Test(grant, each_role_may_do_its_own_and_nothing_else)
{
    static const struct {
        const char *role;
        const char *may; /* join, relay, read, order, hold */
    } rows[] = {{"all", "11111"},
                {"agent", "11100"},
                {"operator", "00110"},
                {"reader", "00100"},
                {"relay", "01000"}};

    cr_assert_eq(CT_COUNT(rows), (size_t)CT_ROLES);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_grant grant = grant_of(ct_role_find(rows[i].role), "*", "*");

        cr_assert_str_eq(ct_role_name(grant.role), rows[i].role);
        for (unsigned bit = 0; bit < 5; bit++) {
            int code = ct_grant_may(&grant, (enum ct_right)(1u << bit), "night", -1, &err);

            cr_assert_eq(code, rows[i].may[bit] == '1' ? 0 : CT_EAUTH, "%s, right %u", rows[i].role,
                         bit);
            cr_assert(code == 0 || strstr(err.text, "key ada has the role") != NULL, "%s",
                      err.text);
        }
    }
    cr_assert_eq(ct_role_find("root"), CT_ROLES);
    cr_assert_str_eq(ct_role_names(), "all, agent, operator, reader, relay");
    cr_assert_eq(ct_grant_may(NULL, CT_RIGHT_HOLD, "night", -1, NULL), 0, "without keys");
}

Test(grant, jobs_are_patterns_with_commas_between)
{
    static const struct {
        const char *patterns, *job;
        bool may;
    } rows[] = {
        {"*", "night", true},
        {"night", "night", true},
        {"night", "night2", false},
        {"ada-*", "ada-1", true},
        {"ada-*", "bob-1", false},
        {"ada-*,bob-1", "bob-1", true},
        {"ada-*,bob-1", "bob-12", false},
        {"run?", "run1", true},
        {"run?", "run12", false},
        {"[ab]*", "bob", true},
        {"[ab]*", "carl", false},
        {"ada-*", "ada-a/b", true},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_grant grant = grant_of(CT_ROLE_READER, rows[i].patterns, "*");

        cr_assert_eq(ct_grant_may(&grant, CT_RIGHT_READ, rows[i].job, -1, &err),
                     rows[i].may ? 0 : CT_EAUTH, "%s of %s", rows[i].job, rows[i].patterns);
    }
    struct ct_grant grant = grant_of(CT_ROLE_READER, "ada-*", "*");
    cr_assert_eq(ct_grant_may(&grant, CT_RIGHT_READ, NULL, -1, NULL), 0, "on some job");
    (void)ct_grant_may(&grant, CT_RIGHT_READ, "bob", -1, &err);
    cr_assert_str_eq(err.text, "key ada is for the jobs ada-*, not for bob");
}

Test(grant, users_are_those_of_this_machine)
{
    struct ct_grant grant = grant_of(CT_ROLE_AGENT, "*", "1000,1001");

    cr_assert_eq(ct_grant_may(&grant, CT_RIGHT_JOIN, "night", 1001, &err), 0);
    cr_assert_eq(ct_grant_may(&grant, CT_RIGHT_JOIN, "night", 1002, &err), CT_EAUTH);
    cr_assert_str_eq(err.text, "key ada is not for user 1002");
    cr_assert_eq(ct_grant_may(&grant, CT_RIGHT_JOIN, "night", -1, &err), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "who asks is not seen to run here"));
}

Test(grant, what_is_no_pattern_user_or_name_is_named)
{
    static const char *const jobs[] = {"", ",", "a,", ",a", "a,,b", "a b", "a\n"};
    static const char *const users[] = {
        "",    "-1",         "1,",  "1,,2",
        "ada", "4294967295", "1 2", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    static const char *const names[] = {"", "a b", "a/b", "\"",
                                        "123456789012345678901234567890123"};
    struct ct_grant grant;

    for (size_t i = 0; i < CT_COUNT(jobs); i++)
        cr_assert_eq(ct_grant_read_jobs(&grant, jobs[i], &err), CT_EUSAGE, "\"%s\"", jobs[i]);
    for (size_t i = 0; i < CT_COUNT(users); i++)
        cr_assert_eq(ct_grant_read_users(&grant, users[i], &err), CT_EUSAGE, "\"%s\"", users[i]);
    for (size_t i = 0; i < CT_COUNT(names); i++)
        cr_assert_eq(ct_grant_read_name(&grant, names[i], &err), CT_EUSAGE, "\"%s\"", names[i]);
    cr_assert_eq(ct_grant_read_name(&grant, "Ada.B_c-1", &err), 0);
}
