/* Which device a program gets, and what it is told when that is not a GPU: each way that a machine
 * can lack one, played by tests/lib/fakecuda. */
#include "tensor/plugin.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(plugin, .timeout = 30);

/* The double lies beside this program. */
static const char *fake(char *path, size_t room)
{
    ssize_t length = readlink("/proc/self/exe", path, room - 1);

    cr_assert_gt(length, 0);
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    cr_assert_not_null(slash);
    (void)snprintf(slash, room - (size_t)(slash - path), "/fakecuda.so");
    return path;
}

static const struct {
    const char *what, *name, *value; /* of a variable */
    int local_rank;
    const char *sentence;
} machines[] = {
    {"a driver that does not start", "FAKECUDA_INIT", "999", 0,
     "NVIDIA's driver does not start (error 999 of cuInit): see nvidia-smi"},
    {"a driver that says there is none", "FAKECUDA_INIT", "100", 0, "NVIDIA's driver finds no GPU"},
    {"no GPU", "FAKECUDA_COUNT", "0", 0, "NVIDIA's driver finds no GPU"},
    {"an old driver", "FAKECUDA_DRIVER", "11080", 0,
     "NVIDIA's driver knows CUDA 11.8, this ctrun was built with 12.8: install a newer driver, or "
     "build with an older toolkit"},
    {"a driver of an older minor version", "FAKECUDA_DRIVER", "12020", 0, "opened GPU 0"},
    {"an old GPU", "FAKECUDA_CAPABILITY", "75", 1,
     "GPU 1, Fake GPU, has compute capability 7.5; 8.0 is the least that ctrun runs on"},
    {"all is well", "FAKECUDA_COUNT", "4", 3, "opened GPU 3"},
    {"more workers than GPUs", "FAKECUDA_COUNT", "2", 3, "opened GPU 1"},
};

static int open_device(enum ct_device_kind kind, const struct ct_device_request *request,
                       struct ct_error *why, struct ct_error *err)
{
    struct ct_device_request own = *request;
    struct ct_device *device = NULL;

    own.kind = kind;
    own.threads = 1;
    int code = ct_device_open(&own, &device, why, err);
    cr_assert_eq(device == NULL, code != 0);
    if (device != NULL)
        cr_assert_str_eq(device->table->name, "cpu");
    ct_device_free(device);
    return code;
}

/* Asked for by name it is an error; with a free choice the CPU computes, for the same reason. */
static void expect_both(const struct ct_device_request *request, int code, const char *sentence)
{
    struct ct_error err = {0}, why = {0};

    cr_assert_eq(open_device(CT_DEVICE_CUDA, request, &why, &err), code, "%s", err.text);
    cr_assert_str_eq(err.text, sentence);
    cr_assert_eq(open_device(CT_DEVICE_AUTO, request, &why, NULL), 0);
    cr_assert_eq(why.code, code);
    cr_assert_str_eq(why.text, sentence);
}

Test(plugin, each_way_to_lack_a_gpu_has_its_sentence)
{
    char path[PATH_MAX];
    struct ct_device_request request = {.library = fake(path, sizeof path), .driver = path};

    for (size_t i = 0; i < CT_COUNT(machines); i++) {
        bool opened = strncmp(machines[i].sentence, "opened", 6) == 0;
        request.local_rank = machines[i].local_rank;
        (void)setenv(machines[i].name, machines[i].value, 1);
        expect_both(&request, opened ? CT_EUNAVAILABLE : CT_EUNSUPPORTED, machines[i].sentence);
        (void)unsetenv(machines[i].name);
    }
}

Test(plugin, gpus_that_are_hidden_are_named)
{
    char path[PATH_MAX];
    const struct ct_device_request request = {.library = fake(path, sizeof path), .driver = path};

    (void)setenv("FAKECUDA_COUNT", "0", 1);
    (void)setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    expect_both(&request, CT_EUNSUPPORTED,
                "NVIDIA's driver finds no GPU among those of CUDA_VISIBLE_DEVICES (7)");
    (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_both(
        &request, CT_EUNSUPPORTED,
        "NVIDIA's driver finds no GPU among those of CUDA_VISIBLE_DEVICES (which is empty)");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    (void)unsetenv("FAKECUDA_COUNT");
}

Test(plugin, a_build_without_cuda_says_how_to_build_with_it)
{
    const struct ct_device_request request = {.library = "/nonexistent/libctrun_cuda.so"};

    expect_both(
        &request, CT_EUNSUPPORTED,
        "this ctrun was built without CUDA (there is no /nonexistent/libctrun_cuda.so): build it "
        "where nvcc is, with make CUDA=1");
}

Test(plugin, a_machine_without_a_driver_is_told_before_any_library_is_loaded)
{
    const struct ct_device_request request = {.library = "/etc/passwd",
                                              .driver = "libnodriver.so.1"};

    expect_both(&request, CT_EUNSUPPORTED, "no NVIDIA driver found: libnodriver.so.1 is missing");
}

Test(plugin, what_is_no_library_or_of_another_ctrun_is_refused)
{
    char path[PATH_MAX];
    struct ct_device_request request = {.library = "/etc/passwd",
                                        .driver = fake(path, sizeof path)};
    struct ct_error err = {0}, why;

    cr_assert_eq(open_device(CT_DEVICE_CUDA, &request, &why, &err), CT_EUNSUPPORTED);
    cr_assert(strncmp(err.text, "/etc/passwd cannot be loaded: ", 30) == 0, "%s", err.text);
    request.library = path;
    (void)setenv("FAKECUDA_OPS", "1", 1);
    cr_assert_eq(open_device(CT_DEVICE_CUDA, &request, &why, &err), CT_EUNSUPPORTED);
    cr_assert_not_null(strstr(err.text, "fakecuda.so is of another ctrun than this program: "
                                        "install both together"));
    (void)unsetenv("FAKECUDA_OPS");
}

Test(plugin, a_cpu_that_is_asked_for_needs_no_reason)
{
    const struct ct_device_request request = {.library = "/nonexistent/libctrun_cuda.so"};
    struct ct_error why = {.code = 1};

    cr_assert_eq(open_device(CT_DEVICE_CPU, &request, &why, NULL), 0);
    cr_assert_eq(why.code, 0);
}
