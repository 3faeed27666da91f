/* See interpreter.h. */
#include "torch/interpreter.h"

#include "e2e.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *torch_python(void)
{
    static const char *path;
    const char *wanted = getenv("TEST_TORCH");
    struct proc look;

    if (path != NULL)
        return path;
    path = wanted != NULL ? wanted : "/usr/bin/python3";
    const char *const argv[] = {
        path, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)", NULL};
    if (access(path, X_OK) != 0 || proc_run(&look, argv, NULL, 30) != 0)
        cr_skip_test("skipped: %s has no PyTorch (scripts/deps --test)", path);
    proc_free(&look);
    return path;
}

int torch_environment(const char **env, int room)
{
    static char words[3][4096];
    const char *const list[] = {words[0],
                                words[1],
                                words[2],
                                "GLOO_SOCKET_IFNAME=lo",
                                "TP_SOCKET_IFNAME=lo",
                                "OMP_NUM_THREADS=1",
                                "PYTHONDONTWRITEBYTECODE=1"};
    int count = 0;

    (void)snprintf(words[0], sizeof words[0], "PYTHON_EXEC=%s", torch_python());
    (void)snprintf(words[1], sizeof words[1], "PYTHONPATH=%s", e2e_in_root("lib/python"));
    (void)snprintf(words[2], sizeof words[2], "CTRUN_LIBRARY=%s", proc_program("ctrun"));
    char *folder = strstr(words[2], "/bin/ctrun");
    cr_assert_not_null(folder, "%s is in no folder bin", words[2]);
    (void)strcpy(folder, "/lib/libctrun.so.1");
    while (count < room && count < (int)(sizeof list / sizeof *list)) {
        env[count] = list[count];
        count++;
    }
    return count;
}
