/* Writing JSON (RFC 8259) into a buffer. Reading is libjansson's work. */
#ifndef CT_BASE_JSON_H
#define CT_BASE_JSON_H

#include "base/bytes.h"

/* Append `text` as a quoted string; bytes that are not UTF-8 become U+FFFD. */
void ct_json_string(struct ct_buf *buf, const char *text);

/* The same for `size` bytes of anything; a NUL, which many readers refuse, becomes U+FFFD too. */
void ct_json_bytes(struct ct_buf *buf, const char *data, size_t size);

/* Append a number that reads back as the same double, whole ones below 1e15 without an exponent;
 * null for NaN and infinities. */
void ct_json_number(struct ct_buf *buf, double value);

#endif
