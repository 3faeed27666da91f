/* A fake NVML for machines without a GPU: a healthy machine of two cards, except for the faults in
 * FAKENVML, separated by commas:
 *
 *   init=18             nvmlInit_v2 gives that result
 *   count=3             cards
 *   lost=1              card 1 is lost
 *   gone=1              card 1 is not counted
 *   denied=1            card 1 is another user's
 *   unlike=1            card 1 is another model
 *   ecc=0:2             errors on card 0
 *   late_ecc=FILE       an error on card 1 once there is such a file
 *   remap=1, failed=1   rows of card 1 wait for a reset, could not be remapped
 *   retire=0            pages of card 0 wait for a reset
 *   hot=1, brake=1      card 1 is slowed down
 *   held=FILE           card 1 holds 41 GiB as long as FILE has a byte; each look takes one away
 *   hang=1              the memory of card 1 is never reported
 *   hang_init=1         nor is anything
 *   mute=1              card 1 reports no events
 *   xid=PIPE            a named pipe, opened with the first event set: a line "1:79" is Xid 79 of
 *                       card 1, "1:79:3" in its GPU instance 3, "=15" a wait that gives result 15
 *
 * -DFAKENVML_OLD leaves out what older libraries have not. */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };

struct nvml_device {
    int number;
};

static struct nvml_device devices[16];

/* What follows "name=", or NULL. */
static const char *fault_of(const char *name)
{
    const char *at = getenv("FAKENVML");

    for (; at != NULL && *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '=')
            return at + strlen(name) + 1;
    return NULL;
}

