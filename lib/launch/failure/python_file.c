/* See python_file.h. */
#include "launch/failure/python_file.h"

#include "base/assert.h"

#include <string.h>

bool ct_python_is_library(const char *file, size_t size)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/", "/lib/python3",
                                          "/lib64/python3", "/lib/pypy3"};
    static const char *const own[] = {"<string>", "<stdin>"};

    if (file[0] == '<') {
        for (size_t i = 0; i < CT_COUNT(own); i++)
            if (size == strlen(own[i]) && memcmp(file, own[i], size) == 0)
                return false;
        return true;
    }
    for (size_t i = 0; i < CT_COUNT(folders); i++)
        if (memmem(file, size, folders[i], strlen(folders[i])) != NULL)
            return true;
    return false;
}
