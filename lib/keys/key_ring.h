/* The keys that a server accepts, and what the holder of each may do.
 *
 * A ring is a text file, a line a key ('#' begins a comment):
 *
 *     # id              name     role      jobs     users  secret
 *     6f1c0e2a9b3d4857  ada      agent     ada-*    1000   64 hexadecimal digits
 *     0a1b2c3d4e5f6071  grafana  reader    *        *      ...
 *
 * The id is the secret's tag (psk.h), by which a client names its key. A name may have several
 * keys, as while one is rotated.
 *
 * Users whom munge names need no key: their lines are in munge_lines.h.
 *
 *     munge             staff    agent     %u-*     *      -
 *
 * Of one key without a ring come keys of each role: HMAC-SHA256(secret, "ctrun/1 role " + role).
 * Whoever has such a one cannot make another of it. `ctrun key derive` writes them, and whoever
 * accepts the whole key may accept them too. */
#ifndef CT_KEYS_KEY_RING_H
#define CT_KEYS_KEY_RING_H

#include "base/bytes.h"
#include "keys/grant.h"
#include "keys/key.h"
#include "keys/munge_lines.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_key_ring;

enum {
    CT_KEY_RING_KEYS = 4096,
    CT_KEY_RING_BYTES = 2 << 20,
    CT_KEY_TOKEN = CT_GRANT_ID + 2 * 32 + 1, /* "ID-" and 64 digits */
};

/* Make a ring of one key: with `roles` those derived from it too. Of munge: of this user and root,
 * who may do everything. Of a certificate: a ring without keys that accepts certificates. 0;
 * CT_ENOMEM; CT_EUNSUPPORTED without libssl. */
int ct_key_ring_of(const struct ct_key *key, bool roles, struct ct_key_ring **ret_ring,
                   struct ct_error *err);

/* Read a ring: a file as ct_net_key_load wants it; with `own` (may be NULL), which may do
 * everything, unless the ring says what it may do. 0; CT_ENOINPUT, CT_EAUTH, and CT_EDATA for a
 * line that is none (file, line, what is wrong); CT_ENOMEM, CT_EUNSUPPORTED. */
int ct_key_ring_load(const char *path, const struct ct_key *own, struct ct_key_ring **ret_ring,
                     struct ct_error *err);

/* The same of a text, without a key beside it; `path` is for the sentence. */
int ct_key_ring_parse(const char *text, const char *path, struct ct_key_ring **ret_ring,
                      struct ct_error *err);

/* Hold a ring once more, and give it back; the last one wipes it. NULL is ignored. One thread. */
struct ct_key_ring *ct_key_ring_ref(struct ct_key_ring *ring);
void ct_key_ring_unref(struct ct_key_ring *ring);

/* Accept certificates besides (held). Return them; NULL: none are. */
void ct_key_ring_set_certificates(struct ct_key_ring *ring, struct ct_certificates *certificates);
struct ct_certificates *ct_key_ring_certificates(const struct ct_key_ring *ring);

/* Return the grant of the key with this id, and the key; NULL: it is not in the ring. Both live as
 * long as the ring. */
const struct ct_grant *ct_key_ring_find(const struct ct_key_ring *ring, const char *id,
                                        const struct ct_key **ret_key);

/* Return the grants, in the order of their ids. */
size_t ct_key_ring_count(const struct ct_key_ring *ring);
const struct ct_grant *ct_key_ring_at(const struct ct_key_ring *ring, size_t index,
                                      const struct ct_key **ret_key);

/* Return the key that all others in it are derived from; NULL: it is a ring of many. */
const struct ct_grant *ct_key_ring_whole(const struct ct_key_ring *ring);

/* Is this grant in the ring as it was? */
bool ct_key_ring_has(const struct ct_key_ring *ring, const struct ct_grant *grant);

/* Return the lines of munge; NULL: nobody is let in by munge. */
const struct ct_munge_lines *ct_key_ring_munge(const struct ct_key_ring *ring);

/* Append a line for the key (or of munge, if it is that) to a ring's file, which is made when it
 * is not there (0600); its id is written to `grant`. Take the key with the id, or the only one
 * with the name, out of it. Other lines stay as they are. A line of munge has the id "munge:NAME".
 * 0; as ct_key_ring_load; CT_EUSAGE when the ring has the key, has none of that name, or several
 * (the sentence has their ids); CT_ELIMIT; CT_ECANTCREAT, CT_EIO. */
int ct_key_ring_add(const char *path, struct ct_grant *grant, const struct ct_key *key,
                    struct ct_error *err);
int ct_key_ring_remove(const char *path, const char *name, struct ct_error *err);

/* Append the text of the grant's users: "*", or numbers with commas between. */
void ct_grant_put_users(const struct ct_grant *grant, struct ct_buf *out);

/* The token by which who holds a key is a reader of the page: its id and a MAC, which tells nothing
 * of the key: HMAC-SHA256(secret, "ctrun/1 page token"). 0; CT_EUNSUPPORTED;
 * CT_EUSAGE of munge, which has no secret. */
int ct_key_token(const struct ct_key *key, char ret_token[CT_KEY_TOKEN], struct ct_error *err);

/* Return the grant whose key's token `token` is, of `size` bytes; NULL: it is none. The time that
 * it takes tells nothing of a token. */
const struct ct_grant *ct_key_ring_find_token(const struct ct_key_ring *ring, const char *token,
                                              size_t size);

/* Derive the key of a role. 0; CT_EUNSUPPORTED; CT_EUSAGE of munge. */
int ct_key_derive(const struct ct_key *key, enum ct_role role, struct ct_key *ret_key,
                  struct ct_error *err);

#endif
