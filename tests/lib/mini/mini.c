/* The runner of the stand-in: registered tests in order of registration, each in a process of its
 * own, as Criterion has it, as many at once as there are processors.
 *
 * usage: PROGRAM [SUBSTRING]    run the tests whose "suite/name" contains it
 * The closing line is Criterion's, so that scripts read both alike. */
#include <criterion/criterion.h>

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
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

/* ---- a process a test, as many at once as there are processors -------------------------------*/

enum { MOST = 16 };

static struct job {
    pid_t pid; /* 0: free */
    const struct mini_test *test;
} jobs[MOST];

static unsigned running;

/* Waits for the end of one. A test that failed has said why; the others go on unheard. */
static void reap(void)
{
    int status = 0;
    pid_t pid = wait(&status);
    struct job *job = jobs;

    while (job < jobs + MOST && (pid <= 0 || job->pid != pid))
        job++;
    if (job == jobs + MOST) {
        perror("mini: a test's process");
        exit(1);
    }
    if (status != 0) {
        (void)fprintf(stderr, "[FAIL] %s/%s: %s %d\n", job->test->suite, job->test->name,
                      WIFSIGNALED(status) ? "signal" : "exit status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        exit(1);
    }
    job->pid = 0;
    running--;
}

static void run_apart(const struct mini_test *test, void *parameter)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct job *job = jobs;

    while (running >= MOST || (running > 0 && (long)running >= processors))
        reap();
    while (job->pid != 0)
        job++;
    *job = (struct job){.pid = fork(), .test = test};
    if (job->pid == 0) {
        run_once(test, parameter);
        exit(0);
    }
    if (job->pid < 0) {
        perror("mini: fork");
        exit(1);
    }
    running++;
}

static unsigned run_test(const struct mini_test *test)
{
    (void)fprintf(stderr, "[RUN ] %s/%s\n", test->suite, test->name);
    if (test->plain != NULL) {
        run_apart(test, NULL);
        return 1;
    }
    struct criterion_test_params all = test->parameters();
    for (size_t i = 0; i < all.length; i++)
        run_apart(test, (char *)all.params + i * all.size);
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
        count += run_test(test);
    }
    while (running > 0)
        reap();
    (void)fprintf(stderr, "[====] Synthesis: Tested: %u | Passing: %u | Failing: 0 | Crashing: 0\n",
                  count, count);
    return count > 0 ? 0 : 1;
}
