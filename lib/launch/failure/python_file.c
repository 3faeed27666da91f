/* See python_file.h. */
#include "launch/failure/python_file.h"

#include "base/assert.h"

#include <ctype.h>
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

bool ct_python_line_find(const char *text, size_t size, struct ct_python_line *ret_line)
{
    static const char head[] = "File \"", middle[] = "\", line ";
    const char *behind = text + size, *file = memmem(text, size, head, strlen(head));

    if (file == NULL)
        return false;
    file += strlen(head);
    const char *end = memmem(file, (size_t)(behind - file), middle, strlen(middle));
    if (end == NULL || end == file)
        return false;
    const char *digits = end + strlen(middle);
    size_t count = 0;
    while (digits + count < behind && isdigit((unsigned char)digits[count]))
        count++;
    *ret_line = (struct ct_python_line){file, digits, (size_t)(end - file), count};
    return count > 0;
}
