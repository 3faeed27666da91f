/* The runner of the stand-in: registered tests one after another, in order of registration.
 *
 * usage: PROGRAM [SUBSTRING]    run the tests whose "suite/name" contains it
 * The closing line is Criterion's, so that scripts read both alike. */
#include <criterion/criterion.h>

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

static struct mini_suite *suites;
static struct mini_test *tests;
static struct mini_test **tests_end = &tests;
static jmp_buf skipped;

void mini_add_suite(struct mini_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

void mini_add_test(struct mini_test *test)
{
    *tests_end = test;
    tests_end = &test->next;
}

void mini_note(const char *format, ...)
{
    va_list args;

    if (format[0] == '\0')
        return;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void mini_fail(const char *file, int line, const char *text)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, text);
    (void)fflush(NULL);
    abort();
}

void mini_skip(void)
{
    longjmp(skipped, 1);
}

static const struct mini_options *suite_options(const char *name)
{
    static const struct mini_options none;

    for (const struct mini_suite *suite = suites; suite != NULL; suite = suite->next)
        if (strcmp(suite->name, name) == 0)
            return &suite->options;
    return &none;
}

/* The jump of a skipped test lands here, away from the caller's variables. */
static void run_body(const struct mini_test *test, void *parameter)
{
    if (setjmp(skipped) != 0)
        return;
    if (test->plain != NULL)
        test->plain();
    else
        test->with_parameter(parameter);
}

static void run_once(const struct mini_test *test, void *parameter)
{
    const struct mini_options *suite = suite_options(test->suite);
    void (*init)(void) = test->options.init != NULL ? test->options.init : suite->init;
    void (*fini)(void) = test->options.fini != NULL ? test->options.fini : suite->fini;
    double seconds = test->options.timeout > 0 ? test->options.timeout : suite->timeout;

    (void)alarm((unsigned)(seconds * 10)); /* the sanitizer is about ten times slower */
    if (init != NULL)
        init();
    run_body(test, parameter);
    if (fini != NULL)
        fini();
    (void)alarm(0);
}

static unsigned run_test(const struct mini_test *test)
{
    if (test->plain != NULL) {
        run_once(test, NULL);
        return 1;
    }
    struct criterion_test_params all = test->parameters();
    for (size_t i = 0; i < all.length; i++)
        run_once(test, (char *)all.params + i * all.size);
    return (unsigned)all.length;
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    char name[256];

    for (const struct mini_test *test = tests; test != NULL; test = test->next) {
        (void)snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
        if (test->options.disabled || (argc > 1 && strstr(name, argv[1]) == NULL))
            continue;
        (void)fprintf(stderr, "[RUN ] %s\n", name);
        count += run_test(test);
    }
    (void)fprintf(stderr, "[====] Synthesis: Tested: %u | Passing: %u | Failing: 0 | Crashing: 0\n",
                  count, count);
    return count > 0 ? 0 : 1;
}
