/* Xids as records, and what is said of them. */
#include "hardware/xid.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(xid, .timeout = 10);

static const struct ct_gpus two = {
    .count = 2, .at = {{.address = "0000:1a:00.0"}, {.address = "0000:2a:00.0"}}};

static struct ct_nvml_xid xid_of(uint32_t card, uint64_t number)
{
    struct ct_nvml_xid xid = {
        .card = {.index = card, .name = "NVIDIA X"}, .number = number, .instance = CT_NVML_ALL};

    (void)snprintf(xid.card.address, sizeof xid.card.address, "0000:%ua:00.0", card + 1);
    return xid;
}

static const char *text_of(const struct ct_nvml_xid *xid)
{
    static char text[1024];
    struct ct_buf expected;

    ct_buf_init(&expected, 0);
    ct_xid_describe(xid, &expected);
    (void)snprintf(text, sizeof text, "%s", ct_buf_str(&expected));
    ct_buf_deinit(&expected);
    return text;
}

/* ---- records -------------------------------------------------------------------------------- */

Test(xid, a_record_is_taken_in_as_it_was_printed)
{
    struct ct_nvml_xid rows[] = {xid_of(1, 79), xid_of(0, 94), xid_of(0, 31)};

    rows[1].instance = 3;
    rows[2].card = (struct ct_nvml_card){.index = CT_NVML_ALL};
    for (size_t i = 0; i < 3; i++) {
        struct ct_nvml_xid back;
        struct ct_error err = {0};
        struct ct_buf text;

        ct_buf_init(&text, 0);
        ct_xid_print(&text, &rows[i]);
        cr_assert_eq(ct_xid_parse(ct_buf_str(&text), &back, &err), 0, "%s", ct_buf_str(&text));
        ct_buf_deinit(&text);
        cr_assert_eq(back.number, rows[i].number);
        cr_assert_eq(back.instance, rows[i].instance);
        cr_assert_eq(back.card.index, rows[i].card.index);
        cr_assert_str_eq(back.card.address, rows[i].card.address);
        cr_assert_str_eq(back.card.name, rows[i].card.name);
    }
}

Test(xid, an_end_gives_its_sentence_and_anything_else_is_refused)
{
    static const char *const bad[] = {"",
                                      "{}",
                                      "[79]",
                                      "{\"xid\":\"79\",\"address\":\"\",\"name\":\"\"}",
                                      "{\"xid\":-1,\"address\":\"\",\"name\":\"\"}",
                                      "{\"xid\":79}"};
    struct ct_nvml_xid xid;
    struct ct_error err = {0};

    cr_assert_eq(ct_xid_parse("{\"error\":\"it is so\"}", &xid, &err), CT_EUNAVAILABLE);
    cr_assert_str_eq(err.text, "it is so");
    cr_assert_eq(ct_xid_parse("{\"absent\":\"none\"}", &xid, &err), CT_ENOTFOUND);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(ct_xid_parse(bad[i], &xid, &err), CT_EPROTOCOL, "%s", bad[i]);
}

/* ---- words ---------------------------------------------------------------------------------- */

Test(xid, the_common_ones_are_explained_and_others_are_looked_up)
{
    static const unsigned known[] = {13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 120};
    struct ct_nvml_xid xid = xid_of(1, 79);

    cr_assert_str_eq(text_of(&xid),
                     "GPU 1 (NVIDIA X, 0000:2a:00.0) reported Xid 79: it has fallen off the bus; "
                     "reboot the node, and look at its slot, power and cooling when that comes "
                     "again");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        xid.number = known[i];
        cr_assert_null(strstr(text_of(&xid), "catalogue"), "%u", known[i]);
    }
    xid.number = 999;
    cr_assert_not_null(strstr(text_of(&xid), " Xid 999: see NVIDIA's catalogue"));
    xid.instance = 3;
    cr_assert_not_null(strstr(text_of(&xid), "2a:00.0), MIG GPU instance 3, reported"));
    xid.card = (struct ct_nvml_card){.index = CT_NVML_ALL};
    xid.instance = CT_NVML_ALL;
    cr_assert_not_null(strstr(text_of(&xid), "a GPU that NVML does not name reported Xid 999: "));
}

Test(xid, a_number_counts_once_a_gpu_and_a_storm_of_them_is_cut)
{
    struct ct_xids xids = {.count = 0};
    struct ct_nvml_xid first = xid_of(0, 94), other = xid_of(1, 94), part = xid_of(0, 94);

    part.instance = 2;
    cr_assert(ct_xids_add(&xids, &first) && ct_xids_add(&xids, &other) &&
              ct_xids_add(&xids, &part));
    cr_assert_not(ct_xids_add(&xids, &first));
    for (unsigned i = 0; i < 2 * CT_XIDS_MAX; i++) {
        struct ct_nvml_xid more = xid_of(0, 1000 + i);
        cr_assert_eq(ct_xids_add(&xids, &more), i + 3 < CT_XIDS_MAX);
    }
    cr_assert_eq(xids.count, (uint32_t)CT_XIDS_MAX);
}

Test(xid, a_failure_is_explained_by_its_own_gpus_a_line_each_that_begins_with_the_first)
{
    static const bool second[] = {false, true};
    struct ct_xids xids = {.count = 0};
    struct ct_buf text;

    for (size_t i = 0; i < 4; i++) {
        const struct ct_nvml_xid rows[] = {xid_of(1, 999), xid_of(0, 1000), xid_of(1, 43),
                                           xid_of(1, 45)};
        cr_assert(ct_xids_add(&xids, &rows[i]));
    }
    ct_buf_init(&text, 0);
    ct_xids_explain(&xids, &(struct ct_health_scope){.gpus = &two, .used = second}, &text);
    cr_assert_str_eq(ct_buf_str(&text),
                     "GPU 1 (NVIDIA X, 0000:2a:00.0) reported Xid 999: see NVIDIA's catalogue, "
                     "https://docs.nvidia.com/deploy/xid-errors (then Xid 43, 45)\n");
    ct_buf_clear(&text);
    ct_xids_explain(&xids, &(struct ct_health_scope){.gpus = &two}, &text);
    cr_assert_not_null(strstr(ct_buf_str(&text), "43, 45)\nGPU 0 (NVIDIA X, 0000:1a:00.0) "
                                                 "reported Xid 1000: "));
    cr_assert_eq(ct_buf_str(&text)[text.size - 1], '\n');
    ct_buf_deinit(&text);
}
