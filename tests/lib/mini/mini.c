/* The runner of the stand-in: registered tests in order of registration, each in a process of its
 * own, as Criterion has it, as many at once as there are processors.
 *
 *   usage: PROGRAM [SUBSTRING]                                 those whose "suite/name" contains it
 *          PROGRAM [--verbose] [--filter PATTERN] [--jobs N]   as Criterion takes them
 *
 * Its lines are Criterion's, so that scripts read both alike; a test that passes is named with the
 * processor's seconds that it took. */
#include <criterion/criterion.h>

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct mini_hook *hooks;
static struct mini_suite *suites;
static struct mini_test *tests;
static struct mini_test **tests_end = &tests;
static jmp_buf skipped;
static bool was_skipped;

void mini_add_hook(struct mini_hook *hook)
{
    hook->next = hooks;
    hooks = hook;
}

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

/* The jump of a test that is skipped before it begins lands here, away from the caller's variables:
 * false. */
static bool begin(void (*init)(void))
{
    if (setjmp(skipped) != 0) {
        was_skipped = true;
        return false;
    }
    if (init != NULL)
        init();
    return true;
}

/* And of one that is skipped by itself, here. */
static void run_body(const struct mini_test *test, void *parameter)
{
    if (setjmp(skipped) != 0) {
        was_skipped = true;
        return;
    }
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
    if (!begin(init))
        return;
    run_body(test, parameter);
    if (fini != NULL)
        fini();
    (void)alarm(0);
}

/* ---- a process a test, as many at once as there are processors -------------------------------*/

enum { MOST = 16, EXIT_SKIPPED = 77 };

static struct job {
    pid_t pid; /* 0: free */
    const struct mini_test *test;
} jobs[MOST];

static long at_once;
static unsigned running, passing, failing, crashing, left_out;

/* A failed assertion and a sanitizer's report end a test's process by SIGABRT, its time-out by
 * SIGALRM. */
static void count_end(const struct mini_test *test, int status, const struct rusage *usage)
{
    double seconds = (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
                     (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6;
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (number == test->options.signal && (number != 0 || status == 0)) {
        passing++;
        (void)fprintf(stderr, "[PASS] %s::%s: (%.2fs)\n", test->suite, test->name, seconds);
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
        left_out++;
        (void)fprintf(stderr, "[SKIP] %s::%s\n", test->suite, test->name);
        return;
    }
    if (number != 0 && number != SIGABRT && number != SIGALRM)
        crashing++;
    else
        failing++;
    (void)fprintf(stderr, "[FAIL] %s::%s: %s %d\n", test->suite, test->name,
                  number != 0 ? "signal" : "exit status",
                  number != 0 ? number : WEXITSTATUS(status));
}

/* Waits for the end of one. A test that failed has said why; the others go on. */
static void reap(void)
{
    struct rusage usage;
    int status = 0;
    pid_t pid = wait4(-1, &status, 0, &usage);
    struct job *job = jobs;

    while (job < jobs + MOST && (pid <= 0 || job->pid != pid))
        job++;
    if (job == jobs + MOST) {
        perror("mini: a test's process");
        exit(1);
    }
    count_end(job->test, status, &usage);
    job->pid = 0;
    running--;
}

static void run_apart(const struct mini_test *test, void *parameter)
{
    struct job *job = jobs;

    while (running >= MOST || (running > 0 && (long)running >= at_once))
        reap();
    while (job->pid != 0)
        job++;
    (void)fprintf(stderr, "[RUN ] %s::%s\n", test->suite, test->name);
    *job = (struct job){.pid = fork(), .test = test};
    if (job->pid == 0) {
        run_once(test, parameter);
        exit(was_skipped ? EXIT_SKIPPED : 0);
    }
    if (job->pid < 0) {
        perror("mini: fork");
        exit(1);
    }
    running++;
}

static void run_test(const struct mini_test *test)
{
    if (test->plain != NULL) {
        run_apart(test, NULL);
        return;
    }
    struct criterion_test_params all = test->parameters();
    for (size_t i = 0; i < all.length; i++)
        run_apart(test, (char *)all.params + i * all.size);
}

/* ---- which tests ------------------------------------------------------------------------------*/

static const char *substring = "";
static const char *pattern = "*";

static void read_options(int argc, char **argv)
{
    at_once = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            pattern = argv[++i];
        else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
            at_once = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--verbose") != 0)
            substring = argv[i];
}

static bool is_wanted(const struct mini_test *test)
{
    char name[256];

    (void)snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
    return !test->options.disabled && strstr(name, substring) != NULL &&
           fnmatch(pattern, name, FNM_EXTMATCH) == 0;
}

static void call_hooks(enum mini_moment moment)
{
    for (const struct mini_hook *hook = hooks; hook != NULL; hook = hook->next)
        if (hook->moment == moment)
            hook->call();
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    call_hooks(PRE_ALL);
    for (const struct mini_test *test = tests; test != NULL; test = test->next)
        if (is_wanted(test))
            run_test(test);
    while (running > 0)
        reap();
    call_hooks(POST_ALL);
    unsigned tested = passing + failing + crashing;
    (void)fprintf(stderr,
                  "[====] Synthesis: Tested: %u | Passing: %u | Failing: %u | Crashing: %u\n",
                  tested, passing, failing, crashing);
    return tested + left_out > 0 && passing == tested ? 0 : 1;
}
