/* Asking NVML, played by tests/lib/fakenvml. */
#include "hardware/nvml.h"

#include "base/assert.h"

#if __has_include(<nvml.h>)
#include <nvml.h>
#endif

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forget(void)
{
    (void)unsetenv("FAKENVML");
}

TestSuite(nvml, .timeout = 30, .init = forget, .fini = forget);

struct received {
    char driver[96];
    uint32_t count, cards;
    struct ct_nvml_card card[8];
    struct ct_error err;
};

static struct received received;

static void on_driver(void *context, const char *version, uint32_t cards)
{
    struct received *to = context;

    (void)snprintf(to->driver, sizeof to->driver, "%s", version);
    to->count = cards;
}

static void on_card(void *context, const struct ct_nvml_card *card)
{
    struct received *to = context;

    to->card[to->cards++] = *card;
}

/* The fake lies beside this program; each test sets its faults. */
static const char *fake_of(const char *file, const char *faults)
{
    static char path[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    cr_assert_gt(length, 0);
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    cr_assert_not_null(slash);
    (void)snprintf(slash, sizeof path - (size_t)(slash - path), "/fakenvml/%s", file);
    cr_assert_eq(setenv("FAKENVML", faults, 1), 0);
    received = (struct received){.count = 0};
    return path;
}

static int probe(const char *file, const char *faults)
{
    static const struct ct_nvml_callbacks callbacks = {on_driver, on_card, &received};

    return ct_nvml_query(fake_of(file, faults), &callbacks, &received.err);
}

static int probe_new(const char *faults)
{
    return probe("libnvidia-ml.so.1", faults);
}

Test(nvml, a_healthy_card_tells_who_it_is_and_nothing_is_wrong_with_it)
{
    cr_assert_eq(probe_new(""), 0, "%s", received.err.text);
    cr_assert_str_eq(received.driver, "580.95.05");
    cr_assert_eq(received.count, 2u);
    cr_assert_eq(received.cards, 2u);
    const struct ct_nvml_card *card = &received.card[1];
    cr_assert_eq(card->index, 1u);
    cr_assert_str_eq(card->address, "0000:2a:00.0", "as the kernel writes it");
    cr_assert_str_eq(card->name, "NVIDIA X");
    cr_assert_str_eq(card->uuid, "GPU-b");
    cr_assert_eq(card->memory_bytes, UINT64_C(80) << 30);
    cr_assert_eq(card->free_bytes, UINT64_C(79) << 30);
    cr_assert_eq(card->celsius, 41);
    cr_assert(card->uncorrected == 0 && !card->rows_pending && !card->rows_failed &&
              !card->pages_pending && !card->hot && !card->braked && card->failure == 0);
}

Test(nvml, each_fault_is_found_on_its_card_alone)
{
    cr_assert_eq(probe_new("ecc=0:3,remap=1,failed=0,retire=1,hot=1,brake=0"), 0);
    const struct ct_nvml_card *first = &received.card[0], *second = &received.card[1];
    cr_assert_eq(first->uncorrected, 3u);
    cr_assert(first->rows_failed && first->braked);
    cr_assert_not(first->rows_pending || first->pages_pending || first->hot);
    cr_assert_eq(second->uncorrected, 0u);
    cr_assert(second->rows_pending && second->pages_pending && second->hot);
    cr_assert_not(second->rows_failed || second->braked);
    cr_assert_eq(second->celsius, 91);
}

Test(nvml, a_lost_card_does_not_hide_the_others)
{
    cr_assert_eq(probe_new("lost=0"), 0);
    cr_assert_eq(received.cards, 2u);
    cr_assert_eq(received.card[0].failure, CT_NVML_GPU_IS_LOST);
    cr_assert_eq(received.card[1].failure, 0);
    cr_assert_str_eq(received.card[1].name, "NVIDIA X");
}

Test(nvml, what_an_older_library_lacks_is_not_known)
{
    cr_assert_eq(probe("old/libnvidia-ml.so.1", "remap=0,ecc=1:2"), 0, "%s", received.err.text);
    cr_assert_eq(received.cards, 2u);
    cr_assert_str_eq(received.card[0].address, "");
    cr_assert_str_eq(received.card[0].name, "NVIDIA X");
    cr_assert_not(received.card[0].rows_pending);
    cr_assert_eq(received.card[1].uncorrected, 2u);
}

Test(nvml, a_library_that_is_absent_or_refuses_is_named)
{
    cr_assert_eq(probe("none/libnvidia-ml.so.1", ""), CT_ENOTFOUND);
    cr_assert_not_null(strstr(received.err.text, "libnvidia-ml.so.1 cannot be loaded"));
    cr_assert_eq(probe_new("init=18"), CT_EUNAVAILABLE);
    cr_assert_str_eq(received.err.text,
                     "NVML does not start: the driver and its libraries are of different versions "
                     "(18); load the new driver (reboot), CUDA will not start either");
    cr_assert_eq(probe_new("init=999"), CT_EUNAVAILABLE);
    cr_assert_str_eq(received.err.text, "NVML does not start: unknown error (999)");
    cr_assert_eq(received.cards, 0u);
}

/* ---- Xids ----------------------------------------------------------------------------------- */

struct watched {
    struct ct_nvml_xid xid[8];
    uint32_t count, wanted;
};

static bool on_xid(void *context, const struct ct_nvml_xid *xid)
{
    struct watched *watched = context;

    watched->xid[watched->count++] = *xid;
    return watched->count < watched->wanted;
}

/* Watch a fake driver that reports these lines, until `wanted` Xids have arrived. */
static int watch(const char *faults, const char *lines, uint32_t wanted,
                 struct watched *ret_received)
{
    char folder[] = "/tmp/ctrun-xid-XXXXXX", path[64], settings[256];

    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/pipe", folder);
    (void)snprintf(settings, sizeof settings, "xid=%s,%s", path, faults);
    cr_assert_eq(mkfifo(path, 0600), 0);
    int pipe = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(pipe, 0);
    cr_assert_eq(write(pipe, lines, strlen(lines)), (ssize_t)strlen(lines));
    *ret_received = (struct watched){.wanted = wanted};
    const char *library = fake_of("libnvidia-ml.so.1", settings);
    int rc = ct_nvml_watch(library, on_xid, ret_received, &received.err);

    (void)close(pipe);
    (void)unlink(path);
    (void)rmdir(folder);
    return rc;
}

Test(nvml, each_xid_is_told_with_its_card_and_part_in_the_order_of_their_coming)
{
    struct watched watched;

    cr_assert_eq(watch("", "1:31\n0:94:3\n1:43\n", 3, &watched), 0, "%s", received.err.text);
    cr_assert_eq(watched.count, 3u);
    cr_assert_eq(watched.xid[0].number, 31u);
    cr_assert_eq(watched.xid[0].card.index, 1u);
    cr_assert_str_eq(watched.xid[0].card.address, "0000:2a:00.0");
    cr_assert_str_eq(watched.xid[0].card.name, "NVIDIA X");
    cr_assert_eq(watched.xid[0].instance, CT_NVML_ALL);
    cr_assert(watched.xid[1].number == 94 && watched.xid[1].card.index == 0 &&
              watched.xid[1].instance == 3);
    cr_assert(watched.xid[2].number == 43 && watched.xid[2].card.index == 1);
}

Test(nvml, a_wait_that_was_too_short_is_followed_by_another)
{
    struct watched watched;

    cr_assert_eq(watch("", "=10\n=10\n0:79\n", 1, &watched), 0, "%s", received.err.text);
    cr_assert(watched.count == 1 && watched.xid[0].number == 79);
}

Test(nvml, a_wait_that_fails_ends_the_watch_with_a_sentence)
{
    struct watched watched;

    cr_assert_eq(watch("", "0:79\n=15\n0:31\n", 8, &watched), CT_EUNAVAILABLE);
    cr_assert_eq(watched.count, 1u);
    cr_assert_str_eq(received.err.text,
                     "NVML cannot wait for Xids any longer: the GPU is lost (15)");
}

Test(nvml, a_card_that_tells_no_events_does_not_keep_the_others_from_it)
{
    struct watched watched;

    cr_assert_eq(watch("mute=0", "0:31\n1:13\n", 1, &watched), 0, "%s", received.err.text);
    cr_assert(watched.xid[0].number == 13 && watched.xid[0].card.index == 1);
    cr_assert_eq(watch("lost=0", "1:13\n", 1, &watched), 0, "%s", received.err.text);
    cr_assert_eq(watched.xid[0].card.index, 1u);
}

Test(nvml, where_nothing_can_be_waited_for_it_says_so_at_once)
{
    struct watched watched = {.wanted = 1};

    cr_assert_eq(watch("mute=0,count=1", "", 1, &watched), CT_ENOTFOUND);
    cr_assert_not_null(strstr(received.err.text, "tells no Xids here"));
    cr_assert_eq(watch("init=9", "", 1, &watched), CT_ENOTFOUND);
    cr_assert_str_eq(received.err.text, "NVML does not start: the driver is not loaded (9)");
    cr_assert_eq(
        ct_nvml_watch(fake_of("old/libnvidia-ml.so.1", ""), on_xid, &watched, &received.err),
        CT_ENOTFOUND, "an older library");
    cr_assert_eq(
        ct_nvml_watch(fake_of("none/libnvidia-ml.so.1", ""), on_xid, &watched, &received.err),
        CT_ENOTFOUND, "none");
    cr_assert_eq(watched.count, 0u);
}

Test(nvml, types_are_those_of_its_header)
{
#if __has_include(<nvml.h>)
    cr_assert_eq((int)CT_NVML_NO_PERMISSION, (int)NVML_ERROR_NO_PERMISSION);
    cr_assert_eq((int)CT_NVML_DRIVER_NOT_LOADED, (int)NVML_ERROR_DRIVER_NOT_LOADED);
    cr_assert_eq((int)CT_NVML_IRQ_ISSUE, (int)NVML_ERROR_IRQ_ISSUE);
    cr_assert_eq((int)CT_NVML_GPU_IS_LOST, (int)NVML_ERROR_GPU_IS_LOST);
    cr_assert_eq((int)CT_NVML_RESET_REQUIRED, (int)NVML_ERROR_RESET_REQUIRED);
    cr_assert_eq((int)CT_NVML_VERSION_MISMATCH, (int)NVML_ERROR_LIB_RM_VERSION_MISMATCH);
    cr_assert_eq((int)CT_NVML_GPU_NOT_FOUND, (int)NVML_ERROR_GPU_NOT_FOUND);
    cr_assert_eq((int)CT_NVML_TEMPERATURE_GPU, (int)NVML_TEMPERATURE_GPU);
    cr_assert_eq((int)CT_NVML_UNCORRECTED, (int)NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
    cr_assert_eq((int)CT_NVML_VOLATILE, (int)NVML_VOLATILE_ECC);
    cr_assert_eq(CT_NVML_HW_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown);
    cr_assert_eq(CT_NVML_HW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
    cr_assert_eq((int)CT_NVML_TIMEOUT, (int)NVML_ERROR_TIMEOUT);
    cr_assert_eq(CT_NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
    cr_assert_eq(sizeof(struct ct_nvml_event), sizeof(nvmlEventData_t));
    cr_assert_eq(offsetof(struct ct_nvml_event, data), offsetof(nvmlEventData_t, eventData));
    cr_assert_eq(offsetof(struct ct_nvml_event, gpu_instance),
                 offsetof(nvmlEventData_t, gpuInstanceId));
    cr_assert_eq(sizeof(struct ct_nvml_pci), sizeof(nvmlPciInfo_t));
    cr_assert_eq(offsetof(struct ct_nvml_pci, address), offsetof(nvmlPciInfo_t, busId));
    cr_assert_eq(sizeof(struct ct_nvml_memory), sizeof(nvmlMemory_t));
    cr_assert_eq(offsetof(struct ct_nvml_memory, free), offsetof(nvmlMemory_t, free));
#else
    cr_skip_test("skipped: nvml.h is not on the include path");
#endif
}
