/* See health.h. */
#include "hardware/health.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define GIB 1073741824.0

/* ---- records -------------------------------------------------------------------------------- */

enum kind { TEXT, SIZE, NUMBER, YES };

/* The fields of a card: one table for writing and reading. */
static const struct field {
    const char *name;
    enum kind kind;
    size_t at, size;
} fields[] = {
#define FIELD(name, kind, member)                          \
    {                                                      \
        name, kind, offsetof(struct ct_nvml_card, member), \
            sizeof(((struct ct_nvml_card *)0)->member)     \
    }
    FIELD("address", TEXT, address),
    FIELD("uuid", TEXT, uuid),
    FIELD("name", TEXT, name),
    FIELD("memory_bytes", SIZE, memory_bytes),
    FIELD("free_bytes", SIZE, free_bytes),
    FIELD("celsius", NUMBER, celsius),
    FIELD("ecc_uncorrected", SIZE, uncorrected),
    FIELD("remap_pending", YES, rows_pending),
    FIELD("remap_failed", YES, rows_failed),
    FIELD("retirement_pending", YES, pages_pending),
    FIELD("slowed_by_heat", YES, hot),
    FIELD("slowed_by_power", YES, braked),
    FIELD("failure", NUMBER, failure),
#undef FIELD
};

void ct_health_print_driver(struct ct_buf *to, const char *version, uint32_t count)
{
    (void)ct_buf_puts(to, "{\"driver\":");
    ct_json_string(to, version);
    (void)ct_buf_printf(to, ",\"gpus\":%" PRIu32 "}\n", count);
}

void ct_health_print_error(struct ct_buf *to, const struct ct_error *err)
{
    (void)ct_buf_puts(to, err->code == CT_ENOTFOUND ? "{\"absent\":" : "{\"error\":");
    ct_json_string(to, err->text);
    (void)ct_buf_puts(to, "}\n");
}

void ct_health_print_card(struct ct_buf *to, const struct ct_nvml_card *card)
{
    (void)ct_buf_printf(to, "{\"index\":%" PRIu32, card->index);
    for (size_t i = 0; i < CT_COUNT(fields); i++) {
        const char *at = (const char *)card + fields[i].at;
        uint64_t size;
        int32_t number;

        (void)ct_buf_printf(to, ",\"%s\":", fields[i].name);
        switch (fields[i].kind) {
        case TEXT:
            ct_json_string(to, at);
            break;
        case SIZE:
            memcpy(&size, at, sizeof size);
            (void)ct_buf_printf(to, "%" PRIu64, size);
            break;
        case NUMBER:
            memcpy(&number, at, sizeof number);
            (void)ct_buf_printf(to, "%" PRId32, number);
            break;
        case YES:
            (void)ct_buf_puts(to, *(const bool *)at ? "true" : "false");
            break;
        }
    }
    (void)ct_buf_puts(to, "}\n");
}

/* False when the field is not of its kind. */
static bool read_field(const json_t *record, const struct field *field, struct ct_nvml_card *card)
{
    const json_t *value = json_object_get(record, field->name);
    char *at = (char *)card + field->at;
    bool is_right = field->kind == TEXT  ? json_is_string(value)
                    : field->kind == YES ? json_is_boolean(value)
                                         : json_is_integer(value);

    if (!is_right)
        return false;
    if (field->kind == TEXT) {
        (void)ct_str_copy(at, field->size, json_string_value(value));
    } else if (field->kind == YES) {
        *(bool *)at = json_is_true(value);
    } else if (field->kind == NUMBER) {
        int32_t number = (int32_t)json_integer_value(value);
        memcpy(at, &number, sizeof number);
    } else {
        uint64_t size = (uint64_t)json_integer_value(value);
        memcpy(at, &size, sizeof size);
    }
    return true;
}

static int parse_card(struct ct_health *health, const json_t *record)
{
    struct ct_nvml_card card = {.index = health->received};

    for (size_t i = 0; i < CT_COUNT(fields); i++)
        if (!read_field(record, &fields[i], &card))
            return CT_EPROTOCOL;
    if (!health->begun || health->received == health->count ||
        json_integer_value(json_object_get(record, "index")) != card.index)
        return CT_EPROTOCOL;
    health->cards[health->received++] = card;
    return 0;
}

static int parse(struct ct_health *health, const json_t *record)
{
    const json_t *absent = json_object_get(record, "absent");
    const json_t *error = absent != NULL ? absent : json_object_get(record, "error");
    const json_t *driver = json_object_get(record, "driver");
    json_int_t count = json_integer_value(json_object_get(record, "gpus"));

    if (json_is_string(error)) {
        health->is_absent = absent != NULL;
        (void)ct_str_copy(health->error, sizeof health->error, json_string_value(error));
        return 0;
    }
    if (!json_is_string(driver))
        return parse_card(health, record);
    if (health->begun || count < 0)
        return CT_EPROTOCOL;
    health->begun = true;
    health->count = (uint32_t)CT_MIN(count, (json_int_t)CT_GPUS_MAX);
    (void)ct_str_copy(health->driver, sizeof health->driver, json_string_value(driver));
    return 0;
}

