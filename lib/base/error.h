/* Errors: a negative code for programs, one sentence for people.
 *
 * A function returns 0 or a negative code: one of `enum ct_err` (from error.def) or a negative
 * errno. A function whose failure a person will read also fills `struct ct_error`: one sentence
 * that names the thing, the value and the remedy. Callers may prefix the place. */
#ifndef CT_BASE_ERROR_H
#define CT_BASE_ERROR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum ct_err {
#define CT_ERROR(name, value, status, text) CT_E##name = value,
#include "base/error.def"
#undef CT_ERROR
};

/* `text` is always terminated; a longer sentence is cut. Zero-initialise before use. */
struct ct_error {
    int code;
    char text[1024];
    int echo; /* 1: somebody else's failure, which this one was told without its sentence */
};

/* Fill `err` (may be NULL) and return `code`, so that `return ct_error_set(...)` reads well. */
int ct_error_set(struct ct_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As ct_error_set, for an error that another process has reported. */
int ct_error_echo(struct ct_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<context>: " in front of the sentence in `err` (may be NULL). Returns its code, or 0. */
int ct_error_prefix(struct ct_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Return the text of a code of ours or of a negative errno; never NULL. */
const char *ct_strerror(int code);

/* Return the name of a code ("CT_ETIMEOUT"), or of the errno ("ENOENT"); never NULL. */
const char *ct_error_name(int code);

/* Return the exit status a program ends with for `code`: 0 for 0, from error.def, 71 for an
 * errno. */
int ct_exit_status(int code);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
