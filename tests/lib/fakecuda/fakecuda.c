/* A fake NVIDIA driver and a fake libctrun_cuda.so in one, for machines without either. The
 * environment sets their answers: FAKECUDA_INIT, FAKECUDA_COUNT, FAKECUDA_DRIVER,
 * FAKECUDA_CAPABILITY, FAKECUDA_OPS. A variable that is not set stands for a machine where all is
 * well. */
#include "tensor/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

int cuDriverGetVersion(int *ret_version);
int cuDriverGetVersion(int *ret_version)
{
    *ret_version = number("FAKECUDA_DRIVER", 13000);
    return 0;
}

int cuDeviceGetCount(int *ret_count);
int cuDeviceGetCount(int *ret_count)
{
    *ret_count = number("FAKECUDA_COUNT", 2);
    return 0;
}

int cuDeviceGetName(char *name, int room, int device);
int cuDeviceGetName(char *name, int room, int device)
{
    (void)device;
    return snprintf(name, (size_t)room, "Fake GPU") > 0 ? 0 : 1;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    int capability = number("FAKECUDA_CAPABILITY", 90);

    (void)device;
    *ret_value = attribute == 75 ? capability / 10 : capability % 10;
    return 0;
}

/* There is nothing to open: it tells which GPU was wanted. */
static int open_fake(int gpu, struct ct_device **ret_device, struct ct_error *err)
{
    (void)ret_device;
    (void)snprintf(err->text, sizeof err->text, "opened GPU %d", gpu);
    return err->code = CT_EUNAVAILABLE;
}

struct ct_device_plugin ct_device_plugin = {
    .version = CT_DEVICE_PLUGIN_VERSION,
    .ops = CT_OP_COUNT,
    .args = sizeof(struct ct_kernel_args),
    .runtime = 12080,
    .capability = 80,
    .open = open_fake,
};

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    ct_device_plugin.ops = (uint32_t)number("FAKECUDA_OPS", CT_OP_COUNT);
    return number("FAKECUDA_INIT", 0);
}
