/* See find_program.h. */
#include "base/find_program.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ct_is_executable(const char *path)
{
    struct stat status;

    return access(path, X_OK) == 0 && stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

const char *ct_find_program(const char *name, const char *path, struct ct_arena *arena)
{
    if (strchr(name, '/') != NULL)
        return ct_is_executable(name) ? name : NULL;
    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    while (*name != '\0') {
        size_t length = strcspn(path, ":");
        const char *file = length > 0 ? ct_arena_printf(arena, "%.*s/%s", (int)length, path, name)
                                      : ct_arena_printf(arena, "./%s", name);

        if (file != NULL && ct_is_executable(file))
            return file;
        if (path[length] == '\0')
            break;
        path += length + 1;
    }
    return NULL;
}