int ct_health_parse(struct ct_health *health, const char *line)
{
    json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    int rc = json_is_object(record) ? parse(health, record) : CT_EPROTOCOL;

    json_decref(record);
    return rc;
}

/* ---- words ---------------------------------------------------------------------------------- */

struct speech {
    const struct ct_health *health;
    const struct ct_health_scope *scope;
    void (*emit)(void *context, bool is_wrong, const char *sentence);
    void *context;
};

static void report(const struct speech *speech, bool is_wrong, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void report(const struct speech *speech, bool is_wrong, const char *format, ...)
{
    char sentence[1200];
    va_list words;

    va_start(words, format);
    (void)vsnprintf(sentence, sizeof sentence, format, words);
    va_end(words);
    speech->emit(speech->context, is_wrong, sentence);
}

/* The card's place among the driver's, or -1. */
static int place_of(const struct ct_gpus *gpus, const char *address)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        if (strcmp(gpus->at[i].address, address) == 0)
            return (int)i;
    return -1;
}

bool ct_health_means(const struct ct_health_scope *scope, const struct ct_nvml_card *card)
{
    int place = place_of(scope->gpus, card->address);

    if (card->failure == CT_NVML_NO_PERMISSION)
        return false;
    if (card->address[0] == '\0' || scope->gpus->count == 0)
        return true;
    return place >= 0 && (scope->used == NULL || scope->used[place]);
}

static uint64_t used_bytes(const struct ct_nvml_card *card)
{
    return card->memory_bytes - CT_MIN(card->free_bytes, card->memory_bytes);
}

/* What this card held then; 0 when it was not asked. */
static uint64_t used_before(const struct ct_health *before, const struct ct_nvml_card *card)
{
    for (uint32_t i = 0; i < before->received; i++)
        if (before->cards[i].index == card->index && strcmp(before->cards[i].uuid, card->uuid) == 0)
            return used_bytes(&before->cards[i]);
    return 0;
}

struct ct_health_held ct_health_held(const struct ct_health *now, const struct ct_health *before,
                                     const struct ct_health_scope *scope)
{
    struct ct_health_held held = {.bytes = 0};
    uint64_t most = 0;

    for (uint32_t i = 0; i < now->received; i++) {
        const struct ct_nvml_card *card = &now->cards[i];

        if (!ct_health_means(scope, card) || card->failure != 0)
            continue;
        uint64_t idle = CT_MAX(used_before(before, card), (uint64_t)CT_HEALTH_IDLE_BYTES);
        uint64_t bytes = used_bytes(card) - CT_MIN(idle, used_bytes(card));
        held.bytes += bytes;
        if (bytes > most) {
            most = bytes;
            held.card = *card;
        }
    }
    return held;
}

void ct_health_name(const struct ct_nvml_card *card, char *text, size_t room)
{
    const char *comma = card->name[0] != '\0' && card->address[0] != '\0' ? ", " : "";

    if (card->name[0] == '\0' && card->address[0] == '\0')
        (void)snprintf(text, room, "GPU %" PRIu32, card->index);
    else
        (void)snprintf(text, room, "GPU %" PRIu32 " (%s%s%s)", card->index, card->name, comma,
                       card->address);
}

/* What there is: models with their numbers, memory, the highest temperature. */
static void report_all(const struct speech *speech)
{
    const struct ct_health_scope *scope = speech->scope;
    const struct ct_health *health = speech->health;
    uint64_t memory = 0, least = UINT64_MAX;
    uint32_t meant = 0, models = 0;
    int32_t celsius = -1;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (uint32_t i = 0; i < health->received; i++) {
        const struct ct_nvml_card *card = &health->cards[i];
        uint32_t alike = 0;
        bool is_first = true;

        if (!ct_health_means(scope, card) || card->failure != 0)
            continue;
        for (uint32_t other = 0; other < health->received; other++) {
            bool same = ct_health_means(scope, &health->cards[other]) &&
                        health->cards[other].failure == 0 &&
                        strcmp(card->name, health->cards[other].name) == 0;
            alike += same;
            is_first = is_first && (!same || other >= i);
        }
        meant++;
        celsius = CT_MAX(celsius, card->celsius);
        if (card->memory_bytes > 0 && card->free_bytes < least) {
            least = card->free_bytes;
            memory = card->memory_bytes;
        }
        if (is_first)
            (void)ct_buf_printf(&text, "%s%" PRIu32 " x %s", models++ > 0 ? ", " : "", alike,
                                card->name[0] != '\0' ? card->name : "GPU");
    }
    if (memory > 0)
        (void)ct_buf_printf(&text, ", %.1f of %.1f GiB free%s", (double)least / GIB,
                            (double)memory / GIB, meant > 1 ? " or more" : "");
    if (celsius >= 0)
        (void)ct_buf_printf(&text, ", %s%" PRId32 " C", meant > 1 ? "at most " : "", celsius);
    if (meant > 0)
        report(speech, false, "GPUs: %s, driver %s", ct_buf_str(&text),
               health->driver[0] != '\0' ? health->driver : "unknown");
    ct_buf_deinit(&text);
}

