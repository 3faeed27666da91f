/* See device.h. */
#include "device.h"

#include "base/assert.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

const char *device_program(const char *name)
{
    char path[PATH_MAX];

    CT_ASSERT(snprintf(path, sizeof path, "../tests/gpu/bin/%s", name) < (int)sizeof path);
    return proc_program(path);
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
