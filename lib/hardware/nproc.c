/* See nproc.h. */
#include "hardware/nproc.h"

#include "base/arena.h"
#include "base/str.h"
#include "hardware/devices.h"
#include "hardware/gpus.h"
#include "slurm/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY_ROOM = 128 };

static bool is_index(const char *entry)
{
    size_t length = strlen(entry);

    return length > 0 && length < 6 && strspn(entry, "0123456789") == length;
}

/* A name that no card here has is none; where no card's name is known any will do. */
static bool is_name(const char *entry, const struct ct_gpus *gpus)
{
    bool of_card = ct_starts_with(entry, "GPU-");

    if (!of_card && !ct_starts_with(entry, "MIG-"))
        return false;
    for (uint32_t i = 0; i < gpus->count; i++)
        if (gpus->at[i].uuid[0] == '\0')
            return true;
    return gpus->count == 0 || ct_gpus_find(gpus, entry) >= 0 ||
           (!of_card && !ct_starts_with(entry, "MIG-GPU-"));
}

static bool is_same(const char *a, const char *b, const struct ct_gpus *gpus)
{
    if (is_index(a) && is_index(b))
        return strtoul(a, NULL, 10) == strtoul(b, NULL, 10);
    if (ct_starts_with(a, "GPU-") && ct_starts_with(b, "GPU-") && ct_gpus_find(gpus, a) >= 0)
        return ct_gpus_find(gpus, a) == ct_gpus_find(gpus, b);
    return strcmp(a, b) == 0;
}

/* Is the entry `index` one of those before it? */
static bool is_repeated(const char *list, uint32_t index, const char *entry,
                        const struct ct_gpus *gpus)
{
    char other[ENTRY_ROOM];

    for (uint32_t i = 0; i < index; i++)
        if (ct_devices_entry(list, i, other, sizeof other) && is_same(entry, other, gpus))
            return true;
    return false;
}

uint32_t ct_nproc_visible(const char *visible, uint32_t present, const struct ct_gpus *gpus)
{
    char entry[ENTRY_ROOM];
    uint32_t count = 0;

    while (count < CT_NPROC_MAX && ct_devices_entry(visible, count, entry, sizeof entry)) {
        /* Behind a blank the driver reads nothing more. */
        bool last = strcspn(entry, " ") < strlen(entry);

        entry[strcspn(entry, " ")] = '\0';
        if (is_index(entry) ? strtoul(entry, NULL, 10) >= present : !is_name(entry, gpus))
            return count;
        if (is_repeated(visible, count, entry, gpus))
            return 0;
        count++;
        if (last)
            return count;
    }
    return count;
}

bool ct_nproc_names_cuts(const char *visible)
{
    char entry[ENTRY_ROOM];

    return visible != NULL && ct_devices_entry(visible, 0, entry, sizeof entry) &&
           ct_starts_with(entry, "MIG-");
}

uint32_t ct_nproc_gpus(const struct ct_host_view *host)
{
    uint32_t present = ct_gpus_present(host->root);
    struct ct_gpus gpus;

    ct_gpus_read(host->root, &gpus);
    if (host->cuda_visible_devices != NULL)
        return present == 0 ? 0 : ct_nproc_visible(host->cuda_visible_devices, present, &gpus);
    for (uint32_t i = 0; i < gpus.count; i++)
        if (gpus.at[i].is_cut)
            return 1;
    return present;
}

static int from_gpus(const struct ct_host_view *host, uint32_t *ret_nproc, struct ct_error *err)
{
    uint32_t count = ct_nproc_gpus(host);

    if (count == 0 && host->cuda_visible_devices != NULL)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "\"gpu\" is asked for, but CUDA_VISIBLE_DEVICES=\"%s\" leaves no "
                            "NVIDIA GPU; correct it, or give a number or \"cpu\"",
                            host->cuda_visible_devices);
    if (count == 0)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "\"gpu\" is asked for, but no NVIDIA GPU was found in /dev or "
                            "/proc/driver/nvidia; give a number or \"cpu\"");
    *ret_nproc = count;
    return 0;
}

