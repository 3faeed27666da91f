/* See nvml.h. */
#include "hardware/nvml.h"

#include "base/assert.h"
#include "base/str.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_device *device;
typedef struct nvml_events *events;

/* How long a wait for an event takes at most; then comes the next one. */
enum { WAIT_MS = 60000 };

struct library {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned int room);
    int (*count)(unsigned int *ret_count);
    int (*device)(unsigned int index, device *ret_device);
    int (*pci)(device, struct ct_nvml_pci *ret_pci);
    int (*name)(device, char *text, unsigned int room);
    int (*uuid)(device, char *text, unsigned int room);
    int (*memory)(device, struct ct_nvml_memory *ret_memory);
    int (*celsius)(device, int sensor, unsigned int *ret_celsius);
    int (*ecc)(device, int kind, int since, unsigned long long *ret_count);
    int (*rows)(device, unsigned int *ret_corrected, unsigned int *ret_uncorrected,
                unsigned int *ret_pending, unsigned int *ret_failed);
    int (*pages)(device, int *ret_pending);
    int (*slow)(device, unsigned long long *ret_reasons);
    int (*events)(events *ret_events);
    int (*enlist)(device, unsigned long long kinds, events);
    int (*wait)(events, struct ct_nvml_event *ret_event, unsigned int timeout_ms);
};

static const struct {
    const char *name;
    size_t at;
    bool needed;
} functions[] = {
    {"nvmlInit_v2", offsetof(struct library, init), true},
    {"nvmlShutdown", offsetof(struct library, shutdown), true},
    {"nvmlDeviceGetCount_v2", offsetof(struct library, count), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct library, device), true},
    {"nvmlSystemGetDriverVersion", offsetof(struct library, driver), false},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct library, pci), false},
    {"nvmlDeviceGetName", offsetof(struct library, name), false},
    {"nvmlDeviceGetUUID", offsetof(struct library, uuid), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct library, memory), false},
    {"nvmlDeviceGetTemperature", offsetof(struct library, celsius), false},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct library, ecc), false},
    {"nvmlDeviceGetRemappedRows", offsetof(struct library, rows), false},
    {"nvmlDeviceGetRetiredPagesPendingStatus", offsetof(struct library, pages), false},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct library, slow), false},
    {"nvmlEventSetCreate", offsetof(struct library, events), false},
    {"nvmlDeviceRegisterEvents", offsetof(struct library, enlist), false},
    {"nvmlEventSetWait_v2", offsetof(struct library, wait), false},
};

const char *ct_nvml_text(int32_t result)
{
    static const struct {
        int32_t result;
        const char *text;
    } texts[] = {
        {CT_NVML_OK, "all is well"},
        {CT_NVML_NO_PERMISSION, "this user may not ask"},
        {CT_NVML_DRIVER_NOT_LOADED, "the driver is not loaded"},
        {CT_NVML_IRQ_ISSUE, "the GPU's interrupts do not arrive"},
        {CT_NVML_GPU_IS_LOST, "the GPU is lost"},
        {CT_NVML_RESET_REQUIRED, "the GPU needs a reset"},
        {CT_NVML_VERSION_MISMATCH, "the driver and its libraries are of different versions"},
        {CT_NVML_GPU_NOT_FOUND, "there is no such GPU"},
    };

    for (size_t i = 0; i < CT_COUNT(texts); i++)
        if (texts[i].result == result)
            return texts[i].text;
    return "unknown error";
}

static int load(const char *file, struct library *ret_library, struct ct_error *err)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    *ret_library = (struct library){.handle = handle};
    if (handle == NULL) {
        (void)ct_error_set(err, CT_ENOTFOUND,
                           "%s cannot be loaded; it comes with NVIDIA's driver, into a container "
                           "with the capability \"utility\" (NVIDIA_DRIVER_CAPABILITIES)",
                           file);
        return CT_ENOTFOUND;
    }
    for (size_t i = 0; i < CT_COUNT(functions); i++) {
        void *function = dlsym(handle, functions[i].name);

        memcpy((char *)ret_library + functions[i].at, &function, sizeof function);
        if (function == NULL && functions[i].needed)
            return ct_error_set(err, CT_EUNAVAILABLE,
                                "%s is too old: it has no %s; update "
                                "NVIDIA's driver",
                                file, functions[i].name);
    }
    return 0;
}

