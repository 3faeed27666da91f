/* See psk_munge.h. */
#include "keys/psk_munge.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "ctrun/2 munge "

enum {
    TAG_TEXT = CT_PSK_TAG - 1,
    HEAD = sizeof PREFIX - 1 + TAG_TEXT + 1,
    AGE = 4, /* after each identity: how old its ticket is, which an external key's is not */
};

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

void ct_psk_munge_name(const char *job_tag, const char *credential, char ret_name[CT_PSK_MUNGE])
{
    (void)snprintf(ret_name, CT_PSK_MUNGE, PREFIX "%s %s", job_tag, credential);
}

/* "MUNGE:base64:", as munged makes it: what is not costs munged nothing. */
static bool is_credential(const char *text)
{
    static const char head[] = "MUNGE:";

    if (strncmp(text, head, strlen(head)) != 0)
        return false;
    const char *body = text + strlen(head);
    size_t size = strspn(body, base64);
    return size > 0 && strcmp(body + size, ":") == 0;
}

bool ct_psk_munge_parse(const void *name, size_t size, char ret_job_tag[CT_PSK_TAG],
                        char ret_credential[CT_MUNGE_CREDENTIAL])
{
    const char *text = name;
    char job_tag[CT_PSK_TAG], credential[CT_MUNGE_CREDENTIAL];

    if (size <= HEAD || size - HEAD >= sizeof credential ||
        memcmp(text, PREFIX, strlen(PREFIX)) != 0 || text[HEAD - 1] != ' ')
        return false;
    memcpy(job_tag, text + strlen(PREFIX), TAG_TEXT);
    job_tag[TAG_TEXT] = '\0';
    memcpy(credential, text + HEAD, size - HEAD);
    credential[size - HEAD] = '\0';
    if (strspn(job_tag, "0123456789abcdef") != TAG_TEXT || strlen(credential) != size - HEAD ||
        !is_credential(credential))
        return false;
    memcpy(ret_job_tag, job_tag, sizeof job_tag);
    memcpy(ret_credential, credential, size - HEAD + 1);
    return true;
}

static size_t get_size(const unsigned char *at)
{
    return (size_t)at[0] << 8 | at[1];
}

bool ct_psk_munge_find(const unsigned char *extension, size_t size,
                       char ret_credential[CT_MUNGE_CREDENTIAL])
{
    char job_tag[CT_PSK_TAG];

    if (size < 2 || get_size(extension) > size - 2)
        return false;
    size = get_size(extension);
    extension += 2;
    for (size_t at = 0; size - at > 2;) {
        size_t length = get_size(extension + at);

        at += 2;
        if (length + AGE > size - at)
            return false;
        if (ct_psk_munge_parse(extension + at, length, job_tag, ret_credential))
            return true;
        at += length + AGE;
    }
    return false;
}
