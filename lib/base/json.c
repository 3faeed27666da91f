/* See json.h. */
#include "base/json.h"

#include "base/assert.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_char(struct ct_buf *buf, unsigned char c)
{
    static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";

    for (const char *pair = escapes; *pair != '\0'; pair += 2) {
        if ((unsigned char)*pair == c) {
            (void)ct_buf_printf(buf, "\\%c", pair[1]);
            return;
        }
    }
    if (c < 0x20 || c == 0x7f)
        (void)ct_buf_printf(buf, "\\u%04x", c);
    else
        (void)ct_buf_append(buf, &c, 1);
}

/* Text without characters that need an escape, at the start of data[0 .. size). */
static size_t plain_span(const char *data, size_t size)
{
    size_t at = 0;

    while (at < size && (unsigned char)data[at] >= 0x20 && (unsigned char)data[at] < 0x7f &&
           data[at] != '"' && data[at] != '\\')
        at++;
    return at;
}

void ct_json_bytes(struct ct_buf *buf, const char *data, size_t size)
{
    (void)ct_buf_puts(buf, "\"");
    while (size > 0) {
        size_t valid = plain_span(data, size);

        (void)ct_buf_append(buf, data, valid);
        if (valid == 0 && data[0] != '\0') {
            valid = ct_utf8_valid_prefix(data, CT_MIN(size, (size_t)4));
            valid = (unsigned char)data[0] < 0x80 ? CT_MIN(valid, (size_t)1) : valid;
            for (size_t i = 0; i < valid; i++)
                put_char(buf, (unsigned char)data[i]);
        }
        if (valid == 0) {
            (void)ct_buf_puts(buf, "\\ufffd");
            valid = 1;
        }
        data += valid;
        size -= valid;
    }
    (void)ct_buf_puts(buf, "\"");
}

void ct_json_string(struct ct_buf *buf, const char *text)
{
    ct_json_bytes(buf, text, strlen(text));
}

/* Equal, and zeros of the same sign. */
static bool same_number(double a, double b)
{
    return !(a < b) && !(a > b) && signbit(a) == signbit(b);
}

/* A whole number, or one with up to three decimals, as printf would: those are most, and printf
 * takes ten times as long. False, and nothing is put: it is another one. */
static bool put_thousandths(struct ct_buf *buf, double value)
{
    char text[24], *end = text + sizeof text, *at = end;
    double magnitude = fabs(value);

    if (magnitude >= 1e15)
        return false;
    uint64_t whole = (uint64_t)magnitude, rest = 0;
    if (whole < UINT64_C(1) << 43) { /* the thousandths below it are exact doubles */
        uint64_t all = (uint64_t)(magnitude * 1e3 + 0.5);
        whole = all / 1000;
        rest = all % 1000;
        if (!same_number((double)all / 1e3, magnitude))
            return false;
    } else if (!same_number((double)whole, magnitude)) {
        return false;
    }
    for (uint64_t place = 3, digits = rest; place > 0; place--, digits /= 10)
        if (at != end || digits % 10 != 0)
            *--at = (char)('0' + digits % 10);
    if (rest != 0)
        *--at = '.';
    do
        *--at = (char)('0' + whole % 10);
    while ((whole /= 10) != 0);
    if (signbit(value))
        *--at = '-';
    (void)ct_buf_append(buf, at, (size_t)(end - at));
    return true;
}

void ct_json_number(struct ct_buf *buf, double value)
{
    char text[40];

    if (!isfinite(value)) {
        (void)ct_buf_puts(buf, "null");
        return;
    }
    if (put_thousandths(buf, value))
        return;
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (same_number(strtod(text, NULL), value))
            break;
    }
    (void)ct_buf_puts(buf, text);
}
