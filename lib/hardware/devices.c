/* See devices.h. */
#include "hardware/devices.h"

#include "base/bytes.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 128 };

bool ct_devices_entry(const char *list, uint64_t index, char *room, size_t size)
{
    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (list == NULL)
            return false;
        list++;
    }
    list += strspn(list, " ");
    int length = (int)strcspn(list, ",");
    while (length > 0 && list[length - 1] == ' ')
        length--;
    return snprintf(room, size, "%.*s", length, list) < (int)size;
}

/* One device as the driver is to read it: a number counted in the agent's list, or a name. */
static int resolve(const struct ct_devices *devices, const char *name, char *room, size_t size,
                   struct ct_error *err)
{
    uint64_t number;

    if (ct_starts_with(name, "GPU-") || ct_starts_with(name, "MIG-"))
        return ct_str_copy(room, size, name) ? 0 : CT_EUSAGE;
    if (ct_parse_u64(name, &number) != 0)
        return ct_error_set(err, CT_EUSAGE,
                            "gives \"%s\", which is no GPU; they are written as 0, or 0+1 for two",
                            name);
    if (devices->visible == NULL)
        return ct_str_copy(room, size, name) ? 0 : CT_EUSAGE;
    if (ct_devices_entry(devices->visible, number, room, size))
        return 0;
    return ct_error_set(err, CT_EUSAGE,
                        "gives GPU %s, which the list that ctrun was given does not have "
                        "(CUDA_VISIBLE_DEVICES=\"%s\")",
                        name, devices->visible);
}

/* "0+1" as "0,1", each resolved. */
static int join(const struct ct_devices *devices, const char *list, struct ct_buf *to,
                struct ct_error *err)
{
    char name[NAME_ROOM], resolved[NAME_ROOM];

    for (const char *at = list;; at++) {
        size_t length = strcspn(at, "+");

        if (length >= sizeof name)
            return ct_error_set(err, CT_EUSAGE, "gives a name of %zu characters, no GPU has such",
                                length);
        (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
        int rc = resolve(devices, name, resolved, sizeof resolved, err);
        if (rc != 0)
            return rc;
        (void)ct_buf_printf(to, "%s%s", to->size > 0 ? "," : "", resolved);
        at += length;
        if (*at == '\0')
            return 0;
    }
}

int ct_devices_of(const struct ct_devices *devices, uint32_t local_rank, struct ct_arena *arena,
                  const char **ret_list, struct ct_error *err)
{
    char number[16];
    const char *list = number;
    struct ct_buf text;

    *ret_list = NULL;
    if (devices->count == 0 && !devices->one_each)
        return 0;
    (void)snprintf(number, sizeof number, "%" PRIu32, local_rank);
    if (devices->count > 0) {
        if (local_rank >= devices->count)
            return ct_error_set(err, CT_EUSAGE,
                                "gives the GPUs of %zu workers, but there is a worker %" PRIu32
                                "; name its GPUs, too, or start fewer (--nproc_per_node)",
                                devices->count, local_rank);
        list = devices->lists[local_rank];
    }
    ct_buf_init(&text, 0);
    int rc = join(devices, list, &text, err);
    if (rc == 0) {
        *ret_list = ct_arena_strdup(arena, ct_buf_str(&text));
        if (*ret_list == NULL)
            rc = ct_error_set(err, CT_ENOMEM, "is too much: out of memory");
    }
    ct_buf_deinit(&text);
    return rc;
}
