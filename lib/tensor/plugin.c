/* See plugin.h. The driver's functions are those of NVIDIA's "CUDA Driver API", chapters 6.2
 * to 6.5: results of 0 are success, a device is a small number. */
#include "tensor/plugin.h"

#include "base/assert.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The sentence into `err`; always CT_EUNSUPPORTED. */
#define REFUSE(err, ...) ((void)ct_error_set(err, CT_EUNSUPPORTED, __VA_ARGS__), CT_EUNSUPPORTED)

/* ---- the library ---------------------------------------------------------------------------- */

/* ../lib/libctrun_cuda.so, from the folder of the program. */
static int beside_program(char *path, size_t room)
{
    static const char name[] = "lib/libctrun_cuda.so";
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    if (length < 0)
        return CT_EOS;
    program[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL)
            return CT_EOS;
        *slash = '\0';
    }
    return snprintf(path, room, "%s/%s", program, name) < (int)room ? 0 : CT_ELIMIT;
}

static int find_library(const struct ct_device_request *request, char *path, size_t room,
                        struct ct_error *err)
{
    int code = request->library == NULL ? beside_program(path, room)
               : snprintf(path, room, "%s", request->library) < (int)room ? 0
                                                                          : CT_ELIMIT;

    if (code == 0 && access(path, R_OK) == 0)
        return 0;
    return REFUSE(err,
                  "this ctrun was built without CUDA (there is no %s): build it where nvcc "
                  "is, with make CUDA=1",
                  code == 0 ? path : "libctrun_cuda.so");
}

/* ---- the driver ----------------------------------------------------------------------------- */

enum { NO_DEVICE = 100, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, NAME_ROOM = 96 };

struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *ret_version);
    int (*count)(int *ret_count);
    int (*name)(char *name, int room, int device);
    int (*attribute)(int *ret_value, int attribute, int device);
};

/* What the driver says of the GPU that is wanted. */
struct gpu {
    int version; /* of CUDA that the driver knows: 13000 */
    int number;
    int capability; /* 90 */
    char name[NAME_ROOM];
};

static const char *driver_file(const struct ct_device_request *request)
{
    return request->driver != NULL ? request->driver : "libcuda.so.1";
}

static int no_driver(const char *file, struct ct_error *err)
{
    return REFUSE(err, "no NVIDIA driver found: %s is missing", file);
}

static int load_driver(const struct ct_device_request *request, struct driver *driver,
                       struct ct_error *err)
{
    const char *file = driver_file(request);
    const struct {
        const char *name;
        void *function;
    } wanted[] = {{"cuInit", &driver->init},
                  {"cuDriverGetVersion", &driver->version},
                  {"cuDeviceGetCount", &driver->count},
                  {"cuDeviceGetName", &driver->name},
                  {"cuDeviceGetAttribute", &driver->attribute}};
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (library == NULL)
        return no_driver(file, err);
    for (size_t i = 0; i < CT_COUNT(wanted); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (symbol == NULL)
            return REFUSE(err, "%s has no %s: it is no driver of NVIDIA's", file, wanted[i].name);
        memcpy(wanted[i].function, &symbol, sizeof symbol);
    }
    return 0;
}

static int no_gpu(int result, struct ct_error *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (result != 0 && result != NO_DEVICE)
        return REFUSE(err, "NVIDIA's driver does not start (error %d of cuInit): see nvidia-smi",
                      result);
    return visible == NULL
               ? REFUSE(err, "NVIDIA's driver finds no GPU")
               : REFUSE(err,
                        "NVIDIA's driver finds no GPU among those of CUDA_VISIBLE_DEVICES "
                        "(%s)",
                        visible[0] != '\0' ? visible : "which is empty");
}

static int ask_driver(const struct ct_device_request *request, struct gpu *gpu,
                      struct ct_error *err)
{
    struct driver driver;
    int count = 0, major = 0, minor = 0;
    int code = load_driver(request, &driver, err);