/* What is wrong with a card, and what to do. */
static void report_card(const struct speech *speech, const struct ct_nvml_card *card)
{
    char name[160];

    ct_health_name(card, name, sizeof name);
    if (card->failure != 0) {
        report(speech, true,
               "%s cannot be used: %s (NVML %" PRId32
               "); reset it (nvidia-smi --gpu-reset -i %" PRIu32
               ") or reboot the node; the kernel's log has its Xid (dmesg | grep Xid)",
               name, ct_nvml_text(card->failure), card->failure, card->index);
        return;
    }
    if (card->rows_failed)
        report(speech, true, "%s could not remap a faulty row of its memory: have it replaced",
               name);
    if (card->uncorrected > 0)
        report(speech, true,
               "%s has had %" PRIu64
               " memory error%s that ECC could not correct since its driver was "
               "loaded: jobs on it crash; reset it when it is idle (nvidia-smi --gpu-reset -i "
               "%" PRIu32 "), and have it replaced when they come again",
               name, card->uncorrected, card->uncorrected == 1 ? "" : "s", card->index);
    if (card->rows_pending || card->pages_pending)
        report(
            speech, true,
            "%s has faulty memory that is taken out of use at its next reset: reset it when it is "
            "idle (nvidia-smi --gpu-reset -i %" PRIu32 ")",
            name, card->index);
    if (card->hot)
        report(speech, true,
               "%s is slowed down by its temperature (%" PRId32 " C): look at its cooling", name,
               card->celsius);
    if (card->braked)
        report(speech, true,
               "%s is slowed down by the power brake: look at the node's power supplies", name);
}

/* A card that the driver lists and NVML does not know has fallen off the bus. */
static void report_missing(const struct speech *speech)
{
    const struct ct_gpus *gpus = speech->scope->gpus;
    const struct ct_health *health = speech->health;

    for (uint32_t i = 0; i < health->received; i++)
        if (health->cards[i].address[0] == '\0')
            return; /* it may be this one */
    for (uint32_t i = 0; i < gpus->count; i++) {
        bool is_there = false;

        for (uint32_t card = 0; card < health->received; card++)
            is_there |= strcmp(health->cards[card].address, gpus->at[i].address) == 0;
        if (is_there || (speech->scope->used != NULL && !speech->scope->used[i]))
            continue;
        report(speech, true,
               "the GPU at %s%s%s%s is not among those that NVML knows: it has fallen off the bus; "
               "reboot the node, and look for its Xid in the kernel's log (dmesg | grep Xid)",
               gpus->at[i].address, gpus->at[i].model[0] != '\0' ? " (" : "", gpus->at[i].model,
               gpus->at[i].model[0] != '\0' ? ")" : "");
    }
}

static void report_late(const struct speech *speech)
{
    const struct ct_health *health = speech->health;
    double seconds = (double)speech->scope->late_ms / 1000;
    char where[64] = "";

    if (health->begun && health->received < health->count)
        (void)snprintf(where, sizeof where, " about GPU %" PRIu32, health->received);
    report(
        speech, true,
        "NVML has not answered within %g s%s: the driver may hang, and what uses that GPU with it; "
        "see the kernel's log (dmesg | grep NVRM)",
        seconds, where);
}

void ct_health_report(const struct ct_health *health, const struct ct_health_scope *scope,
                      void (*emit)(void *context, bool is_wrong, const char *sentence),
                      void *context)
{
    const struct speech speech = {health, scope, emit, context};

    report_all(&speech);
    for (uint32_t i = 0; i < health->received; i++)
        if (ct_health_means(scope, &health->cards[i]))
            report_card(&speech, &health->cards[i]);
    if (health->error[0] != '\0')
        report(&speech, !health->is_absent, "how the GPUs are is not known: %s", health->error);
    else if (scope->late_ms > 0)
        report_late(&speech);
    else if (!health->begun || health->received < health->count)
        report(&speech, false, "how the GPUs are is not known: the process that asks NVML ended");
    else
        report_missing(&speech);
}
