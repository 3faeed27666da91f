/* Records of GPUs, and what is said of them. */
#include "hardware/health.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(health, .timeout = 10);

static const struct ct_gpus two = {
    .count = 2,
    .at = {{.address = "0000:1a:00.0", .model = "NVIDIA X"}, {.address = "0000:2a:00.0"}}};

static struct ct_nvml_card card_of(uint32_t index)
{
    struct ct_nvml_card card = {.index = index,
                                .name = "NVIDIA X",
                                .uuid = "GPU-a",
                                .memory_bytes = UINT64_C(80) << 30,
                                .free_bytes = (UINT64_C(79) - index) << 30,
                                .celsius = 40 + (int32_t)index};

    (void)snprintf(card.address, sizeof card.address, "0000:%ua:00.0", index + 1);
    return card;
}

static struct ct_health health_of(uint32_t cards)
{
    struct ct_health health = {.begun = true, .driver = "580.95.05", .count = cards};

    for (health.received = 0; health.received < cards; health.received++)
        health.cards[health.received] = card_of(health.received);
    return health;
}

static void collect(void *context, bool is_wrong, const char *sentence)
{
    char *text = context;
    size_t used = strlen(text);

    (void)snprintf(text + used, 4096 - used, "%s%s\n", is_wrong ? "! " : "", sentence);
}

static const char *expected(const struct ct_health *health, const bool *used, uint64_t late_ms)
{
    static char text[4096];
    const struct ct_health_scope scope = {.gpus = &two, .used = used, .late_ms = late_ms};

    text[0] = '\0';
    ct_health_report(health, &scope, collect, text);
    return text;
}

/* ---- records -------------------------------------------------------------------------------- */

Test(health, records_are_taken_in_as_they_were_printed)
{
    struct ct_nvml_card card = card_of(0);
    struct ct_health health = {.begun = false};
    struct ct_buf text;
    char lines[2048];

    card.uncorrected = UINT64_C(1) << 40;
    card.rows_pending = card.braked = true;
    card.failure = CT_NVML_GPU_IS_LOST;
    (void)strcpy(card.name, "NVIDIA \"X\"");
    ct_buf_init(&text, 0);
    ct_health_print_driver(&text, "580.95.05", 1);
    ct_health_print_card(&text, &card);
    (void)snprintf(lines, sizeof lines, "%s", ct_buf_str(&text));
    ct_buf_deinit(&text);
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n"))
        cr_assert_eq(ct_health_parse(&health, line), 0, "%s", line);
    cr_assert(health.begun);
    cr_assert_str_eq(health.driver, "580.95.05");
    cr_assert_eq(health.received, 1u);
    cr_assert_eq(memcmp(&health.cards[0], &card, sizeof card), 0);
}

Test(health, what_is_no_record_is_refused)
{
    static const char *const wrong[] = {"",
                                        "{",
                                        "[]",
                                        "7",
                                        "{}",
                                        "{\"driver\":7}",
                                        "{\"driver\":\"1\",\"gpus\":-1}",
                                        "{\"index\":0}",
                                        "{\"index\":0,\"address\":7}"};
    struct ct_health health = {.begun = false};
    struct ct_buf text;

    for (size_t i = 0; i < CT_COUNT(wrong); i++)
        cr_assert_eq(ct_health_parse(&health, wrong[i]), CT_EPROTOCOL, "%s", wrong[i]);
    ct_buf_init(&text, 0);
    const struct ct_nvml_card card = card_of(0);
    ct_health_print_card(&text, &card);
    cr_assert_eq(ct_health_parse(&health, ct_buf_str(&text)), CT_EPROTOCOL, "before the first one");
    cr_assert_eq(ct_health_parse(&health, "{\"driver\":\"1\",\"gpus\":1}"), 0);
    cr_assert_eq(ct_health_parse(&health, ct_buf_str(&text)), 0);
    cr_assert_eq(ct_health_parse(&health, ct_buf_str(&text)), CT_EPROTOCOL,
                 "one more than counted");
    ct_buf_deinit(&text);
}

