/* See ucx_library.h. */
#include "backend/ucx/ucx_library.h"

#include "base/assert.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
#define SYMBOL(name) {#name, offsetof(struct ct_ucx_library, name)},
    CT_UCX_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

int ct_ucx_library_load(struct ct_ucx_library *lib, struct ct_error *err)
{
    lib->handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib->handle == NULL)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "backend ucx needs libucp.so.0 (Debian package libucx0): %s",
                            dlerror());
    for (size_t i = 0; i < CT_COUNT(symbols); i++) {
        void *symbol = dlsym(lib->handle, symbols[i].name);

        if (symbol == NULL)
            return ct_error_set(err, CT_EUNSUPPORTED,
                                "libucp.so.0 has no %s: UCX 1.13 or newer is needed",
                                symbols[i].name);
        memcpy((char *)lib + symbols[i].at, &symbol, sizeof symbol);
    }
    return 0;
}
