/* See library.h. */
#include "keys/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void ct_library_load(const char *file, const struct ct_library_function *functions, size_t count,
                     void *table, char ret_missing[CT_LIBRARY_TEXT])
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    ret_missing[0] = '\0';
    if (handle == NULL) {
        (void)snprintf(ret_missing, CT_LIBRARY_TEXT, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(handle, functions[i].name);

        if (function == NULL) {
            (void)snprintf(ret_missing, CT_LIBRARY_TEXT, "%s is not in %s", functions[i].name,
                           file);
            return;
        }
        memcpy((char *)table + functions[i].offset, &function, sizeof function);
    }
}