/* ---- words ---------------------------------------------------------------------------------- */

Test(health, healthy_cards_are_one_line)
{
    struct ct_health health = health_of(2);

    cr_assert_str_eq(expected(&health, NULL, 0),
                     "GPUs: 2 x NVIDIA X, 78.0 of 80.0 GiB free or more, "
                     "at most 41 C, driver 580.95.05\n");
    (void)strcpy(health.cards[1].name, "NVIDIA Y");
    health.cards[0].celsius = health.cards[1].celsius = -1;
    health.cards[0].memory_bytes = health.cards[1].memory_bytes = 0;
    health.driver[0] = '\0';
    cr_assert_str_eq(expected(&health, NULL, 0),
                     "GPUs: 1 x NVIDIA X, 1 x NVIDIA Y, driver unknown\n");
}

Test(health, cards_of_others_are_not_spoken_of)
{
    static const bool first[CT_GPUS_MAX] = {true, false};
    struct ct_health health = health_of(3); /* the third is in none of the driver's files */

    health.cards[1].uncorrected = 1;
    health.cards[2].failure = CT_NVML_GPU_IS_LOST;
    cr_assert_str_eq(expected(&health, first, 0),
                     "GPUs: 1 x NVIDIA X, 79.0 of 80.0 GiB free, 40 C, driver 580.95.05\n");
    health.cards[0].failure = CT_NVML_NO_PERMISSION;
    cr_assert_str_eq(expected(&health, first, 0), "", "nor what this user may not ask about");
}

