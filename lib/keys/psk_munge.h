/* Munge's credentials among the identities of keys that a client sends; pure. tls.h describes their
 * use.
 *
 *     identity = "ctrun/2 munge " + job tag + " " + credential */
#ifndef CT_KEYS_PSK_MUNGE_H
#define CT_KEYS_PSK_MUNGE_H

#include "keys/munge.h"
#include "keys/psk.h"

#include <stdbool.h>
#include <stddef.h>

enum { CT_PSK_MUNGE = CT_MUNGE_CREDENTIAL + 40 };

/* In the place of a key's tag. */
#define CT_PSK_MUNGE_TAG "munge"

/* Write such an identity, terminated. */
void ct_psk_munge_name(const char *job_tag, const char *credential, char ret_name[CT_PSK_MUNGE]);

/* Read one of `size` bytes. False when it is none. */
bool ct_psk_munge_parse(const void *name, size_t size, char ret_job_tag[CT_PSK_TAG],
                        char ret_credential[CT_MUNGE_CREDENTIAL]);

/* Find the first one in the extension pre_shared_key of a hello (RFC 8446, 4.2.11), as a stranger
 * sent it. False when there is none. */
bool ct_psk_munge_find(const unsigned char *extension, size_t size,
                       char ret_credential[CT_MUNGE_CREDENTIAL]);

#endif
