/* munge: a user is known by the word of the machine's munged, and no key file is needed.
 *
 *     client                                       server
 *     draws 32 bytes; its munged seals them
 *     for the server's account            ------>  its munged opens them, once, for that account
 *                                                  alone, and says which user sealed them
 *
 * The bytes are the key of one TLS handshake (tls.h): so the client knows that the server runs
 * under that account on a machine of the same realm, and the server knows the client's user.
 *
 * libmunge.so.2 is loaded at the first use. Sealing and opening wait for munged, seconds when it is
 * stuck: for a thread that may wait, never for a loop's. Any thread may call. */
#ifndef CT_KEYS_MUNGE_H
#define CT_KEYS_MUNGE_H

#include "base/error.h"
#include "keys/key.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_MUNGE_CREDENTIAL = 1024, /* with its terminator; munged makes about 250 bytes of a key */
    CT_MUNGE_USER = 33,
    CT_MUNGE_TTL_S = 300, /* how long a credential can be opened: clocks may differ by so much */
};

/* A user as munge knows it: the name is the number where the system has none that is plain. */
struct ct_munge_user {
    uint32_t uid;
    char name[CT_MUNGE_USER];
};

struct ct_munge_credential {
    char text[CT_MUNGE_CREDENTIAL];
    struct ct_key key;         /* the 32 bytes in it */
    struct ct_munge_user user; /* once it is opened */
};

/* Does a key's path mean munge? It begins with "munge:". */
bool ct_munge_is_meant(const char *path);

/* Read "munge:[ACCOUNT[:SOCKET]]", and load libmunge. ACCOUNT is a name or number, by default this
 * process's own user; SOCKET an absolute path. 0; CT_EUSAGE, CT_EUNSUPPORTED. */
int ct_munge_parse(const char *text, struct ct_key *ret_key, struct ct_error *err);

/* Draw a key and seal it for the account that `key` names. 0; CT_EUNAVAILABLE when munged does not
 * answer; CT_EUNSUPPORTED without libmunge; CT_EOS. */
int ct_munge_seal(const struct ct_key *key, struct ct_munge_credential *ret_credential,
                  struct ct_error *err);

/* Open the credential in `text`: its key and its user. `socket`: as in struct ct_key. 0; CT_EAUTH
 * for one that is not for this process's user, was opened before, is too old or is none; otherwise
 * as ct_munge_seal. */
int ct_munge_open(const char *socket, struct ct_munge_credential *credential, struct ct_error *err);

#endif
