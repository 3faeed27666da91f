/* Bytes: little-endian integers, and a growable buffer with a limit.
 *
 * ct_buf is written at the end and read from the front; a failed append sets `failed` and leaves
 * the content unchanged, so a writer may append many times and check once. */
#ifndef CT_BASE_BYTES_H
#define CT_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void ct_put_le16(void *at, uint16_t value);
void ct_put_le32(void *at, uint32_t value);
void ct_put_le64(void *at, uint64_t value);
uint16_t ct_get_le16(const void *at);
uint32_t ct_get_le32(const void *at);
uint64_t ct_get_le64(const void *at);
uint32_t ct_get_be32(const void *at);

/* Write `count` bytes as 2 * count lower case hexadecimal digits, terminated. */
void ct_put_hex(const void *bytes, size_t count, char *ret_text);
/* Return the value of a hexadecimal digit in either case; -1: it is none. */
int ct_hex_digit(char letter);

/* Return whether `size` bytes are equal; the time that it takes does not tell how many are. */
bool ct_secret_equal(const void *a, const void *b, size_t size);

struct ct_buf {
    char *data; /* data[0 .. size), and a terminator behind it unless NULL */
    size_t size;
    size_t room;  /* bytes allocated */
    size_t limit; /* bytes it may hold; 0 means no limit but memory */
    bool failed;  /* an append was refused (limit or memory) */
};

/* Initialise an empty buffer of at most `limit` bytes (0: no limit), without allocating. */
void ct_buf_init(struct ct_buf *buf, size_t limit);
void ct_buf_deinit(struct ct_buf *buf);

/* Clear the content and the failure, keep the memory. */
void ct_buf_clear(struct ct_buf *buf);

/* Append; 0, CT_ELIMIT or CT_ENOMEM. */
int ct_buf_append(struct ct_buf *buf, const void *data, size_t size);
int ct_buf_puts(struct ct_buf *buf, const char *text);
/* Append `text`, wrapped at blanks to `width`; it begins at `column`, further lines at `indent`. A
 * longer word has a line of its own. */
void ct_buf_wrap(struct ct_buf *buf, const char *text, int column, int indent, int width);
int ct_buf_printf(struct ct_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append untrusted text: control characters that are not in `kept` ("" for one line, "\n\t" for
 * several) as \n, \t, \xNN, so that they neither forge lines nor control a terminal. */
void ct_buf_put_clean(struct ct_buf *buf, const char *text, const char *kept);

/* Make `size` more bytes writable at data + size and return that place, or NULL. The caller adds
 * what it wrote to `size`. */
void *ct_buf_reserve(struct ct_buf *buf, size_t size);

/* Drop `size` bytes from the front. */
void ct_buf_consume(struct ct_buf *buf, size_t size);

/* Return the content as a string, "" if empty. Valid until the next change. */
const char *ct_buf_str(const struct ct_buf *buf);

#endif