    if (code != 0)
        return code;
    int result = driver.init(0);
    if (result == 0)
        result = driver.count(&count);
    if (result != 0 || count < 1)
        return no_gpu(result, err);
    *gpu = (struct gpu){.number = request->local_rank % count};
    if (driver.version(&gpu->version) != 0 ||
        driver.name(gpu->name, sizeof gpu->name, gpu->number) != 0 ||
        driver.attribute(&major, CAPABILITY_MAJOR, gpu->number) != 0 ||
        driver.attribute(&minor, CAPABILITY_MINOR, gpu->number) != 0)
        return REFUSE(err, "NVIDIA's driver does not describe GPU %d: see nvidia-smi", gpu->number);
    gpu->capability = 10 * major + minor;
    return 0;
}

/* ---- the device ----------------------------------------------------------------------------- */

static int load_plugin(const char *path, const struct ct_device_plugin **ret_plugin,
                       struct ct_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct ct_device_plugin *plugin =
        library != NULL ? dlsym(library, CT_DEVICE_PLUGIN) : NULL;

    if (plugin == NULL)
        return REFUSE(err, "%s cannot be loaded: %s", path, dlerror());
    if (plugin->version != CT_DEVICE_PLUGIN_VERSION || plugin->ops != CT_OP_COUNT ||
        plugin->args != sizeof(struct ct_kernel_args))
        return REFUSE(err, "%s is of another ctrun than this program: install both together", path);
    *ret_plugin = plugin;
    return 0;
}

/* Minor versions of the driver may be older than the toolkit's, major ones may not. */
static int check_age(const struct ct_device_plugin *plugin, const struct gpu *gpu,
                     struct ct_error *err)
{
    if (gpu->version / 1000 < plugin->runtime / 1000)
        return REFUSE(err,
                      "NVIDIA's driver knows CUDA %d.%d, this ctrun was built with %d.%d: "
                      "install a newer driver, or build with an older toolkit",
                      gpu->version / 1000, gpu->version % 1000 / 10, plugin->runtime / 1000,
                      plugin->runtime % 1000 / 10);
    if (gpu->capability < plugin->capability)
        return REFUSE(err,
                      "GPU %d, %s, has compute capability %d.%d; %d.%d is the least that "
                      "ctrun runs on",
                      gpu->number, gpu->name, gpu->capability / 10, gpu->capability % 10,
                      plugin->capability / 10, plugin->capability % 10);
    return 0;
}

static int open_cuda(const struct ct_device_request *request, struct ct_device **ret_device,
                     struct ct_error *err)
{
    const struct ct_device_plugin *plugin = NULL;
    char path[PATH_MAX];
    struct gpu gpu;
    int code = find_library(request, path, sizeof path, err);

    if (code == 0)
        code = ask_driver(request, &gpu, err);
    if (code == 0)
        code = load_plugin(path, &plugin, err);
    if (code == 0)
        code = check_age(plugin, &gpu, err);
    return code == 0 ? plugin->open(gpu.number, ret_device, err) : code;
}

int ct_device_probe(const struct ct_device_request *request, bool has_cards, struct ct_error *err)
{
    char path[PATH_MAX];
    int code = find_library(request, path, sizeof path, err);

    if (code != 0 || has_cards)
        return code;
    void *driver = dlopen(driver_file(request), RTLD_LAZY | RTLD_LOCAL);
    if (driver == NULL)
        return no_driver(driver_file(request), err);
    (void)dlclose(driver);
    return 0;
}

int ct_device_open(const struct ct_device_request *request, struct ct_device **ret_device,
                   struct ct_error *ret_why, struct ct_error *err)
{
    const struct ct_cpu_options cpu = {.threads = request->threads};

    ret_why->code = 0;
    if (request->kind == CT_DEVICE_CUDA)
        return open_cuda(request, ret_device, err);
    if (request->kind == CT_DEVICE_AUTO && open_cuda(request, ret_device, ret_why) == 0)
        return 0;
    return ct_device_cpu_new(&cpu, ret_device, err);
}
