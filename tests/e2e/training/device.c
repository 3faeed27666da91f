/* See device.h. */
#include "device.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

const char *device_program(const char *name)
{
    char path[PATH_MAX];

    CT_ASSERT(snprintf(path, sizeof path, "../tests/gpu/bin/%s", name) < (int)sizeof path);
    const char *program = proc_program(path);

    if (access(program, X_OK) != 0)
        cr_skip_test("skipped: emulated GPUs are not built here");
    return program;
}

const char *const *device_env(const char *const more[])
{
    enum { OWN = 1, ROOM = 6 };
    static char libraries[PATH_MAX + 32];
    static const char *words[ROOM];
    int count = OWN;

    CT_ASSERT(snprintf(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s",
                       proc_program("../tests/gpu/lib")) < (int)sizeof libraries);
    words[0] = libraries;
    for (int i = 0; more != NULL && more[i] != NULL; i++) {
        CT_ASSERT(count < ROOM - 1);
        words[count++] = more[i];
    }
    words[count] = NULL;
    return words;
}
