/* Keys derived from the job key; net/tls.h describes their use. */
#ifndef CT_KEYS_PSK_H
#define CT_KEYS_PSK_H

#include "keys/key.h"
#include "keys/openssl.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    CT_PSK_BYTES = 32,
    CT_PSK_NAME = 64,
    CT_PSK_TAG = 17, /* 16 hex digits and a terminator */
};

/* Write the identity that a client sends for a key and a job, terminated. */
void ct_psk_name(const char *key_tag, const char *job_tag, char ret_name[CT_PSK_NAME]);

/* Read such an identity of `size` bytes: its two tags. False when it is none. */
bool ct_psk_parse(const void *name, size_t size, char ret_key_tag[CT_PSK_TAG],
                  char ret_job_tag[CT_PSK_TAG]);

/* Derive the TLS key of a job: HKDF-SHA256 (RFC 5869) with one block of output. */
void ct_psk_derive(const struct ct_openssl *ssl, const struct ct_key *key, const char *key_tag,
                   const char *job_tag, unsigned char ret_psk[CT_PSK_BYTES]);

/* Compute the tags by which a key and a job are identified on the wire. */
void ct_psk_key_tag(const struct ct_openssl *ssl, const struct ct_key *key,
                    char ret_tag[CT_PSK_TAG]);
void ct_psk_job_tag(const struct ct_openssl *ssl, const char *job, char ret_tag[CT_PSK_TAG]);

#endif
