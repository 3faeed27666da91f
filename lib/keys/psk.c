/* See psk.h. */
#include "keys/psk.h"

#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "ctrun/1 agent "

enum { TAG_TEXT = CT_PSK_TAG - 1 };

void ct_psk_key_tag(const struct ct_openssl *ssl, const struct ct_key *key,
                    char ret_tag[CT_PSK_TAG])
{
    static const char label[] = "ctrun/1 key tag";
    unsigned char mac[CT_HMAC_BYTES];

    ct_openssl_hmac(ssl, key->secret, CT_KEY_BYTES, label, strlen(label), mac);
    ct_put_hex(mac, TAG_TEXT / 2, ret_tag);
}

void ct_psk_job_tag(const struct ct_openssl *ssl, const char *job, char ret_tag[CT_PSK_TAG])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    ssl->SHA256((const unsigned char *)job, strlen(job), hash);
    ct_put_hex(hash, TAG_TEXT / 2, ret_tag);
}

void ct_psk_name(const char *key_tag, const char *job_tag, char ret_name[CT_PSK_NAME])
{
    snprintf(ret_name, CT_PSK_NAME, PREFIX "%s %s", key_tag, job_tag);
}

static bool read_tag(const char *text, char ret_tag[CT_PSK_TAG])
{
    memcpy(ret_tag, text, TAG_TEXT);
    ret_tag[TAG_TEXT] = '\0';
    return strspn(ret_tag, "0123456789abcdef") == TAG_TEXT;
}

bool ct_psk_parse(const void *name, size_t size, char ret_key_tag[CT_PSK_TAG],
                  char ret_job_tag[CT_PSK_TAG])
{
    const char *text = name;
    const size_t prefix = strlen(PREFIX);

    return size == prefix + TAG_TEXT + 1 + TAG_TEXT && memcmp(text, PREFIX, prefix) == 0 &&
           text[prefix + TAG_TEXT] == ' ' && read_tag(text + prefix, ret_key_tag) &&
           read_tag(text + prefix + TAG_TEXT + 1, ret_job_tag);
}

void ct_psk_derive(const struct ct_openssl *ssl, const struct ct_key *key, const char *key_tag,
                   const char *job_tag, unsigned char ret_psk[CT_PSK_BYTES])
{
    unsigned char extracted[CT_HMAC_BYTES];
    char info[CT_PSK_NAME];

    ct_openssl_hmac(ssl, job_tag, TAG_TEXT, key->secret, CT_KEY_BYTES, extracted);
    int size = snprintf(info, sizeof(info), PREFIX "%s\x01", key_tag);
    ct_openssl_hmac(ssl, extracted, sizeof(extracted), info, (size_t)size, ret_psk);
    explicit_bzero(extracted, sizeof(extracted));
}
