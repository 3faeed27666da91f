/* See xid.h. */
#include "hardware/xid.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* After "GPU 1 (...) reported Xid 13: ". */
static const struct {
    uint64_t number;
    const char *meaning;
} meanings[] = {
    {13, "a kernel of the program failed (an address out of bounds, an illegal instruction); run "
         "it under compute-sanitizer, and have the GPU examined if other programs fail there too"},
    {31, "the program used an address at which it has no GPU memory; run it under "
         "compute-sanitizer, and have the GPU examined if other programs fail there too"},
    {43, "it gave up the work of a program after a fault of that program; the GPU itself is well"},
    {45, "the driver discarded the work of a program, which was killed or had failed before"},
    {48, "its memory has an error that ECC cannot correct; reset it when it is idle, and have it "
         "replaced when that comes again"},
    {63, "a faulty part of its memory will be taken out of use; reset it when it is idle"},
    {64, "a faulty part of its memory cannot be taken out of use; reset it when it is idle, and "
         "have it replaced when that comes again"},
    {74, "one of its NVLink connections failed; look at them (nvidia-smi nvlink -e) and reset the "
         "GPUs that it connects"},
    {79, "it has fallen off the bus; reboot the node, and look at its slot, power and cooling when "
         "that comes again"},
    {92, "ECC corrects errors of its memory too often; have it examined"},
    {94, "an error of its memory that ECC could not correct hit this program alone; start that "
         "again, and reset the GPU when it is idle"},
    {95, "an error of its memory that ECC could not correct may have hit any program on it; reset "
         "it before anything is started there again"},
    {119, "its system processor (GSP) does not answer the driver; reset it, or reboot the node"},
    {120, "its system processor (GSP) failed; reset it, or reboot the node"},
};

static const char *meaning_of(uint64_t number)
{
    for (size_t i = 0; i < CT_COUNT(meanings); i++)
        if (meanings[i].number == number)
            return meanings[i].meaning;
    return "see NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors";
}

/* ---- records -------------------------------------------------------------------------------- */

/* UINT32_MAX is -1 there. */
static json_int_t signed_of(uint32_t number)
{
    return number == CT_NVML_ALL ? -1 : (json_int_t)number;
}

static uint32_t number_of(const json_t *record, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(record, name));

    return value >= 0 && value < UINT32_MAX ? (uint32_t)value : CT_NVML_ALL;
}

void ct_xid_print(struct ct_buf *to, const struct ct_nvml_xid *xid)
{
    (void)ct_buf_printf(to, "{\"xid\":%" PRIu64 ",\"index\":%" JSON_INTEGER_FORMAT ",\"address\":",
                        xid->number, signed_of(xid->card.index));
    ct_json_string(to, xid->card.address);
    (void)ct_buf_puts(to, ",\"name\":");
    ct_json_string(to, xid->card.name);
    (void)ct_buf_printf(to, ",\"instance\":%" JSON_INTEGER_FORMAT "}\n", signed_of(xid->instance));
}

static int parse(const json_t *record, struct ct_nvml_xid *ret_xid, struct ct_error *err)
{
    const json_t *absent = json_object_get(record, "absent");
    const json_t *error = absent != NULL ? absent : json_object_get(record, "error");
    const json_t *number = json_object_get(record, "xid");
    const char *address = json_string_value(json_object_get(record, "address"));
    const char *name = json_string_value(json_object_get(record, "name"));

    if (json_is_string(error))
        return ct_error_set(err, absent != NULL ? CT_ENOTFOUND : CT_EUNAVAILABLE, "%s",
                            json_string_value(error));
    if (!json_is_integer(number) || json_integer_value(number) < 0 || address == NULL ||
        name == NULL)
        return CT_EPROTOCOL;
    *ret_xid = (struct ct_nvml_xid){.card = {.index = number_of(record, "index")},
                                    .number = (uint64_t)json_integer_value(number),
                                    .instance = number_of(record, "instance")};
    (void)ct_str_copy(ret_xid->card.address, sizeof ret_xid->card.address, address);
    (void)ct_str_copy(ret_xid->card.name, sizeof ret_xid->card.name, name);
    return 0;
}

int ct_xid_parse(const char *line, struct ct_nvml_xid *ret_xid, struct ct_error *err)
{
    json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    int rc = json_is_object(record) ? parse(record, ret_xid, err) : CT_EPROTOCOL;

    json_decref(record);
    return rc;
}

/* ---- what was heard ------------------------------------------------------------------------- */

static bool is_of_same(const struct ct_nvml_xid *a, const struct ct_nvml_xid *b)
{
    return a->card.index == b->card.index && a->instance == b->instance;
}

bool ct_xids_add(struct ct_xids *xids, const struct ct_nvml_xid *xid)
{
    for (uint32_t i = 0; i < xids->count; i++)
        if (is_of_same(&xids->at[i], xid) && xids->at[i].number == xid->number)
            return false;
    if (xids->count == CT_XIDS_MAX)
        return false;
    xids->at[xids->count++] = *xid;
    return true;
}

/* ---- words ---------------------------------------------------------------------------------- */

void ct_xid_describe(const struct ct_nvml_xid *xid, struct ct_buf *to)
{
    char name[160] = "a GPU that NVML does not name";

    if (xid->card.index != CT_NVML_ALL)
        ct_health_name(&xid->card, name, sizeof name);
    (void)ct_buf_puts(to, name);
    if (xid->instance != CT_NVML_ALL)
        (void)ct_buf_printf(to, ", MIG GPU instance %" PRIu32 ",", xid->instance);
    (void)ct_buf_printf(to, " reported Xid %" PRIu64 ": %s", xid->number, meaning_of(xid->number));
}

void ct_xids_explain(const struct ct_xids *xids, const struct ct_health_scope *scope,
                     struct ct_buf *to)
{
    for (uint32_t i = 0; i < xids->count; i++) {
        const struct ct_nvml_xid *first = &xids->at[i];
        const char *between = " (then Xid";
        bool is_first = true;

        for (uint32_t before = 0; before < i; before++)
            is_first = is_first && !is_of_same(&xids->at[before], first);
        if (!is_first || !ct_health_means(scope, &first->card))
            continue;
        ct_xid_describe(first, to);
        for (uint32_t next = i + 1; next < xids->count; next++)
            if (is_of_same(&xids->at[next], first)) {
                (void)ct_buf_printf(to, "%s %" PRIu64, between, xids->at[next].number);
                between = ",";
            }
        (void)ct_buf_puts(to, between[0] == ',' ? ")\n" : "\n");
    }
}
