/* See certificate_uri.h. */
#include "keys/certificate_uri.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SCHEME "ctrun://"

enum { SHOWN = 80, ROLE = 32 };

/* What a line can hold. */
static void clean(char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < ' ' || (unsigned char)text[i] > 126)
            text[i] = '?';
}

static int refuse(const char *uri, size_t size, const char *what, struct ct_error *err)
{
    char shown[SHOWN + 1] = "";
    size_t length = CT_MIN(size, (size_t)SHOWN);

    memcpy(shown, uri, length);
    clean(shown, length);
    return ct_error_set(err, CT_EDATA,
                        "its URI %s%s %s: it is " SCHEME "ROLE/JOBS, as " SCHEME "agent/ada-*",
                        shown, size > length ? "..." : "", what);
}

/* Decode %XX. False: it has one that is none, a zero, or more bytes than a grant holds. */
static bool decode(const char *from, size_t size, char to[CT_GRANT_JOBS])
{
    size_t used = 0;

    for (size_t at = 0; at < size; at++) {
        char byte = from[at];

        if (byte == '%') {
            int high = size - at > 2 ? ct_hex_digit(from[at + 1]) : -1;
            int low = size - at > 2 ? ct_hex_digit(from[at + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            byte = (char)(high << 4 | low);
            at += 2;
        }
        if (byte == '\0' || used == CT_GRANT_JOBS - 1)
            return false;
        to[used++] = byte;
    }
    to[used] = '\0';
    return true;
}

int ct_certificate_uri_read(const void *uri, size_t size, struct ct_grant *grant,
                            struct ct_error *err)
{
    const char *text = uri, *from = text + strlen(SCHEME);
    char jobs[CT_GRANT_JOBS], name[ROLE] = "", what[128 + CT_GRANT_JOBS];
    struct ct_error why = {0};

    if (size < strlen(SCHEME) || strncasecmp(text, SCHEME, strlen(SCHEME)) != 0)
        return 0;
    size_t rest = size - strlen(SCHEME);
    const char *slash = memchr(from, '/', rest);
    size_t length = slash != NULL ? (size_t)(slash - from) : rest;
    if (slash == NULL)
        return refuse(text, size, "names no jobs", err);
    if (length < sizeof name)
        memcpy(name, from, length);
    enum ct_role role = strlen(name) == length ? ct_role_find(name) : CT_ROLES;
    if (role == CT_ROLES) {
        (void)snprintf(what, sizeof what, "names a role that is none of %s", ct_role_names());
        return refuse(text, size, what, err);
    }
    if (!decode(slash + 1, rest - length - 1, jobs))
        return refuse(text, size, "is too long or has a '%' without two hexadecimal digits", err);
    if (ct_grant_read_jobs(grant, jobs, &why) != 0) {
        clean(why.text, strlen(why.text));
        (void)snprintf(what, sizeof what, "has wrong patterns (%.200s)", why.text);
        return refuse(text, size, what, err);
    }
    grant->role = role;
    return 1;
}

void ct_certificate_name_clean(const void *name, size_t size, char ret_name[CT_GRANT_NAME])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    const char *from = name;
    size_t used = CT_MIN(size, (size_t)CT_GRANT_NAME - 1);

    for (size_t i = 0; i < used; i++)
        ret_name[i] = (char)(from[i] != '\0' && strchr(allowed, from[i]) != NULL ? from[i] : '_');
    ret_name[used] = '\0';
}
