/* See error.h. The three look-ups walk the same table. */
#include "base/error.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    int status;
    const char *name;
    const char *text;
} errors[] = {
#define CT_ERROR(name, value, status, text) {value, status, "CT_E" #name, text},
#include "base/error.def"
#undef CT_ERROR
};

enum { ERROR_COUNT = sizeof errors / sizeof errors[0] };

static int fill(struct ct_error *err, int code, int echo, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
static int fill(struct ct_error *err, int code, int echo, const char *format, va_list args)
{
    if (err != NULL) {
        err->code = code;
        err->echo = echo;
        (void)vsnprintf(err->text, sizeof err->text, format, args);
    }
    return code;
}

int ct_error_set(struct ct_error *err, int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fill(err, code, 0, format, args);
    va_end(args);
    return code;
}

int ct_error_echo(struct ct_error *err, int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fill(err, code, 1, format, args);
    va_end(args);
    return code;
}

int ct_error_prefix(struct ct_error *err, const char *format, ...)
{
    char tail[sizeof err->text];
    va_list args;

    if (err == NULL)
        return 0;
    memcpy(tail, err->text, sizeof tail);
    va_start(args, format);
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t at = used < 0 ? 0 : CT_MIN((size_t)used, sizeof err->text - 1);
    if (ct_str_copy(err->text + at, sizeof err->text - at, ": "))
        at += 2;
    (void)ct_str_copy(err->text + at, sizeof err->text - at, tail);
    return err->code;
}

const char *ct_strerror(int code)
{
    if (code == 0)
        return "success";
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].text;
    const char *text = code < 0 && code > -1000 ? strerrordesc_np(-code) : NULL;
    return text != NULL ? text : "unknown error";
}

const char *ct_error_name(int code)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].name;
    const char *name = code < 0 && code > -1000 ? strerrorname_np(-code) : NULL;
    return name != NULL ? name : "unknown";
}

int ct_exit_status(int code)
{
    if (code == 0)
        return 0;
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].status;
    return 71;
}
