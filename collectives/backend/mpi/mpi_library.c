/* See mpi_library.h. */
#include "backend/mpi/mpi_library.h"

#include "base/assert.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SERIALIZED = 2, TAG_UB_LEAST = 32767 };

/* Room for a status of any library (20 or 24 bytes). */
struct status {
    _Alignas(16) char room[256];
};

struct symbol {
    const char *name;
    size_t at;
};

/* Function pointers, each to its place in lib->functions. */
static int find_symbols(const struct ct_mpi_library *lib, const struct symbol *symbols,
                        size_t count, struct ct_error *err)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(lib->handle, symbols[i].name);

        if (symbol == NULL)
            return ct_error_set(err, CT_EUNSUPPORTED, "%s has no %s: MPI 3 or newer is needed",
                                lib->file, symbols[i].name);
        memcpy((char *)lib->functions + symbols[i].at, &symbol, sizeof symbol);
    }
    return 0;
}

/* ---- Open MPI --------------------------------------------------------------------------------*/

static const char WORLD_OF_OPEN_MPI[] = "ompi_mpi_comm_world";

#define FORM(name) open_mpi_##name
#define HANDLE void *
#define FIELD pointer
#define ANY_SOURCE (-1)
#define TAG_UB 0
#define SYMBOL_COMM_WORLD WORLD_OF_OPEN_MPI
#define SYMBOL_BYTE "ompi_mpi_byte"
#define SYMBOL_ERRORS_RETURN "ompi_mpi_errors_return"
#define CONSTANT(lib, name) dlsym((lib)->handle, SYMBOL_##name)
#include "backend/mpi/mpi_calls.h"
#undef FORM
#undef HANDLE
#undef FIELD
#undef ANY_SOURCE
#undef TAG_UB
#undef CONSTANT

/* ---- MPICH -----------------------------------------------------------------------------------*/

enum {
    NUMBER_COMM_WORLD = 0x44000000,
    NUMBER_BYTE = 0x4c00010d,
    NUMBER_ERRORS_RETURN = 0x54000001
};

#define FORM(name) mpich_##name
#define HANDLE int
#define FIELD number
#define ANY_SOURCE (-2)
#define TAG_UB 0x64400001
#define CONSTANT(lib, name) NUMBER_##name
#include "backend/mpi/mpi_calls.h"

/* ---- loading ---------------------------------------------------------------------------------*/

#define FUNCTIONS_OF(form)                                                                      \
    .load = form##_load, .start = form##_start, .place = form##_place, .gather = form##_gather, \
    .finish = form##_finish, .post = form##_post, .test = form##_test, .cancel = form##_cancel, \
    .find = form##_find, .receive = form##_receive, .version = form##_version, .text = form##_text
static const struct ct_mpi_abi open_mpi = {.name = "Open MPI", FUNCTIONS_OF(open_mpi)};
static const struct ct_mpi_abi mpich = {.name = "MPICH", FUNCTIONS_OF(mpich)};

/* The usual names; Debian's MPICH has one of its own. */
static const struct {
    const char *file;
    const struct ct_mpi_abi *abi;
} files[] = {
    {"libmpi.so.40", &open_mpi},
    {"libmpich.so.12", &mpich},
    {"libmpi.so.12", &mpich},
};

/* Load `file` if it is there. Which form it has shows only then, and Open MPI's has to be global:
 * a second look makes it so. */
static bool load(struct ct_mpi_library *lib, const char *file)
{
    lib->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib->handle == NULL)
        return false;
    lib->file = file;
    lib->abi = dlsym(lib->handle, WORLD_OF_OPEN_MPI) != NULL ? &open_mpi : &mpich;
    if (lib->abi == &open_mpi)
        (void)dlopen(file, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    return true;
}

/* The usual names of one form. */
static bool load_usual(struct ct_mpi_library *lib, const struct ct_mpi_abi *abi)
{
    for (size_t i = 0; i < CT_COUNT(files); i++)
        if (files[i].abi == abi && load(lib, files[i].file))
            return true;
    return false;
}

int ct_mpi_library_load(struct ct_mpi_library *lib, const char *file, bool prefer_open_mpi,
                        struct ct_error *err)
{
    if (file != NULL && !load(lib, file))
        return ct_error_set(err, CT_EUNSUPPORTED, "CTRUN_MPI names %s, which cannot be loaded: %s",
                            file, dlerror());
    if (file == NULL && !load_usual(lib, prefer_open_mpi ? &open_mpi : &mpich) &&
        !load_usual(lib, prefer_open_mpi ? &mpich : &open_mpi))
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "no MPI library is found (libmpi.so.40 of Open MPI, libmpich.so.12 or "
                            "libmpi.so.12 of MPICH): name its file in CTRUN_MPI");
    return lib->abi->load(lib, err);
}
