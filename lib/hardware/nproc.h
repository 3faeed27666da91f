/* How many workers a node starts: `nproc_per_node` = a number, "cpu", "gpu" or "auto", or one of
 * these for each of several hosts: "node[1-4]=8,node5=gpu,*=2" ("*" is every other host).
 *
 * GPUs are counted from the driver's device files, never by starting CUDA (which takes seconds and
 * memory on each card); CUDA_VISIBLE_DEVICES counts as CUDA reads it. See hardware/gpus.h. */
#ifndef CT_HARDWARE_NPROC_H
#define CT_HARDWARE_NPROC_H

#include "base/error.h"
#include "hardware/gpus.h"

#include <stdbool.h>
#include <stdint.h>

enum { CT_NPROC_MAX = 4096, CT_NPROC_CROWD = 4 };

/* The host's facts; tests give their own. */
struct ct_host_view {
    const char *root;                 /* in front of /dev, /proc, /sys: "" on a real host */
    uint32_t cpus;                    /* CPUs that this process may use (ct_cpus_available) */
    const char *cuda_visible_devices; /* NULL: unset, all are visible */
    const char *name;                 /* the host's, as a table of hosts may name it */
};

/* Resolve `text` to a number of workers, 1 to CT_NPROC_MAX. 0; CT_EUSAGE for an invalid text or a
 * host that is missing in a table; CT_EUNAVAILABLE when "gpu" finds none. */
int ct_nproc_resolve(const char *text, const struct ct_host_view *host, uint32_t *ret_nproc,
                     struct ct_error *err);

/* Return whether the workers oversubscribe `cpus` CPUs: more than CT_NPROC_CROWD a CPU. */
bool ct_nproc_is_crowded(uint32_t workers, uint32_t cpus);

/* Return the number of NVIDIA GPUs that are visible to workers; 0 without a driver. Of cards that
 * are cut into MIG devices and not named, a process sees one device. */
uint32_t ct_nproc_gpus(const struct ct_host_view *host);

/* Count those of `present` cards, `gpus` as far as they are known, that the list in `visible` (the
 * syntax of CUDA_VISIBLE_DEVICES) selects: indices and GPU- or MIG- names up to the first entry
 * that is neither, or that no card here has; a repeated entry hides all. MIG devices are counted
 * although CUDA opens the first one alone: each is for a worker of its own. */
uint32_t ct_nproc_visible(const char *visible, uint32_t present, const struct ct_gpus *gpus);

/* Return whether the list (NULL: none) names MIG devices. */
bool ct_nproc_names_cuts(const char *visible);

#endif