static int number(const char *name, int otherwise)
{
    const char *text = fault_of(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

static bool is_of(const char *name, const struct nvml_device *device)
{
    return number(name, -1) == device->number;
}

/* The file of that name; false when none is said. */
static bool path_of(const char *name, char path[256])
{
    const char *text = fault_of(name);

    return text != NULL && snprintf(path, 256, "%.*s", (int)strcspn(text, ","), text) > 0;
}

static bool has_file(const char *name)
{
    char path[256];

    return path_of(name, path) && access(path, F_OK) == 0;
}

static void hang(void)
{
    for (;;)
        (void)pause();
}

int nvmlInit_v2(void)
{
    if (fault_of("hang_init") != NULL)
        hang();
    return number("init", OK);
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlSystemGetDriverVersion(char *text, unsigned int room)
{
    (void)snprintf(text, room, "580.95.05");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *ret_count)
{
    *ret_count = (unsigned int)number("count", 2) - (fault_of("gone") != NULL);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **ret_device)
{
    int gone = number("gone", 16);

    *ret_device = &devices[index];
    devices[index].number = (int)index + ((int)index >= gone);
    return is_of("lost", *ret_device) ? LOST : is_of("denied", *ret_device) ? NO_PERMISSION : OK;
}

int nvmlDeviceGetName(const struct nvml_device *device, char *text, unsigned int room)
{
    (void)snprintf(text, room, is_of("unlike", device) ? "NVIDIA Y" : "NVIDIA X");
    return OK;
}

int nvmlDeviceGetUUID(const struct nvml_device *device, char *text, unsigned int room)
{
    (void)snprintf(text, room, "GPU-%c", 'a' + device->number);
    return OK;
}

struct memory {
    unsigned long long total, free, used;
};

/* Is there a byte left in the file? There will be one less. */
static bool takes_byte(const char *name)
{
    char path[256];
    struct stat st;

    return path_of(name, path) && stat(path, &st) == 0 && st.st_size > 0 &&
           truncate(path, st.st_size - 1) == 0;
}

int nvmlDeviceGetMemoryInfo(const struct nvml_device *device, struct memory *ret_memory)
{
    if (is_of("hang", device))
        hang();
    *ret_memory = (struct memory){.total = 80ull << 30, .used = 1ull << 30};
    if (device->number == 1 && takes_byte("held"))
        ret_memory->used += 40ull << 30;
    ret_memory->free = ret_memory->total - ret_memory->used;
    return OK;
}

int nvmlDeviceGetTemperature(const struct nvml_device *device, int sensor,
                             unsigned int *ret_celsius)
{
    *ret_celsius = 40 + (unsigned int)device->number + (is_of("hot", device) ? 50 : 0);
    return sensor == 0 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEccErrors(const struct nvml_device *device, int kind, int since,
                                unsigned long long *ret_count)
{
    const char *text = fault_of("ecc");

    *ret_count = text != NULL && is_of("ecc", device)
                     ? strtoull(text + strcspn(text, ":") + 1, NULL, 10)
                     : 0;
    if (device->number == 1 && has_file("late_ecc"))
        *ret_count = 1;
    return kind == 1 && since == 0 ? OK : NOT_SUPPORTED;
}

#ifndef FAKENVML_OLD
struct pci {
    char address_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char address[32];
};

int nvmlDeviceGetPciInfo_v3(const struct nvml_device *device, struct pci *ret_pci)
{
    *ret_pci = (struct pci){.bus = 0x1a};
    (void)snprintf(ret_pci->address, sizeof ret_pci->address, "00000000:%dA:00.0",
                   device->number + 1);
    return OK;
}

int nvmlDeviceGetRemappedRows(const struct nvml_device *device, unsigned int *ret_corrected,
                              unsigned int *ret_uncorrected, unsigned int *ret_pending,
                              unsigned int *ret_failed)
{
    *ret_corrected = *ret_uncorrected = 1;
    *ret_pending = is_of("remap", device);
    *ret_failed = is_of("failed", device);
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(const struct nvml_device *device, int *ret_pending)
{
    *ret_pending = is_of("retire", device);
    return fault_of("retire") != NULL ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const struct nvml_device *device,
                                              unsigned long long *ret_reasons)
{
    *ret_reasons = (is_of("hot", device) ? 0x48u : 0) | (is_of("brake", device) ? 0x88u : 0) | 1u;
    return OK;
}

/* ---- events ---- */

struct event_set {
    unsigned watched; /* cards, as bits */
    int pipe;         /* -1: nothing ever happens */
};

struct event {
    const struct nvml_device *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

int nvmlEventSetCreate(struct event_set **ret_set)
{
    static struct event_set set;
    char path[256];

    /* For writing as well: it has no end when a writer goes. */
    set = (struct event_set){.pipe = path_of("xid", path) ? open(path, O_RDWR | O_CLOEXEC) : -1};
    *ret_set = &set;
    return fault_of("xid") == NULL || set.pipe >= 0 ? OK : UNKNOWN;
}

int nvmlDeviceRegisterEvents(const struct nvml_device *device, unsigned long long kinds,
                             struct event_set *set)
{
    if (kinds != 8 || is_of("mute", device))
        return NOT_SUPPORTED;
    set->watched |= 1u << device->number;
    return OK;
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *ret_event, unsigned int timeout_ms)
{
    struct pollfd ready = {.fd = set->pipe, .events = POLLIN};
    unsigned card, xid, instance = UINT32_MAX;
    char line[64] = "";

    do {
        if (poll(&ready, 1, (int)timeout_ms) <= 0)
            return TIMEOUT;
        for (size_t i = 0; i + 1 < sizeof line && read(set->pipe, &line[i], 1) == 1; i++)
            if (line[i] == '\n') {
                line[i] = '\0';
                break;
            }
        if (line[0] == '=' && strcmp(line, "=10") != 0) { /* who writes from now on waits */
            (void)close(set->pipe);
            set->pipe = -1;
        }
        if (line[0] == '=')
            return (int)strtol(line + 1, NULL, 10);
        if (sscanf(line, "%u:%u:%u", &card, &xid, &instance) < 2 || card >= 16)
            return UNKNOWN;
    } while ((set->watched >> card & 1) == 0);
    *ret_event = (struct event){.device = &devices[card],
                                .type = 8,
                                .data = xid,
                                .gpu_instance = instance,
                                .compute_instance = UINT32_MAX};
    return OK;
}
#endif