/* ---- a number for each host ------------------------------------------------------------------ */

/* Does `hosts`, "node[1-4]" or "*", name this host, with or without its domain? */
static int names_host(const char *hosts, const char *name, bool *ret_named, struct ct_error *err)
{
    enum { ARENA_BYTES = 32 << 20 }; /* for CT_HOSTLIST_MAX names */
    const char *const *list = NULL;
    size_t count = 0, shorter = strcspn(name, ".");
    struct ct_arena arena;

    *ret_named = strcmp(hosts, "*") == 0;
    if (*ret_named)
        return 0;
    ct_arena_init(&arena, ARENA_BYTES);
    int rc = ct_hostlist_expand(hosts, &arena, &list, &count, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        *ret_named |= strcmp(list[i], name) == 0 ||
                      (strncmp(list[i], name, shorter) == 0 && list[i][shorter] == '\0');
    ct_arena_deinit(&arena);
    return rc;
}

/* The length of an entry of the table, HOSTS=N: up to the comma behind its N. */
static size_t entry_length(const char *text)
{
    size_t hosts = strcspn(text, "=");

    return hosts + strcspn(text + hosts, ",");
}

/* What the first entry that names this host says, in `room`. */
static int from_table(const char *text, const char *name, char *room, size_t size,
                      struct ct_error *err)
{
    char entry[1024];

    for (const char *at = text;;) {
        size_t length = entry_length(at);
        bool named = false;

        (void)snprintf(entry, sizeof entry, "%.*s", (int)length, at);
        char *equals = strchr(entry, '=');
        if (equals == NULL || length >= sizeof entry || strlen(equals) > size)
            return ct_error_set(
                err, CT_EUSAGE,
                "nproc_per_node has \"%.64s\" among its hosts; an entry is HOSTS=N, "
                "as in node[1-4]=8,*=2",
                entry);
        *equals = '\0';
        int rc = names_host(entry, name, &named, err);
        if (rc != 0)
            return ct_error_prefix(err, "nproc_per_node");
        if (named) {
            (void)snprintf(room, size, "%s", equals + 1);
            return 0;
        }
        if (at[length] == '\0')
            return ct_error_set(err, CT_EUSAGE,
                                "it names no number for this host, %s; add %s=N, or *=N "
                                "for every other host",
                                name, name);
        at += length + 1;
    }
}

int ct_nproc_resolve(const char *text, const struct ct_host_view *host, uint32_t *ret_nproc,
                     struct ct_error *err)
{
    uint64_t number;
    char own[16];

    if (strchr(text, '=') != NULL) {
        int rc = from_table(text, host->name, own, sizeof own, err);
        if (rc != 0)
            return rc;
        text = own;
    }
    bool is_auto = strcmp(text, "auto") == 0;
    if (strcmp(text, "gpu") == 0)
        return from_gpus(host, ret_nproc, err);
    if (is_auto || strcmp(text, "cpu") == 0) {
        uint32_t gpus = is_auto ? ct_nproc_gpus(host) : 0;
        *ret_nproc = gpus > 0 ? gpus : host->cpus;
        return 0;
    }
    if (ct_parse_u64(text, &number) != 0 || number < 1 || number > CT_NPROC_MAX)
        return ct_error_set(
            err, CT_EUSAGE,
            "\"%s\" is no number of workers; it takes a number from 1 to %d, or one of "
            "\"cpu\", \"gpu\", \"auto\"",
            text, CT_NPROC_MAX);
    *ret_nproc = (uint32_t)number;
    return 0;
}

bool ct_nproc_is_crowded(uint32_t workers, uint32_t cpus)
{
    return (uint64_t)workers > (uint64_t)cpus * CT_NPROC_CROWD;
}
