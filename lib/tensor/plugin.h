/* Devices that are loaded on demand, and the choice for a program.
 *
 *     asked in this order: is the library's file there, the driver, a GPU? Are these new enough?
 *
 *     kind    yes to all                    no, at one of them
 *     auto    libctrun_cuda.so's device     the CPU, and why
 *     cuda    libctrun_cuda.so's device     an error: the same sentence
 *     cpu     the CPU (nothing is asked)
 *
 * The driver (libcuda.so.1) is asked first and by itself, so a machine without a GPU loads none of
 * NVIDIA's libraries. What was loaded stays until the process ends. */
#ifndef CT_TENSOR_PLUGIN_H
#define CT_TENSOR_PLUGIN_H

#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The symbol CT_DEVICE_PLUGIN of libctrun_cuda.so. */
struct ct_device_plugin {
    uint32_t version; /* CT_DEVICE_PLUGIN_VERSION, */
    uint32_t ops;     /* CT_OP_COUNT, */
    uint32_t args;    /* sizeof(struct ct_kernel_args) as it was built with */
    int runtime;      /* of CUDA: 13000 */
    int capability;   /* the least that its kernels run on: 80 */
    int (*open)(int number, struct ct_device **ret_device, struct ct_error *err);
};

#define CT_DEVICE_PLUGIN "ct_device_plugin"
enum { CT_DEVICE_PLUGIN_VERSION = 2 };

enum ct_device_kind { CT_DEVICE_AUTO, CT_DEVICE_CPU, CT_DEVICE_CUDA };

struct ct_device_request {
    enum ct_device_kind kind;
    int threads;    /* of a CPU device, as ct_cpu_options has them */
    int local_rank; /* GPU number local_rank of those that this process sees, and round again */
    const char *library; /* NULL: libctrun_cuda.so beside the program, in ../lib */
    const char *driver;  /* NULL: libcuda.so.1 */
};

/* Open the requested device. `ret_why` gets why it is not CUDA's, when the choice was free; its
 * code is 0 otherwise. 0, CT_EUNSUPPORTED with the sentence, or the error of ct_device_cpu_new. */
int ct_device_open(const struct ct_device_request *request, struct ct_device **ret_device,
                   struct ct_error *ret_why, struct ct_error *err);

/* Check for the library and driver that `cuda` needs, without starting them; where the kernel shows
 * cards, a driver is assumed. 0, or CT_EUNSUPPORTED with the sentence. */
int ct_device_probe(const struct ct_device_request *request, bool has_cards, struct ct_error *err);

#ifdef __cplusplus
}
#endif

#endif
