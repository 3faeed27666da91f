/* The NVIDIA GPUs of this machine, read from the driver's and the kernel's files: neither CUDA nor
 * NVML is started, which takes seconds and memory on each card.
 *
 *   /proc/driver/nvidia/gpus/0000:17:00.0/information    Model, GPU UUID, Device Minor
 *   /dev/nvidia0, nvidia1, ...                           which of them this process may open
 *   /proc/driver/nvidia/capabilities/gpu0/mig/gi1        one that is split into MIG devices
 *   /sys/bus/pci/devices/0000:17:00.0/numa_node
 *
 * In a container /proc shows the host's cards, /dev its own; on a host on which CUDA never ran /dev
 * may have none. All paths are under a root, "" on a real host. */
#ifndef CT_HARDWARE_GPUS_H
#define CT_HARDWARE_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_GPUS_MAX = 256 };

struct ct_gpu {
    char address[32]; /* on the PCI bus, "0000:17:00.0", small letters */
    char uuid[80];    /* "GPU-..."; "": not known */
    char model[80];   /* "NVIDIA H100 80GB HBM3"; "": not known */
    bool is_cut;      /* into MIG devices, of which CUDA opens one a process */
};

/* In the order of the PCI bus, which is CUDA's for equal cards. */
struct ct_gpus {
    struct ct_gpu at[CT_GPUS_MAX];
    uint32_t count;
};

void ct_gpus_read(const char *root, struct ct_gpus *ret_gpus);

/* Return the number of cards, also where /proc does not describe them. */
uint32_t ct_gpus_present(const char *root);

/* Return the index of the card of an entry of CUDA_VISIBLE_DEVICES; -1 if it is unknown or
 * ambiguous (a MIG device by its own UUID). A name may be abbreviated while it fits only one
 * card. */
int ct_gpus_find(const struct ct_gpus *gpus, const char *entry);

/* Return the NUMA node of a card; -1 when the machine does not report it, or has only one. False
 * when the kernel has no such card. */
bool ct_gpu_node(const char *root, const struct ct_gpu *gpu, int32_t *ret_node);

#endif
