/* The driver's functions that ctrun asks before it loads anything, and what of the runtime is about
 * devices and errors (runtime.h). */
#include "runtime.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GPUS = 2,
    GPUS_MAX = 64,
    PROCESSORS = 4,
    SHARED_BYTES = 227 << 10,
    MAJOR = 9,
    DRIVER_VERSION = 13000
};

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

/* ---- which GPUs ------------------------------------------------------------------------------ */

/* Those of CUDA_VISIBLE_DEVICES, a list of numbers, up to the first that is none. */
static int visible(int cards[GPUS_MAX])
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int all = number("HOSTCUDA_COUNT", GPUS), count = 0;

    for (; text == NULL && count < all; count++)
        cards[count] = count;
    while (text != NULL && count < GPUS_MAX) {
        char *end = NULL;
        long card = strtol(text, &end, 10);

        if (end == text || card < 0 || card >= all)
            break;
        cards[count++] = (int)card;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

int hostcuda_count(void)
{
    int cards[GPUS_MAX];

    return visible(cards);
}

int hostcuda_card(int device)
{
    int cards[GPUS_MAX], count = visible(cards);

    return device >= 0 && device < count ? cards[device] : -1;
}

/* ---- the driver ------------------------------------------------------------------------------ */

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    return flags != 0 ? cudaErrorInvalidValue : hostcuda_count() > 0 ? 0 : cudaErrorNoDevice;
}

int cuDriverGetVersion(int *ret_version);
int cuDriverGetVersion(int *ret_version)
{
    *ret_version = DRIVER_VERSION;
    return 0;
}

int cuDeviceGetCount(int *ret_count);
int cuDeviceGetCount(int *ret_count)
{
    *ret_count = hostcuda_count();
    return 0;
}

int cuDeviceGetName(char *name, int room, int device);
int cuDeviceGetName(char *name, int room, int device)
{
    return snprintf(name, (size_t)room, "Host GPU %d", hostcuda_card(device)) < room ? 0 : 1;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device);
int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    (void)device;
    *ret_value = attribute == 75 ? 9 : 0; /* compute capability 9.0 */
    return attribute == 75 || attribute == 76 ? 0 : cudaErrorInvalidValue;
}

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaSetDevice(int device)
{
    return hostcuda_error(hostcuda_card(device) < 0 ? cudaErrorInvalidDevice : hostcuda_state());
}

cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attribute, int device)
{
    if (hostcuda_card(device) < 0)
        return hostcuda_error(cudaErrorInvalidDevice);
    *ret_value = attribute == cudaDevAttrMultiProcessorCount      ? PROCESSORS
                 : attribute == cudaDevAttrComputeCapabilityMajor ? MAJOR
                                                                  : SHARED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    int card = hostcuda_card(device);

    if (card < 0)
        return hostcuda_error(cudaErrorInvalidDevice);
    *properties = (struct cudaDeviceProp){.uuid = {{'h', 'o', 's', 't', (char)(card + 1)}}};
    (void)snprintf(properties->name, sizeof properties->name, "Host GPU %d", card);
    return cudaSuccess;
}

/* ---- failures -------------------------------------------------------------------------------- */

static _Atomic int broken = cudaSuccess;
static _Thread_local cudaError_t last;

void hostcuda_break(cudaError_t error)
{
    atomic_store(&broken, (int)error);
}

cudaError_t hostcuda_state(void)
{
    return (cudaError_t)atomic_load(&broken);
}

cudaError_t hostcuda_error(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = hostcuda_state() != cudaSuccess ? hostcuda_state() : last;

    last = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define NAME(name, value, text) \
    case name:                  \
        return #name;
        HOSTCUDA_ERRORS(NAME)
#undef NAME
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define TEXT(name, value, text) \
    case name:                  \
        return text;
        HOSTCUDA_ERRORS(TEXT)
#undef TEXT
    }
    return "unrecognized error code";
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Who takes the file away is the one that breaks. */
cudaError_t hostcuda_push_launch(cudaStream_t stream, struct hostcuda_work work)
{
    const char *path = getenv("HOSTCUDA_BREAK");

    if (path != NULL && unlink(path) == 0)
        hostcuda_break(cudaErrorIllegalAddress);
    return hostcuda_push(stream, work);
}
