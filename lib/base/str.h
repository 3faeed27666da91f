/* Strings: strict numbers, quantities with units, comparing and guessing names. */
#ifndef CT_BASE_STR_H
#define CT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse the whole of `text` as a number; 0, or CT_EUSAGE when it is invalid or out of range. No
 * blanks, no octal; ct_parse_f64 refuses NaN and infinities. */
int ct_parse_i64(const char *text, int64_t *ret_value);
int ct_parse_u64(const char *text, uint64_t *ret_value);
int ct_parse_f64(const char *text, double *ret_value);

/* Parse "512", "64KB", "25MB", "1GiB": bytes; KB, MB, GB are powers of 1024 as PyTorch's bucket
 * sizes. */
int ct_parse_bytes(const char *text, uint64_t *ret_bytes);

/* Parse "250ms", "5s", "10m", "2h", or a bare number of seconds ("0.5"): milliseconds. */
int ct_parse_duration_ms(const char *text, uint64_t *ret_ms);

/* Parse "true", "yes", "on", "1" and their opposites, any case. */
int ct_parse_bool(const char *text, bool *ret_value);

bool ct_starts_with(const char *text, const char *prefix);
bool ct_ends_with(const char *text, const char *suffix);

/* Return how many letters have to be put in, left out, replaced, or exchanged with their neighbour
 * (optimal string alignment), with '-' and '_' and upper and lower case taken as equal. */
int ct_edit_distance(const char *a, const char *b);

/* Return the closest of `count` names (name_at(context, i)) to `text` if it may be a typing error
 * (distance <= 1 + length / 4), else NULL. */
const char *ct_nearest(const char *text, size_t count,
                       const char *(*name_at)(const void *context, size_t index),
                       const void *context);

/* Compare as strcmp does, but runs of digits as numbers: node2 < node10. */
int ct_natural_compare(const char *a, const char *b);

/* Copy with truncation, always terminated (room > 0). Returns false when it was cut. */
bool ct_str_copy(char *to, size_t room, const char *from);

/* Return the last lines of `text`, whole ones if possible, that have at most `size` bytes
 * together. */
const char *ct_str_last_lines(const char *text, size_t size);

/* Return the length in bytes of the control character that `text` begins with: 1 (C0, DEL), 2 (C1
 * in UTF-8, which some terminals obey), 0 for any other character. */
size_t ct_str_control(const char *text);
bool ct_str_has_control(const char *text);

/* Return the text after "name=" in `entry`, an entry of an environment; NULL if it is another
 * variable. */
const char *ct_env_value(const char *entry, const char *name);

/* Return the value of `name` in an environment, a NULL-terminated list; or NULL. */
const char *ct_env_find(char *const *list, const char *name);

/* Return whether the locale that an environment names (LC_ALL, LC_CTYPE, LANG) is one of UTF-8. */
bool ct_env_is_utf8(char *const *list);

/* Return the number of bytes at `text` (at most `size`) that form a valid UTF-8 prefix. */
size_t ct_utf8_valid_prefix(const char *text, size_t size);

#endif
