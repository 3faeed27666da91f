/* See gpus.h. */
#include "hardware/gpus.h"

#include "base/assert.h"
#include "base/str.h"
#include "hardware/affinity.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, TEXT_ROOM = 4096 };

static const char cards_folder[] = "/proc/driver/nvidia/gpus";

/* What follows "name:" on its line in the driver's text, or "". */
static void field(const char *text, const char *name, char *room, size_t size)
{
    const char *at = strstr(text, name);

    room[0] = '\0';
    if (at == NULL)
        return;
    at += strlen(name);
    at += strspn(at, ": \t");
    size_t length = strcspn(at, "\n");
    while (length > 0 && isspace((unsigned char)at[length - 1]))
        length--;
    (void)snprintf(room, size, "%.*s", (int)length, at);
}

/* May this process do that with root/path/name? A control group of devices (Slurm's
 * ConstrainDevices, a container's) counts: the kernel asks it here as it does for open(2). */
static bool may(int what, const char *root, const char *path, const char *name)
{
    char full[PATH_ROOM];

    return snprintf(full, sizeof full, "%s%s%s", root, path, name) < (int)sizeof full &&
           access(full, what) == 0;
}

/* Entries of a folder that are such. */
static uint32_t count_entries(const char *root, const char *path,
                              bool (*is_one)(const char *root, const char *name))
{
    char full[PATH_ROOM];
    uint32_t count = 0;

    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return 0;
    DIR *dir = opendir(full);
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += is_one(root, entry->d_name);
    (void)closedir(dir);
    return count;
}

/* "nvidia0", "nvidia12", but neither "nvidiactl" nor "nvidia-uvm". */
static bool is_device(const char *root, const char *name)
{
    static const char stem[] = "nvidia";
    const char *digits = name + sizeof stem - 1;

    return ct_starts_with(name, stem) && *digits != '\0' &&
           digits[strspn(digits, "0123456789")] == '\0' && may(R_OK | W_OK, root, "/dev/", name);
}

/* A PCI address, "0000:17:00.0". */
static bool is_address(const char *root, const char *name)
{
    (void)root;
    return isxdigit((unsigned char)name[0]) && strchr(name, ':') != NULL &&
           strlen(name) < sizeof((struct ct_gpu *)NULL)->address;
}

/* A GPU instance of MIG, "gi3". */
static bool is_instance(const char *root, const char *name)
{
    (void)root;
    return ct_starts_with(name, "gi") && isdigit((unsigned char)name[2]);
}

/* May it be opened, or has /dev no card at all? */
static bool is_reachable(const char *root, const char *minor)
{
    return minor[0] == '\0' || may(R_OK | W_OK, root, "/dev/nvidia", minor) ||
           !may(F_OK, root, "/dev/", "nvidiactl");
}

/* Describe the card of that name in the driver's folder; false when it is another container's. */
static bool read_card(const char *root, const char *name, struct ct_gpu *gpu)
{
    char path[256], text[TEXT_ROOM], minor[16];

    (void)snprintf(path, sizeof path, "%s/%.31s/information", cards_folder, name);
    if (!ct_sys_read(root, path, text, sizeof text))
        text[0] = '\0';
    field(text, "Device Minor", minor, sizeof minor);
    if (!is_reachable(root, minor))
        return false;
    field(text, "GPU UUID", gpu->uuid, sizeof gpu->uuid);
    field(text, "Model", gpu->model, sizeof gpu->model);
    if (strchr(gpu->uuid, '?') != NULL) /* the driver has not opened the card yet */
        gpu->uuid[0] = '\0';
    (void)snprintf(path, sizeof path, "/proc/driver/nvidia/capabilities/gpu%s/mig", minor);
    gpu->is_cut = minor[0] != '\0' && count_entries(root, path, is_instance) > 0;
    (void)snprintf(gpu->address, sizeof gpu->address, "%.31s", name);
    for (char *at = gpu->address; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    return true;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct ct_gpu *)a)->address, ((const struct ct_gpu *)b)->address);
}

void ct_gpus_read(const char *root, struct ct_gpus *ret_gpus)
{
    char path[PATH_ROOM];

    ret_gpus->count = 0;
    if (snprintf(path, sizeof path, "%s%s", root, cards_folder) >= (int)sizeof path)
        return;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        if (ret_gpus->count < CT_GPUS_MAX && is_address(root, entry->d_name))
            ret_gpus->count += read_card(root, entry->d_name, &ret_gpus->at[ret_gpus->count]);
    (void)closedir(dir);
    qsort(ret_gpus->at, ret_gpus->count, sizeof *ret_gpus->at, by_address);
}

uint32_t ct_gpus_present(const char *root)
{
    uint32_t count = count_entries(root, "/dev", is_device);

    return count > 0 ? count : count_entries(root, cards_folder, is_address);
}

/* The one card whose UUID begins with the first `length` characters of `name`. */
static int find_name(const struct ct_gpus *gpus, const char *name, size_t length)
{
    int found = -1;

    for (uint32_t i = 0; i < gpus->count; i++) {
        if (strncmp(gpus->at[i].uuid, name, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found;
}

int ct_gpus_find(const struct ct_gpus *gpus, const char *entry)
{
    static const char cut[] = "MIG-GPU-"; /* of drivers before R470: MIG-GPU-UUID/GI/CI */
    uint64_t index;

    if (ct_starts_with(entry, "GPU-"))
        return find_name(gpus, entry, strlen(entry));
    if (ct_starts_with(entry, cut))
        return find_name(gpus, entry + 4, strcspn(entry + 4, "/"));
    return ct_parse_u64(entry, &index) == 0 && index < gpus->count ? (int)index : -1;
}

bool ct_gpu_node(const char *root, const struct ct_gpu *gpu, int32_t *ret_node)
{
    char path[96], text[64];

    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", gpu->address);
    if (!ct_sys_read(root, path, text, sizeof text))
        return false;
    *ret_node = (int32_t)strtol(text, NULL, 10);
    return true;
}
