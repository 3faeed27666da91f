/* See str.h. */
#include "base/str.h"

#include "base/assert.h"
#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int ct_parse_i64(const char *text, int64_t *ret_value)
{
    char *end = NULL;

    if (!isdigit((unsigned char)text[text[0] == '-' || text[0] == '+']))
        return CT_EUSAGE;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return CT_EUSAGE;
    *ret_value = value;
    return 0;
}

int ct_parse_u64(const char *text, uint64_t *ret_value)
{
    char *end = NULL;

    if (!isdigit((unsigned char)text[0]))
        return CT_EUSAGE;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return CT_EUSAGE;
    *ret_value = value;
    return 0;
}

/* A decimal number at the start of `text`; returns where it ends, or NULL. */
static const char *parse_decimal(const char *text, double *ret_value)
{
    char *end = NULL;
    const char *digits = text + (text[0] == '-' || text[0] == '+');

    if (!isdigit((unsigned char)digits[digits[0] == '.']) || strpbrk(text, "xX") != NULL)
        return NULL;
    double value = strtod(text, &end);
    if (!isfinite(value))
        return NULL;
    *ret_value = value;
    return end;
}

int ct_parse_f64(const char *text, double *ret_value)
{
    double value;
    const char *end = parse_decimal(text, &value);

    if (end == NULL || *end != '\0')
        return CT_EUSAGE;
    *ret_value = value;
    return 0;
}

struct unit {
    const char *name;
    double factor;
};

static int parse_quantity(const char *text, const struct unit *units, size_t count, uint64_t *ret)
{
    double value;
    const char *end = parse_decimal(text, &value);

    if (end == NULL || value < 0)
        return CT_EUSAGE;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        double scaled = value * units[i].factor;
        if (scaled >= 0x1p63)
            return CT_EUSAGE;
        *ret = (uint64_t)llround(scaled);
        return 0;
    }
    return CT_EUSAGE;
}

int ct_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    static const struct unit units[] = {
        {"", 1},         {"b", 1},       {"k", 0x1p10},   {"kb", 0x1p10},
        {"kib", 0x1p10}, {"m", 0x1p20},  {"mb", 0x1p20},  {"mib", 0x1p20},
        {"g", 0x1p30},   {"gb", 0x1p30}, {"gib", 0x1p30},
    };

    return parse_quantity(text, units, CT_COUNT(units), ret_bytes);
}

int ct_parse_duration_ms(const char *text, uint64_t *ret_ms)
{
    static const struct unit units[] = {
        {"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"min", 60e3}, {"h", 3600e3},
    };

    return parse_quantity(text, units, CT_COUNT(units), ret_ms);
}

int ct_parse_bool(const char *text, bool *ret_value)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};

    for (size_t i = 0; i < CT_COUNT(words); i++) {
        for (int value = 0; value < 2; value++) {
            if (strcasecmp(text, words[i][value]) == 0) {
                *ret_value = value != 0;
                return 0;
            }
        }
    }
    return CT_EUSAGE;
}

bool ct_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool ct_ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t tail = strlen(suffix);

    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static char fold(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

int ct_edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t rows = CT_MIN(strlen(a), (size_t)LONGEST);
    size_t columns = CT_MIN(strlen(b), (size_t)LONGEST);
    int table[3][LONGEST + 1] = {{0}}; /* of row i in table[i % 3] */

    for (size_t j = 0; j <= columns; j++)
        table[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        int *row = table[i % 3];
        const int *above = table[(i - 1) % 3];

        row[0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            char x = fold(a[i - 1]), y = fold(b[j - 1]);

            row[j] = CT_MIN(above[j - 1] + (x != y), CT_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && fold(a[i - 2]) == y)
                row[j] = CT_MIN(row[j], table[(i - 2) % 3][j - 2] + 1);
        }
    }
    return table[rows % 3][columns];
}

const char *ct_nearest(const char *text, size_t count,
                       const char *(*name_at)(const void *context, size_t index),
                       const void *context)
{
    const char *best = NULL;
    int best_distance = 2 + (int)CT_MIN(strlen(text), (size_t)64) / 4;

    for (size_t i = 0; i < count; i++) {
        const char *name = name_at(context, i);
        int distance = ct_edit_distance(text, name);
        if (distance < best_distance) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}

int ct_natural_compare(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0");
            b += strspn(b, "0");
            size_t digits_a = strspn(a, "0123456789");
            size_t digits_b = strspn(b, "0123456789");
            if (digits_a != digits_b)
                return digits_a < digits_b ? -1 : 1;
            int order = strncmp(a, b, digits_a);
            if (order != 0)
                return order;
            a += digits_a;
            b += digits_b;
        } else {
            if (*a != *b)
                return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++;
            b++;
        }
    }
    return (*a != '\0') - (*b != '\0');
}

bool ct_str_copy(char *to, size_t room, const char *from)
{
    size_t length = strnlen(from, room);
    bool fits = length < room;

    length = CT_MIN(length, room - 1);
    memcpy(to, from, length);
    to[length] = '\0';
    return fits;
}

const char *ct_str_last_lines(const char *text, size_t size)
{
    size_t length = strlen(text);

    if (length <= size)
        return text;
    text += length - size;
    const char *newline = strchr(text, '\n');
    return newline != NULL && newline[1] != '\0' ? newline + 1 : text;
}

/* Bytes of the valid sequence at `s` (0 when invalid or cut), by RFC 3629's table. */
static size_t utf8_sequence(const unsigned char *s, size_t size)
{
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || length > size)
        return 0;
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t ct_str_control(const char *text)
{
    unsigned char first = (unsigned char)text[0], second;

    if ((first > 0 && first < 0x20) || first == 0x7f)
        return 1;
    if (first != 0xc2)
        return 0;
    second = (unsigned char)text[1];
    return second >= 0x80 && second < 0xa0 ? 2 : 0;
}

bool ct_str_has_control(const char *text)
{
    while (*text != '\0' && ct_str_control(text) == 0)
        text++;
    return *text != '\0';
}

size_t ct_utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        size_t length = utf8_sequence((const unsigned char *)text + at, size - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

const char *ct_env_value(const char *entry, const char *name)
{
    size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

const char *ct_env_find(char *const *list, const char *name)
{
    const char *value = NULL;

    for (; *list != NULL && value == NULL; list++)
        value = ct_env_value(*list, name);
    return value;
}

bool ct_env_is_utf8(char *const *list)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = "";

    for (size_t i = 0; i < CT_COUNT(names) && locale[0] == '\0'; i++) {
        const char *value = ct_env_find(list, names[i]);
        locale = value != NULL ? value : "";
    }
    return strcasestr(locale, "utf-8") != NULL || strcasestr(locale, "utf8") != NULL;
}