/* Is it known? A failure that is the card's own is kept. */
static bool is_known(struct ct_nvml_card *card, int result)
{
    static const int own[] = {CT_NVML_IRQ_ISSUE, CT_NVML_GPU_IS_LOST, CT_NVML_RESET_REQUIRED};

    for (size_t i = 0; i < CT_COUNT(own); i++)
        if (result == own[i] && card->failure == 0)
            card->failure = result;
    return result == CT_NVML_OK;
}

/* Who it is. "00000000:17:00.0" has four digits more than the kernel's. */
static void identify(const struct library *nvml, device handle, struct ct_nvml_card *card)
{
    struct ct_nvml_pci pci = {.address = ""};

    if (nvml->pci != NULL && is_known(card, nvml->pci(handle, &pci))) {
        pci.address[sizeof pci.address - 1] = '\0';
        size_t more = strcspn(pci.address, ":") == 8 ? 4 : 0;
        (void)ct_str_copy(card->address, sizeof card->address, pci.address + more);
        for (char *at = card->address; *at != '\0'; at++)
            *at = (char)tolower((unsigned char)*at);
    }
    if (nvml->name == NULL || !is_known(card, nvml->name(handle, card->name, sizeof card->name)))
        card->name[0] = '\0';
    if (nvml->uuid == NULL || !is_known(card, nvml->uuid(handle, card->uuid, sizeof card->uuid)))
        card->uuid[0] = '\0';
}

static void examine(const struct library *nvml, device handle, struct ct_nvml_card *card)
{
    struct ct_nvml_memory memory;
    unsigned long long errors, reasons;
    unsigned int celsius, corrected, uncorrected, pending, failed;
    int pages;

    if (nvml->memory != NULL && is_known(card, nvml->memory(handle, &memory))) {
        card->memory_bytes = memory.total;
        card->free_bytes = memory.free;
    }
    if (nvml->celsius != NULL &&
        is_known(card, nvml->celsius(handle, CT_NVML_TEMPERATURE_GPU, &celsius)))
        card->celsius = (int32_t)celsius;
    if (nvml->ecc != NULL &&
        is_known(card, nvml->ecc(handle, CT_NVML_UNCORRECTED, CT_NVML_VOLATILE, &errors)))
        card->uncorrected = errors;
    if (nvml->rows != NULL &&
        is_known(card, nvml->rows(handle, &corrected, &uncorrected, &pending, &failed))) {
        card->rows_pending = pending != 0;
        card->rows_failed = failed != 0;
    }
    if (nvml->pages != NULL && is_known(card, nvml->pages(handle, &pages)))
        card->pages_pending = pages != 0;
    if (nvml->slow != NULL && is_known(card, nvml->slow(handle, &reasons))) {
        card->hot = (reasons & CT_NVML_HW_THERMAL) != 0;
        card->braked = (reasons & CT_NVML_HW_POWER_BRAKE) != 0;
    }
}

static void probe_card(const struct library *nvml, uint32_t index, struct ct_nvml_card *ret_card)
{
    device handle;

    *ret_card = (struct ct_nvml_card){.index = index, .celsius = -1};
    int result = nvml->device(index, &handle);
    if (result != CT_NVML_OK) { /* a failure, whatever its number */
        ret_card->failure = result;
        return;
    }
    identify(nvml, handle, ret_card);
    examine(nvml, handle, ret_card);
}

/* Load it, start it, count the cards. */
static int begin(const char *file, struct library *ret_nvml, unsigned int *ret_count,
                 struct ct_error *err)
{
    int rc = load(file, ret_nvml, err);

