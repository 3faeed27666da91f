/* See bytes.h. */
#include "base/bytes.h"

#include "base/str.h"

#include "base/assert.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_le(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_le(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void ct_put_le16(void *at, uint16_t value)
{
    put_le(at, value, 2);
}

void ct_put_le32(void *at, uint32_t value)
{
    put_le(at, value, 4);
}

void ct_put_le64(void *at, uint64_t value)
{
    put_le(at, value, 8);
}

uint16_t ct_get_le16(const void *at)
{
    return (uint16_t)get_le(at, 2);
}

uint32_t ct_get_le32(const void *at)
{
    return (uint32_t)get_le(at, 4);
}

uint64_t ct_get_le64(const void *at)
{
    return get_le(at, 8);
}

uint32_t ct_get_be32(const void *at)
{
    return __builtin_bswap32(ct_get_le32(at));
}

void ct_put_hex(const void *bytes, size_t count, char *ret_text)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = bytes;

    for (size_t i = 0; i < count; i++) {
        ret_text[2 * i] = digits[at[i] >> 4];
        ret_text[2 * i + 1] = digits[at[i] & 15];
    }
    ret_text[2 * count] = '\0';
}

int ct_hex_digit(char letter)
{
    return letter >= '0' && letter <= '9'   ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
           : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                                            : -1;
}

bool ct_secret_equal(const void *a, const void *b, size_t size)
{
    const volatile unsigned char *left = a, *right = b; /* volatile: all of them are looked at */
    unsigned char differ = 0;

    for (size_t i = 0; i < size; i++)
        differ |= (unsigned char)(left[i] ^ right[i]);
    return differ == 0;
}

void ct_buf_init(struct ct_buf *buf, size_t limit)
{
    *buf = (struct ct_buf){.limit = limit};
}

void ct_buf_deinit(struct ct_buf *buf)
{
    if (buf == NULL)
        return;
    free(buf->data);
    ct_buf_init(buf, buf->limit);
}

void ct_buf_clear(struct ct_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

/* Room for `size` more bytes and the terminator. */
static int grow(struct ct_buf *buf, size_t size)
{
    if (size > SIZE_MAX / 4 || (buf->limit != 0 && size > buf->limit - buf->size)) {
        buf->failed = true;
        return CT_ELIMIT;
    }
    size_t needed = buf->size + size + 1;
    if (needed <= buf->room)
        return 0;
    size_t room = CT_MAX(needed, buf->room * 2);
    char *data = realloc(buf->data, CT_MAX(room, (size_t)64));
    if (data == NULL) {
        buf->failed = true;
        return CT_ENOMEM;
    }
    buf->data = data;
    buf->room = CT_MAX(room, (size_t)64);
    buf->data[buf->size] = '\0';
    return 0;
}

int ct_buf_append(struct ct_buf *buf, const void *data, size_t size)
{
    int code = grow(buf, size);

    if (code != 0)
        return code;
    if (size > 0)
        memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
    return 0;
}

int ct_buf_puts(struct ct_buf *buf, const char *text)
{
    return ct_buf_append(buf, text, strlen(text));
}

int ct_buf_printf(struct ct_buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return CT_EBUG;
    int code = grow(buf, (size_t)length);
    if (code != 0)
        return code;
    va_start(args, format);
    (void)vsnprintf(buf->data + buf->size, (size_t)length + 1, format, args);
    va_end(args);
    buf->size += (size_t)length;
    return 0;
}

void ct_buf_put_clean(struct ct_buf *buf, const char *text, const char *kept)
{
    while (*text != '\0') {
        size_t plain = 0;
        while (text[plain] != '\0' &&
               (ct_str_control(text + plain) == 0 || strchr(kept, text[plain]) != NULL))
            plain++;
        (void)ct_buf_append(buf, text, plain);
        text += plain;
        for (size_t left = *text != '\0' ? ct_str_control(text) : 0; left > 0; left--, text++) {
            if (*text == '\n' || *text == '\t')
                (void)ct_buf_puts(buf, *text == '\n' ? "\\n" : "\\t");
            else
                (void)ct_buf_printf(buf, "\\x%02x", (unsigned char)*text);
        }
    }
}

void *ct_buf_reserve(struct ct_buf *buf, size_t size)
{
    return grow(buf, size) == 0 ? buf->data + buf->size : NULL;
}

void ct_buf_consume(struct ct_buf *buf, size_t size)
{
    CT_ASSERT(size <= buf->size);
    if (size == 0)
        return;
    buf->size -= size;
    memmove(buf->data, buf->data + size, buf->size);
    buf->data[buf->size] = '\0';
}

const char *ct_buf_str(const struct ct_buf *buf)
{
    return buf->data != NULL ? buf->data : "";
}

void ct_buf_wrap(struct ct_buf *buf, const char *text, int column, int indent, int width)
{
    for (bool first = true; *text != '\0'; first = false) {
        int word = (int)strcspn(text, " ");
        if (!first && column + 1 + word > width) {
            (void)ct_buf_printf(buf, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            (void)ct_buf_puts(buf, " ");
            column++;
        }
        (void)ct_buf_append(buf, text, (size_t)word);
        column += word;
        text += word + (text[word] == ' ');
    }
}