Test(health, each_fault_has_its_sentence_with_the_remedy)
{
    static const struct {
        uint64_t errors;
        bool pending, failed, retire, hot, braked;
        int32_t failure;
        const char *sentence;
    } rows[] = {
        {2, .sentence = "! GPU 0 (NVIDIA X, 0000:1a:00.0) has had 2 memory errors that ECC could "
                        "not correct since its driver was loaded: jobs on it crash; reset it when "
                        "it is idle (nvidia-smi --gpu-reset -i 0), and have it replaced when they "
                        "come again\n"},
        {.pending = true,
         .sentence = "! GPU 0 (NVIDIA X, 0000:1a:00.0) has faulty memory that is taken out of use "
                     "at its next reset: reset it when it is idle (nvidia-smi --gpu-reset -i 0)\n"},
        {.retire = true, .sentence = "has faulty memory that is taken out of use"},
        {.failed = true,
         .sentence = "! GPU 0 (NVIDIA X, 0000:1a:00.0) could not remap a faulty row of its memory: "
                     "have it replaced\n"},
        {.hot = true, .sentence = "is slowed down by its temperature (40 C): look at its cooling"},
        {.braked = true, .sentence = "is slowed down by the power brake: look at the node's power"},
        {.failure = CT_NVML_GPU_IS_LOST,
         .sentence = "! GPU 0 (NVIDIA X, 0000:1a:00.0) cannot be used: the GPU is lost (NVML 15); "
                     "reset it (nvidia-smi --gpu-reset -i 0) or reboot the node; the kernel's log "
                     "has its Xid (dmesg | grep Xid)\n"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_health health = health_of(2);
        struct ct_nvml_card *card = &health.cards[0];

        card->uncorrected = rows[i].errors;
        card->rows_pending = rows[i].pending;
        card->rows_failed = rows[i].failed;
        card->pages_pending = rows[i].retire;
        card->hot = rows[i].hot;
        card->braked = rows[i].braked;
        card->failure = rows[i].failure;
        const char *text = expected(&health, NULL, 0);
        cr_assert_not_null(strstr(text, rows[i].sentence), "%s", text);
        cr_assert_eq(strncmp(text, "GPUs: ", 6), 0, "%s", text);
    }
}

Test(health, a_card_that_nvml_does_not_know_has_fallen_off_the_bus)
{
    const struct ct_health health = {.begun = true,
                                     .driver = "1",
                                     .count = 1,
                                     .received = 1,
                                     .cards = {{.address = "0000:2a:00.0"}}};

    cr_assert_not_null(strstr(expected(&health, NULL, 0),
                              "! the GPU at 0000:1a:00.0 (NVIDIA X) is not among those that NVML "
                              "knows: it has fallen off the bus; reboot the node"));
}

Test(health, an_answer_that_did_not_come_says_where_it_stopped)
{
    struct ct_health health = health_of(2);

    health.received = 1;
    cr_assert_str_eq(expected(&health, NULL, 2500),
                     "GPUs: 1 x NVIDIA X, 79.0 of 80.0 GiB free, 40 C, driver 580.95.05\n"
                     "! NVML has not answered within 2.5 s about GPU 1: the driver may hang, and "
                     "what uses that GPU with it; see the kernel's log (dmesg | grep NVRM)\n");
    health = (struct ct_health){.begun = false};
    cr_assert_not_null(
        strstr(expected(&health, NULL, 30000), "not answered within 30 s: the driver"));
    cr_assert_str_eq(expected(&health, NULL, 0),
                     "how the GPUs are is not known: the process that asks NVML ended\n");
}

Test(health, a_library_that_is_not_there_is_no_fault_and_one_that_refuses_is)
{
    static const int codes[] = {CT_ENOTFOUND, CT_EUNAVAILABLE};

    for (size_t i = 0; i < CT_COUNT(codes); i++) {
        const struct ct_error err = {.code = codes[i], .text = "it is \"so\""};
        struct ct_health health = {.begun = false};
        struct ct_buf text;

        ct_buf_init(&text, 0);
        ct_health_print_error(&text, &err);
        cr_assert_eq(ct_health_parse(&health, ct_buf_str(&text)), 0);
        ct_buf_deinit(&text);
        cr_assert_str_eq(expected(&health, NULL, 0),
                         codes[i] == CT_ENOTFOUND
                             ? "how the GPUs are is not known: it is \"so\"\n"
                             : "! how the GPUs are is not known: it is \"so\"\n");
    }
}

/* ---- memory that is held -------------------------------------------------------------------- */

static struct ct_health two_cards(uint64_t first_gib, uint64_t second_gib)
{
    const uint64_t gib[] = {first_gib, second_gib};
    struct ct_health health = {.begun = true, .count = 2, .received = 2};

    for (uint32_t i = 0; i < 2; i++)
        health.cards[i] = (struct ct_nvml_card){.index = i,
                                                .uuid = {(char)('a' + i)},
                                                .memory_bytes = UINT64_C(80) << 30,
                                                .free_bytes = (80 - gib[i]) << 30};
    return health;
}

Test(health, memory_above_what_was_used_before_is_held_by_those_that_ended)
{
    static const struct ct_gpus none = {.count = 0};
    const struct ct_health_scope all = {.gpus = &none};
    struct ct_health before = two_cards(3, 0), now = two_cards(3, 0);

    cr_assert_eq(ct_health_held(&now, &before, &all).bytes, 0);
    now = two_cards(10, 40);
    struct ct_health_held held = ct_health_held(&now, &before, &all);
    cr_assert_eq(held.bytes, (UINT64_C(47) << 30) - CT_HEALTH_IDLE_BYTES);
    cr_assert_eq(held.card.index, 1, "the one with the most");
    before.received = 0;
    cr_assert_eq(ct_health_held(&now, &before, &all).bytes,
                 (UINT64_C(50) << 30) - 2 * (uint64_t)CT_HEALTH_IDLE_BYTES);
    now.cards[1].failure = CT_NVML_GPU_IS_LOST;
    now.cards[0].memory_bytes = 0;
    cr_assert_eq(ct_health_held(&now, &before, &all).bytes, 0, "they do not tell");
}
