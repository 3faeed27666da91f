/* What NVIDIA's management library says about this machine's GPUs. It is loaded, never linked; its
 * types are declared here as its reference manual has them (NVML API Reference, vR580), and each
 * function that a library lacks leaves one fact unknown.
 *
 *   nvmlInit_v2 -> driver, number of cards -> each card: who, memory, temperature, errors
 *
 * Any of these calls may hang for ever in a sick driver, in a wait that no signal ends: call
 * ct_nvml_look in a process that nobody has to wait for (look_uv.h). */
#ifndef CT_LAUNCH_NVML_H
#define CT_LAUNCH_NVML_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_NVML_LIBRARY "libnvidia-ml.so.1"

/* Results of calls. */
enum {
    CT_NVML_OK = 0,
    CT_NVML_NOT_SUPPORTED = 3,
    CT_NVML_NO_PERMISSION = 4,
    CT_NVML_DRIVER_NOT_LOADED = 9,
    CT_NVML_IRQ_ISSUE = 11,
    CT_NVML_FUNCTION_NOT_FOUND = 13,
    CT_NVML_GPU_IS_LOST = 15,
    CT_NVML_RESET_REQUIRED = 16,
    CT_NVML_VERSION_MISMATCH = 18,
    CT_NVML_GPU_NOT_FOUND = 28,
};

/* Their arguments. */
enum {
    CT_NVML_TEMPERATURE_GPU = 0,
    CT_NVML_UNCORRECTED = 1,
    CT_NVML_VOLATILE = 0, /* since the driver was loaded */
};

/* Why clocks are low, as bits. */
#define CT_NVML_HW_THERMAL UINT64_C(0x40)
#define CT_NVML_HW_POWER_BRAKE UINT64_C(0x80)

struct ct_nvml_memory {
    unsigned long long total, free, used;
};

struct ct_nvml_pci {
    char address_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char address[32];
};

/* One card. */
struct ct_nvml_card {
    uint32_t index;   /* as nvidia-smi counts: in the order of the bus */
    char address[32]; /* "0000:17:00.0", small letters; "": not known */
    char name[96];    /* "": not known */
    char uuid[96];
    uint64_t memory_bytes, free_bytes; /* 0: not known */
    int32_t celsius;                   /* -1: not known */
    uint64_t uncorrected;              /* errors of its memory that ECC could not mend, since the
                                          driver was loaded */
    bool rows_pending, rows_failed;    /* rows of memory to remap; one that could not be */
    bool pages_pending;                /* pages of memory to retire (before Ampere) */
    bool hot, braked;                  /* slowed down by its temperature, by the power supply */
    int32_t failure; /* a result of a call as no healthy card gives one; 0: none */
};

struct ct_nvml_callbacks {
    void (*on_driver)(void *context, const char *version, uint32_t cards);
    void (*on_card)(void *context, const struct ct_nvml_card *card);
    void *context;
};

/* Load `library`, ask it, call back as answers come, let go of it. 0, or with a sentence
 * CT_ENOTFOUND without such a library, CT_EUNAVAILABLE when it or the driver refuses as a whole. */
int ct_nvml_look(const char *library, const struct ct_nvml_callbacks *callbacks,
                 struct ct_error *err);

/* What a result means, "the GPU is lost". */
const char *ct_nvml_text(int32_t result);

#endif
