/* An interpreter that was started ahead runs a script as one that was started for it. */
#include "base/bytes.h"
#include "base/str.h"
#include "launch/warm_start.h"
#include "proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static void enter(void)
{
    (void)snprintf(folder, sizeof folder, "%s", proc_temp_dir());
}

static void leave(void)
{
    proc_remove_tree(folder);
}

TestSuite(warm_start, .init = enter, .fini = leave, .timeout = 60);

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    cr_assert_not_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static char python[] = "/usr/bin/python3";
static char flag[] = "-u";
static char argument[] = "one word";
static char word[] = "WORD=said";
static char faults[] = "PYTHONFAULTHANDLER=1";
static char way[192];

/* Start one interpreter for script.py ahead. */
static struct ct_spawn ahead(struct ct_warm_pool *pool, char *script, char *argv[5], char *envp[4])
{
    struct ct_error err = {0};
    struct ct_spawn spawn = {.path = python, .argv = argv, .envp = envp};

    if (access(python, X_OK) != 0)
        cr_skip_test("skipped: there is no %s", python);
    (void)snprintf(way, sizeof way, "PYTHONPATH=%s", folder);
    argv[0] = python;
    argv[1] = flag;
    argv[2] = script;
    argv[3] = argument;
    argv[4] = NULL;
    envp[0] = way;
    envp[1] = envp[2] = envp[3] = NULL;
    cr_assert_eq(ct_warm_fill(pool, 1, &spawn, &err), 0, "%s", err.text);
    envp[1] = word;
    envp[2] = faults;
    return spawn;
}

/* What became a worker writes to a file, its standard output. */
static const char *run(struct ct_warm_pool *pool, struct ct_spawn *spawn, int *ret_status)
{
    static char text[4096];
    pid_t pid = 0;
    int out = open(path_of("out"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    const int fds[CT_SPAWN_FDS] = {null, out, out, -1, -1, null};
    memcpy(spawn->fds, fds, sizeof fds);
    cr_assert(ct_warm_become(pool, spawn, &pid));
    cr_assert_eq(pool->count, 0);
    ct_warm_drop(pool);
    cr_assert_eq(waitpid(pid, ret_status, 0), pid);
    ssize_t size = pread(out, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    (void)close(out);
    (void)close(null);
    return text;
}

Test(warm_start, it_becomes_main_with_arguments_environment_and_descriptors_of_the_worker)
{
    static const char script[] =
        "\"\"\"Documented.\"\"\"\n"
        "import os, sys\n"
        "import ctrun, mine\n"
        "def f(): pass\n"
        "print(__name__, sys.argv[1:], os.environ.get('WORD'), 'PYTHONPATH' in os.environ)\n"
        "print(sys.modules['faulthandler'].is_enabled())\n"
        "print(os.path.basename(__file__), f.__module__, sys.modules['__main__'].f is f)\n"
        "for fd in sorted(os.listdir('/proc/self/fd')):\n"
        "    if os.path.exists('/proc/self/fd/' + fd):\n"
        "        print(fd, os.readlink('/proc/self/fd/' + fd)[:9], end=' ')\n"
        "print()\n"
        "print('late' in sys.modules, mine.when)\n"
        "import late\n"
        "sys.exit(7)\n";
    struct ct_warm_pool pool = {0};
    char *argv[5], *envp[4];
    int status;

    write_file("script.py", script);
    write_file("ctrun.py", ""); /* of the script's folder: not imported ahead, and yet enough */
    write_file("mine.py", "import os\nwhen = 'ahead' if 'WORD' not in os.environ else 'then'\n");
    write_file("late.py", "");
    struct ct_spawn spawn = ahead(&pool, (char *)path_of("script.py"), argv, envp);
    const char *said = run(&pool, &spawn, &status);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %d: %s", status, said);
    cr_assert_str_eq(said, "__main__ ['one word'] said True\n"
                           "True\n"
                           "script.py __main__ True\n"
                           "0 /dev/null 1 /tmp/ctru 2 /tmp/ctru 5 /dev/null \n"
                           "False then\n");
}

Test(warm_start, an_exception_of_the_script_names_its_line)
{
    struct ct_warm_pool pool = {0};
    char *argv[5], *envp[4];
    int status;

    write_file("script.py", "import ctrun\n\nraise ValueError('planted')\n");
    write_file("ctrun.py", "");
    struct ct_spawn spawn = ahead(&pool, (char *)path_of("script.py"), argv, envp);
    const char *said = run(&pool, &spawn, &status);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d: %s", status, said);
    cr_assert_not_null(strstr(said, "script.py\", line 3, in <module>\n"), "%s", said);
    cr_assert_not_null(strstr(said, "ValueError: planted\n"), "%s", said);
}

/* It has ended, or takes the message yet: whichever comes first, the worker runs once. */
Test(warm_start, one_whose_script_does_not_import_ctrun_ends_or_becomes_the_worker)
{
    struct ct_warm_pool pool = {0};
    char *argv[5], *envp[4];
    int status;

    write_file("script.py", "import sys\nprint('ran', sys.argv[1])\n");
    struct ct_spawn spawn = ahead(&pool, (char *)path_of("script.py"), argv, envp);
    cr_assert_not(ct_warm_suits(argv[2]));
    cr_assert_eq(waitpid(pool.all[0].pid, &status, 0), pool.all[0].pid, "it ends by itself");
    pid_t pid = 0;
    cr_assert_not(ct_warm_become(&pool, &spawn, &pid));
    ct_warm_drop(&pool);
}

Test(warm_start, what_is_dropped_ends)
{
    struct ct_warm_pool pool = {0};
    char *argv[5], *envp[4];
    int status;

    write_file("script.py", "import ctrun\n");
    write_file("ctrun.py", "");
    (void)ahead(&pool, (char *)path_of("script.py"), argv, envp);
    cr_assert(ct_warm_suits(argv[2]));
    pid_t pid = pool.all[0].pid;
    ct_warm_drop(&pool);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
