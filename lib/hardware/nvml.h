/* NVIDIA's management library on this machine's GPUs. It is loaded, never linked; its types are
 * declared here as its reference manual has them (NVML API Reference, vR580), and each function
 * that a library lacks leaves one fact unknown.
 *
 *   look:   nvmlInit_v2 -> driver, number of GPUs -> each GPU: id, memory, temperature, errors
 *   watch:  nvmlInit_v2 -> each GPU: id, its events -> wait for an Xid, and for the next one
 *
 * Any of these calls may hang for ever in a faulty driver, in an uninterruptible wait: call
 * ct_nvml_query and ct_nvml_watch in a process whose end is not awaited (nvml_probe_uv.h). */
#ifndef CT_HARDWARE_NVML_H
#define CT_HARDWARE_NVML_H

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
    CT_NVML_TIMEOUT = 10,
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

/* Kinds of events, as bits. */
#define CT_NVML_EVENT_XID UINT64_C(8)

/* No part of a card that is cut into MIG devices, but all of it. */
#define CT_NVML_ALL UINT32_MAX

struct ct_nvml_memory {
    unsigned long long total, free, used;
};

struct ct_nvml_pci {
    char address_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char address[32];
};

struct ct_nvml_event {
    struct nvml_device *device;
    unsigned long long type, data; /* data: the Xid */
    unsigned int gpu_instance, compute_instance;
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
int ct_nvml_query(const char *library, const struct ct_nvml_callbacks *callbacks,
                  struct ct_error *err);

/* An Xid: a fault that the driver wrote to the kernel's log, by its number. */
struct ct_nvml_xid {
    struct ct_nvml_card card; /* index, address, name and uuid; index CT_NVML_ALL: not known */
    uint64_t number;
    uint32_t instance; /* the GPU instance it happened in; CT_NVML_ALL: no part of the card */
};

/* Load `library` and wait for new Xids of all cards. Calls `on_xid` with each until that returns
 * false, then returns 0. Otherwise returns only on an error: CT_ENOTFOUND where events are not
 * supported (no such library, an older one, one that does not start, cards without events),
 * CT_EUNAVAILABLE when NVML cannot wait any longer, each with the sentence. */
int ct_nvml_watch(const char *library, bool (*on_xid)(void *context, const struct ct_nvml_xid *xid),
                  void *context, struct ct_error *err);

/* Return the meaning of a result, "the GPU is lost". */
const char *ct_nvml_text(int32_t result);

#endif
