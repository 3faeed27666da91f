/* Values as YAML that parses to the same values: see value.h. */
#include "config/value.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t size;
};

/* The largest unit that divides `value`. */
static void write_quantity(struct ct_buf *to, int64_t value, const struct unit *units)
{
    while (units->size > 1 && (value == 0 || value % units->size != 0))
        units++;
    (void)ct_buf_printf(to, "%" PRId64 "%s", value / units->size, units->name);
}

/* Readers of YAML 1.1 take 1e-08 for text: a number has a point. */
static void write_real(struct ct_buf *to, double value)
{
    struct ct_buf digits = {0};

    ct_json_number(&digits, value);
    const char *text = ct_buf_str(&digits);
    size_t mantissa = strcspn(text, "e");
    bool pointless = text[mantissa] == 'e' && memchr(text, '.', mantissa) == NULL;
    (void)ct_buf_append(to, text, mantissa);
    (void)ct_buf_printf(to, "%s%s", pointless ? ".0" : "", text + mantissa);
    ct_buf_deinit(&digits);
}

/* Plain when no YAML reader could take it for anything but this text, else in quotes. */
static void write_text(struct ct_buf *to, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const special[] = {"null", "true", "false", "yes", "no",
                                          "on",   "off",  "y",     "n"};
    bool quoted = text[0] == '\0' || strchr("0123456789.-", text[0]) != NULL ||
                  text[strspn(text, plain)] != '\0';

    for (size_t i = 0; i < CT_COUNT(special); i++)
        quoted = quoted || strcasecmp(text, special[i]) == 0;
    if (quoted)
        ct_json_string(to, text);
    else
        (void)ct_buf_puts(to, text);
}

/* Part of a tree: its meaning does not depend on quotes, so numbers need none. */
static void write_word(struct ct_buf *to, const char *text)
{
    double number;

    if (ct_parse_f64(text, &number) == 0)
        (void)ct_buf_puts(to, text);
    else
        write_text(to, text);
}

/* In flow style, all in one line. */
static void write_node(struct ct_buf *to, const struct ct_config_node *node)
{
    bool map = node->kind == CT_CONFIG_NODE_MAP;

    if (node->kind == CT_CONFIG_NODE_WORD) {
        write_word(to, node->text);
        return;
    }
    (void)ct_buf_puts(to, map ? "{" : "[");
    for (const struct ct_config_node *in = node->first; in != NULL; in = in->next) {
        if (map) {
            write_word(to, in->name);
            (void)ct_buf_puts(to, ": ");
        }
        write_node(to, in);
        (void)ct_buf_puts(to, in->next != NULL ? ", " : "");
    }
    (void)ct_buf_puts(to, map ? "}" : "]");
}

void ct_config_value_write(const struct ct_config_key *key, const union ct_config_any *any,
                           struct ct_buf *to)
{
    static const struct unit durations[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    static const struct unit sizes[] = {
        {"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}, {"B", 1}};

    switch (key->type) {
    case CT_CONFIG_TYPE_BOOL:
        (void)ct_buf_puts(to, any->boolean ? "true" : "false");
        break;
    case CT_CONFIG_TYPE_INT:
        (void)ct_buf_printf(to, "%" PRId64, any->integer);
        break;
    case CT_CONFIG_TYPE_F64:
        write_real(to, any->real);
        break;
    case CT_CONFIG_TYPE_STR:
    case CT_CONFIG_TYPE_INPUT:
        write_text(to, any->text);
        break;
    case CT_CONFIG_TYPE_DURATION:
        write_quantity(to, any->integer, durations);
        break;
    case CT_CONFIG_TYPE_BYTES:
        write_quantity(to, any->integer, sizes);
        break;
    case CT_CONFIG_TYPE_NODES:
        (void)ct_buf_printf(to, "%" PRId64, any->nodes.min);
        if (any->nodes.max != any->nodes.min)
            (void)ct_buf_printf(to, ":%" PRId64, any->nodes.max);
        break;
    case CT_CONFIG_TYPE_INTS:
        for (int64_t i = 0; i < any->ints.count; i++)
            (void)ct_buf_printf(to, "%s%" PRId64, i > 0 ? ", " : "[", any->ints.at[i]);
        (void)ct_buf_puts(to, any->ints.count > 0 ? "]" : "[]");
        break;
    case CT_CONFIG_TYPE_STRS:
        (void)ct_buf_puts(to, "[");
        for (int64_t i = 0; i < any->strs.count; i++) {
            (void)ct_buf_puts(to, i > 0 ? ", " : "");
            write_text(to, any->strs.at[i]);
        }
        (void)ct_buf_puts(to, "]");
        break;
    case CT_CONFIG_TYPE_PAIR:
        (void)ct_buf_puts(to, "[");
        write_real(to, any->pair.at[0]);
        (void)ct_buf_puts(to, ", ");
        write_real(to, any->pair.at[1]);
        (void)ct_buf_puts(to, "]");
        break;
    case CT_CONFIG_TYPE_INTERVAL:
        (void)ct_buf_printf(to, "%" PRId64, any->interval.count);
        if (any->interval.unit == CT_CONFIG_EPOCHS)
            (void)ct_buf_puts(to, any->interval.count == 1 ? " epoch" : " epochs");
        break;
    case CT_CONFIG_TYPE_LAYERS:
        if (any->layers.list != NULL)
            write_node(to, any->layers.list);
        else
            (void)ct_buf_printf(to, "%" PRId64, any->layers.count);
        break;
    case CT_CONFIG_TYPE_CHOICE:
        (void)ct_buf_puts(to, key->words[any->choice]);
        break;
    }
}