    if (rc != 0)
        return rc;
    int result = ret_nvml->init();
    if (result != CT_NVML_OK)
        return ct_error_set(err, CT_EUNAVAILABLE, "NVML does not start: %s (%d)%s",
                            ct_nvml_text(result), result,
                            result == CT_NVML_VERSION_MISMATCH
                                ? "; load the new driver (reboot), CUDA will not start either"
                                : "");
    result = ret_nvml->count(ret_count);
    if (result == CT_NVML_OK)
        return 0;
    (void)ret_nvml->shutdown();
    return ct_error_set(err, CT_EUNAVAILABLE, "NVML does not count its GPUs: %s (%d)",
                        ct_nvml_text(result), result);
}

int ct_nvml_query(const char *library, const struct ct_nvml_callbacks *callbacks,
                  struct ct_error *err)
{
    char version[96] = "";
    struct ct_nvml_card card;
    unsigned int count = 0;
    struct library nvml;
    int rc = begin(library, &nvml, &count, err);

    if (rc != 0)
        return rc;
    if (nvml.driver == NULL || nvml.driver(version, sizeof version) != CT_NVML_OK)
        version[0] = '\0';
    callbacks->on_driver(callbacks->context, version, count);
    for (uint32_t i = 0; i < count; i++) {
        probe_card(&nvml, i, &card);
        callbacks->on_card(callbacks->context, &card);
    }
    (void)nvml.shutdown();
    return 0;
}

/* ---- Xids ----------------------------------------------------------------------------------- */

/* A card whose events are waited for; it may not be able to say who it is when one comes. */
struct watched {
    device handle;
    struct ct_nvml_card card;
};

/* Those of `count` cards that tell Xids, in `ret_cards`; how many. */
static uint32_t enlist(const struct library *nvml, events set, unsigned int count,
                       struct watched *ret_cards)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct watched *at = &ret_cards[told];

        *at = (struct watched){.card = {.index = i}};
        if (nvml->device(i, &at->handle) != CT_NVML_OK ||
            nvml->enlist(at->handle, CT_NVML_EVENT_XID, set) != CT_NVML_OK)
            continue;
        identify(nvml, at->handle, &at->card);
        told++;
    }
    return told;
}

static struct ct_nvml_card card_of(const struct watched *cards, uint32_t count, device handle)
{
    for (uint32_t i = 0; i < count; i++)
        if (cards[i].handle == handle)
            return cards[i].card;
    return (struct ct_nvml_card){.index = CT_NVML_ALL};
}

int ct_nvml_watch(const char *library, bool (*on_xid)(void *context, const struct ct_nvml_xid *xid),
                  void *context, struct ct_error *err)
{
    struct ct_nvml_event event;
    struct watched *cards;
    unsigned int count = 0;
    struct library nvml;
    events set = NULL;
    uint32_t told = 0;
    bool more = true;
    struct ct_error why;
    int result = CT_NVML_OK;

    if (begin(library, &nvml, &count, &why) != 0)
        return ct_error_set(err, CT_ENOTFOUND, "%s", why.text);
    cards = calloc(CT_MAX(count, 1u), sizeof *cards);
    if (cards != NULL && nvml.events != NULL && nvml.enlist != NULL && nvml.wait != NULL &&
        nvml.events(&set) == CT_NVML_OK)
        told = enlist(&nvml, set, count, cards);
    while (told > 0 && more && (result == CT_NVML_OK || result == CT_NVML_TIMEOUT)) {
        event = (struct ct_nvml_event){.gpu_instance = CT_NVML_ALL};
        result = nvml.wait(set, &event, WAIT_MS);
        if (result != CT_NVML_OK || event.type != CT_NVML_EVENT_XID)
            continue;
        const struct ct_nvml_xid xid = {.card = card_of(cards, told, event.device),
                                        .number = event.data,
                                        .instance = event.gpu_instance};
        more = on_xid(context, &xid);
    }
    free(cards);
    (void)nvml.shutdown();
    if (told == 0)
        return ct_error_set(err, CT_ENOTFOUND, "%s tells no Xids here", library);
    return more
               ? ct_error_set(err, CT_EUNAVAILABLE, "NVML cannot wait for Xids any longer: %s (%d)",
                              ct_nvml_text(result), result)
               : 0;
}
