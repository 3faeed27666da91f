/* The job key: 32 random bytes in a file that its owner alone can read; or "munge:", which needs no
 * file (munge.h); or a certificate's (certificates.h).
 *
 * Both ends of a link prove that they hold the key (tls.h); it never travels. It is never a
 * password: a captured handshake would let an attacker test guesses. */
#ifndef CT_KEYS_KEY_H
#define CT_KEYS_KEY_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

enum { CT_KEY_BYTES = 32, CT_KEY_SOCKET = 108 };

/* By what the holder proves itself. */
enum ct_key_kind {
    CT_KEY_SECRET,      /* the secret */
    CT_KEY_MUNGE,       /* another one for each link, which munge seals */
    CT_KEY_CERTIFICATE, /* `certificates` (certificates.h) */
};

struct ct_certificates;

struct ct_key {
    unsigned char secret[CT_KEY_BYTES];
    enum ct_key_kind kind;
    struct {
        uint32_t account;           /* as which the servers run that are dialled */
        char socket[CT_KEY_SOCKET]; /* of munged; "": where libmunge looks for it */
    } munge;
    struct ct_certificates *certificates; /* held */
};

/* Write a new key to `path`, which must not exist, with mode 0600; or this one. 0;
 * CT_ECANTCREAT. */
int ct_net_key_new(const char *path, struct ct_error *err);
int ct_net_key_write(const char *path, const struct ct_key *key, struct ct_error *err);

/* Read the key in `path`: a regular file of 32 bytes, owned by this user or root, closed to group
 * and others; one of root's may be read by its group, a service that may not change its key. Or
 * take "munge:..." as ct_munge_parse does. 0; CT_ENOINPUT when it cannot be read; CT_EAUTH when it
 * is not such a file; CT_EUSAGE, CT_EUNSUPPORTED of munge. */
int ct_net_key_load(const char *path, struct ct_key *ret_key, struct ct_error *err);

/* Copy a key; what `to` holds is overwritten. One thread, of a certificate's. */
void ct_net_key_copy(struct ct_key *to, const struct ct_key *from);

/* Overwrite the secret so that the compiler keeps the writes, and give back what is held. */
void ct_net_key_wipe(struct ct_key *key);

/* Open a file with a secret of any kind for reading: a regular file of this user or root, closed to
 * others. 0; CT_ENOINPUT, CT_EAUTH with a sentence that begins with `what` ("key file"). */
int ct_net_secret_open(const char *what, const char *path, int *ret_fd, off_t *ret_size,
                       struct ct_error *err);

#endif
