/* See nccl_library.h. */
#include "backend/nccl/nccl_library.h"

#include "base/assert.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- versions --------------------------------------------------------------------------------*/

/* Versions from `first` to `last` that are not used, and why. */
static const struct {
    int first, last;
    const char *why;
} blocked[] = {
    {0, 21800, "communicators cannot be split before 2.18.1"},
    {22803, 22808, "recovery after a lost rank is known to fail with 2.28.3 to 2.28.8"},
};

int ct_nccl_version_check(int version, struct ct_error *err)
{
    for (size_t i = 0; i < CT_COUNT(blocked); i++)
        if (version >= blocked[i].first && version <= blocked[i].last)
            return ct_error_set(
                err, CT_EUNSUPPORTED, "NCCL %d.%d.%d is not used: %s; install a newer one",
                version / 10000, version / 100 % 100, version % 100, blocked[i].why);
    return 0;
}

/* The same of one feature. Windows and shrink need ncclCommRevoke, which takes kernels out of a
 * communicator before anything else is done with it. */
static const struct {
    enum ct_nccl_feature feature;
    int first, last;
    const char *why;
} faults[] = {
    {CT_NCCL_WINDOWS, 0, 22806, "nothing takes kernels out of windows before 2.28.7"},
    {CT_NCCL_SHRINK, 0, 22806, "nothing makes a communicator fit to be shrunk before 2.28.7"},
};

/* The variable that asks for a feature; NULL: none has to. */
static const char *const switches[] = {
    [CT_NCCL_SPLIT] = NULL,
    [CT_NCCL_WINDOWS] = "CTRUN_NCCL_WINDOWS",
    [CT_NCCL_SHRINK] = "CTRUN_NCCL_SHRINK",
};

static bool has_functions(const struct ct_nccl_library *lib, enum ct_nccl_feature feature)
{
    switch (feature) {
    case CT_NCCL_WINDOWS:
        return lib->ncclMemAlloc != NULL && lib->ncclMemFree != NULL &&
               lib->ncclCommWindowRegister != NULL && lib->ncclCommWindowDeregister != NULL &&
               lib->ncclCommRevoke != NULL;
    case CT_NCCL_SHRINK:
        return lib->ncclCommShrink != NULL && lib->ncclCommRevoke != NULL;
    default:
        return true;
    }
}

const char *ct_nccl_lacks(const struct ct_nccl_library *lib, enum ct_nccl_feature feature)
{
    const char *setting = switches[feature] != NULL ? getenv(switches[feature]) : "1";

    if (setting == NULL || strcmp(setting, "1") != 0)
        return "it is not asked for";
    for (size_t i = 0; i < CT_COUNT(faults); i++)
        if (faults[i].feature == feature && lib->version >= faults[i].first &&
            lib->version <= faults[i].last)
            return faults[i].why;
    return has_functions(lib, feature) ? NULL : "this library has not all of its functions";
}

/* ---- loading ---------------------------------------------------------------------------------*/

static const struct {
    const char *name;
    size_t at;
    bool required;
} symbols[] = {
#define REQUIRED(name, result, arguments) {#name, offsetof(struct ct_nccl_library, name), true},
    CT_NCCL_REQUIRED(REQUIRED)
#undef REQUIRED
#define OPTIONAL(name, result, arguments) {#name, offsetof(struct ct_nccl_library, name), false},
        CT_NCCL_OPTIONAL(OPTIONAL)
#undef OPTIONAL
};

int ct_nccl_library_load(struct ct_nccl_library *lib, struct ct_error *err)
{
    const char *named = getenv("CTRUN_NCCL");

    *lib = (struct ct_nccl_library){.file = named != NULL ? named : "libnccl.so.2"};
    lib->handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib->handle == NULL)
        return ct_error_set(
            err, CT_EUNSUPPORTED,
            "backend nccl needs libnccl.so.2 (NVIDIA's package libnccl2; CTRUN_NCCL "
            "names a file elsewhere): %s",
            dlerror());
    for (size_t i = 0; i < CT_COUNT(symbols); i++) {
        void *symbol = dlsym(lib->handle, symbols[i].name);

        if (symbol == NULL && symbols[i].required)
            return ct_error_set(err, CT_EUNSUPPORTED,
                                "%s has no %s: NCCL 2.18.1 or newer is needed", lib->file,
                                symbols[i].name);
        memcpy((char *)lib + symbols[i].at, &symbol, sizeof symbol);
    }
    if (lib->ncclGetVersion(&lib->version) != CT_NCCL_SUCCESS)
        return ct_error_set(err, CT_EUNSUPPORTED, "%s does not tell its version", lib->file);
    return ct_nccl_version_check(lib->version, err);
}

/* ---- words -----------------------------------------------------------------------------------*/

static int code_of(int result)
{
    switch (result) {
    case CT_NCCL_REMOTE_ERROR:
    case CT_NCCL_SYSTEM_ERROR:
        return CT_ECLOSED;
    case CT_NCCL_INVALID_ARGUMENT:
    case CT_NCCL_INVALID_USAGE:
        return CT_EUNSUPPORTED;
    default:
        return CT_EUNAVAILABLE;
    }
}

int ct_nccl_error(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm, int result,
                  const char *what, struct ct_error *err)
{
    const char *last = lib->ncclGetLastError(comm);

    return ct_error_set(
        err, code_of(result), "%s: NCCL says \"%s\"%s%s", what, lib->ncclGetErrorString(result),
        last != NULL && last[0] != '\0' ? "; last: " : "", last != NULL ? last : "");
}
