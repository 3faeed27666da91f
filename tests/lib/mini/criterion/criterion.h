/* A stand-in for <criterion/criterion.h>: the same test sources, run by main() of mini.c.
 *
 * ThreadSanitizer cannot run under Criterion's runner, which has a thread of its own when it starts
 * a test's process; here a constructor registers each test, and the runner that forks has none. A
 * failed assertion ends the test's process. It knows what our tests use: Test, TestSuite with
 * .init, .fini and .timeout, ParameterizedTest over an index table, ReportHook of PRE_ALL and
 * POST_ALL, and the cr_assert family. */
#ifndef MINI_CRITERION_H
#define MINI_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mini_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout;
    const char *description;
    bool disabled;
    int signal; /* that is to end the test; 0: none */
};

struct mini_suite {
    const char *name;
    struct mini_options options;
    struct mini_suite *next;
};

struct criterion_test_params {
    size_t size;
    void *params;
    size_t length;
};
#define cr_make_param_array(type, array, ...) \
    ((struct criterion_test_params){sizeof(type), (void *)(array), __VA_ARGS__})

struct mini_test {
    const char *suite;
    const char *name;
    struct mini_options options;
    void (*plain)(void);
    void (*with_parameter)(void *parameter);
    struct criterion_test_params (*parameters)(void);
    struct mini_test *next;
};

struct criterion_test_set; /* what hooks are given is NULL here */
struct criterion_global_stats;

/* Called before the first test or after the last. */
struct mini_hook {
    enum mini_moment { PRE_ALL, POST_ALL } moment;
    void (*call)(void);
    struct mini_hook *next;
};

void mini_add_hook(struct mini_hook *hook);
void mini_add_suite(struct mini_suite *suite);
void mini_add_test(struct mini_test *test);
_Noreturn void mini_fail(const char *file, int line, const char *text);
void mini_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void mini_skip(void);

#define TestSuite(suite_, ...)                                           \
    __attribute__((constructor)) static void mini_suite_##suite_(void)   \
    {                                                                    \
        static struct mini_suite entry = {#suite_, {__VA_ARGS__}, NULL}; \
        mini_add_suite(&entry);                                          \
    }                                                                    \
    struct mini_suite

#define MINI_ARGUMENT_PRE_ALL (struct criterion_test_set *)NULL
#define MINI_ARGUMENT_POST_ALL (struct criterion_global_stats *)NULL
#define MINI_PARAMETER_PRE_ALL struct criterion_test_set *
#define MINI_PARAMETER_POST_ALL struct criterion_global_stats *
#define ReportHook(moment_)                                                \
    static void mini_hook_##moment_(MINI_PARAMETER_##moment_);             \
    static void mini_call_##moment_(void)                                  \
    {                                                                      \
        mini_hook_##moment_(MINI_ARGUMENT_##moment_);                      \
    }                                                                      \
    __attribute__((constructor)) static void mini_register_##moment_(void) \
    {                                                                      \
        static struct mini_hook entry = {moment_, mini_call_##moment_, 0}; \
        mini_add_hook(&entry);                                             \
    }                                                                      \
    static void mini_hook_##moment_

#define MINI_REGISTER(suite_, name_, plain_, with_, params_, ...)                   \
    __attribute__((constructor)) static void mini_register_##suite_##_##name_(void) \
    {                                                                               \
        static struct mini_test entry = {#suite_, #name_,  {__VA_ARGS__}, plain_,   \
                                         with_,   params_, NULL};                   \
        mini_add_test(&entry);                                                      \
    }

#define Test(suite_, name_, ...)                                                        \
    static void mini_test_##suite_##_##name_(void);                                     \
    MINI_REGISTER(suite_, name_, mini_test_##suite_##_##name_, NULL, NULL, __VA_ARGS__) \
    static void mini_test_##suite_##_##name_(void)

#define ParameterizedTestParameters(suite_, name_) \
    static struct criterion_test_params mini_params_##suite_##_##name_(void)

#define ParameterizedTest(parameter_, suite_, name_, ...)            \
    static void mini_test_##suite_##_##name_(parameter_);            \
    static void mini_call_##suite_##_##name_(void *parameter)        \
    {                                                                \
        mini_test_##suite_##_##name_(parameter);                     \
    }                                                                \
    MINI_REGISTER(suite_, name_, NULL, mini_call_##suite_##_##name_, \
                  mini_params_##suite_##_##name_, __VA_ARGS__)       \
    static void mini_test_##suite_##_##name_(parameter_)

/* The message after the condition may be absent. */
#define MINI_CHECK(condition_, text_, ...) \
    ((condition_) ? (void)0 : (mini_note("" __VA_ARGS__), mini_fail(__FILE__, __LINE__, text_)))
#define cr_assert(c, ...) MINI_CHECK((c), #c, __VA_ARGS__)
#define cr_assert_not(c, ...) MINI_CHECK(!(c), "not " #c, __VA_ARGS__)
#define cr_assert_fail(...) MINI_CHECK(0, "fail", __VA_ARGS__)
#define cr_assert_null(p, ...) MINI_CHECK((p) == NULL, #p " == NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...) MINI_CHECK((p) != NULL, #p " != NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) MINI_CHECK((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) MINI_CHECK((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) MINI_CHECK((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) MINI_CHECK((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) MINI_CHECK((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) MINI_CHECK((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) MINI_CHECK(strcmp((a), (b)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) \
    MINI_CHECK(strcmp((a), (b)) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) \
    MINI_CHECK(memcmp((a), (b), (n)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) \
    MINI_CHECK(fabs((double)(a) - (double)(b)) <= (double)(e), #a " near " #b, __VA_ARGS__)
#define cr_expect_eq cr_assert_eq
#define cr_expect_lt cr_assert_lt
#define cr_expect_str_eq cr_assert_str_eq
#define cr_expect_not_null cr_assert_not_null
#define cr_expect cr_assert
#define cr_skip_test(...) (mini_note("" __VA_ARGS__), mini_skip())
#define cr_skip(...) (mini_note("" __VA_ARGS__), mini_skip())
#define cr_log_info(...) mini_note(__VA_ARGS__)
#define cr_log_warn(...) mini_note(__VA_ARGS__)

#endif
