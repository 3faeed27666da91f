/* See nproc.h. */
#include "launch/nproc.h"

#include "base/arena.h"
#include "base/str.h"
#include "launch/hostlist.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "nvidia0", "nvidia12", but neither "nvidiactl" nor "nvidia-uvm". */
static bool is_device(const char *name)
{
    static const char stem[] = "nvidia";
    const char *digits = name + sizeof stem - 1;

    if (!ct_starts_with(name, stem) || *digits == '\0')
        return false;
    return digits[strspn(digits, "0123456789")] == '\0';
}

/* A PCI address, "0000:17:00.0". */
static bool is_pci_address(const char *name)
{
    return isxdigit((unsigned char)name[0]) && strchr(name, ':') != NULL;
}

static uint32_t count_entries(const char *root, const char *path, bool (*is_one)(const char *name))
{
    char full[4096];
    uint32_t count = 0;

    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return 0;
    DIR *dir = opendir(full);
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += is_one(entry->d_name);
    (void)closedir(dir);
    return count;
}

static bool is_index(const char *entry, size_t length)
{
    return length > 0 && length < 6 && strspn(entry, "0123456789") >= length;
}

uint32_t ct_nproc_visible(const char *visible, uint32_t present)
{
    bool seen[CT_NPROC_MAX] = {false};
    uint32_t count = 0;

    while (*visible != '\0') {
        visible += strspn(visible, " ");
        size_t length = strcspn(visible, ", ");

        if (is_index(visible, length)) {
            unsigned long index = strtoul(visible, NULL, 10);
            if (index >= present || index >= CT_NPROC_MAX)
                return count;
            if (seen[index])
                return 0;
            seen[index] = true;
        } else if (!ct_starts_with(visible, "GPU-") && !ct_starts_with(visible, "MIG-")) {
            return count;
        }
        count++;
        visible += length;
        visible += strspn(visible, " ");
        if (*visible != ',')
            return count;
        visible++;
    }
    return count;
}

uint32_t ct_nproc_gpus(const struct ct_host_view *host)
{
    /* A container sees every card in /proc but only its own in /dev; a host on which CUDA never ran
     * may lack the files in /dev. */
    uint32_t present = count_entries(host->root, "/dev", is_device);

    if (present == 0)
        present = count_entries(host->root, "/proc/driver/nvidia/gpus", is_pci_address);
    if (host->cuda_visible_devices == NULL)
        return present;
    return present == 0 ? 0 : ct_nproc_visible(host->cuda_visible_devices, present);
}

static int from_gpus(const struct ct_host_view *host, uint32_t *ret_nproc, struct ct_error *err)
{
    uint32_t count = ct_nproc_gpus(host);

    if (count == 0 && host->cuda_visible_devices != NULL)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "nproc_per_node is \"gpu\", but CUDA_VISIBLE_DEVICES=\"%s\" leaves no "
                            "NVIDIA GPU; correct it, or give a number or \"cpu\"",
                            host->cuda_visible_devices);
    if (count == 0)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "nproc_per_node is \"gpu\", but no NVIDIA GPU was found in /dev or "
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
            return ct_error_set(
                err, CT_EUSAGE,
                "nproc_per_node names no number for this host, %s; add %s=N, or *=N "
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
        return ct_error_set(err, CT_EUSAGE,
                            "nproc_per_node is \"%s\"; it takes a number from 1 to %d, or one of "
                            "\"cpu\", \"gpu\", \"auto\"",
                            text, CT_NPROC_MAX);
    *ret_nproc = (uint32_t)number;
    return 0;
}
