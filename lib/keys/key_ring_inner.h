/* The inside of a ring of keys, shared by key_ring.c, which reads it, and key_ring_change.c. */
#ifndef CT_KEYS_KEY_RING_INNER_H
#define CT_KEYS_KEY_RING_INNER_H

#include "base/bytes.h"
#include "keys/key_ring.h"

struct ct_key_ring_entry {
    struct ct_grant grant;
    struct ct_key key;
};

struct ct_key_ring {
    unsigned references;
    bool is_of_one;
    char whole[CT_GRANT_ID]; /* of that one */
    size_t count, room;
    struct ct_key_ring_entry *entries; /* in the order of their ids */
    struct ct_munge_lines munge;
    struct ct_certificates *certificates; /* held; NULL: none */
};

/* Find the key with this id. NULL: it is not there. */
const struct ct_key_ring_entry *ct_key_ring_find_entry(const struct ct_key_ring *ring,
                                                       const char *id);

/* Read the whole text of the file, to be wiped by the caller. 0; as ct_key_ring_load. */
int ct_key_ring_read_text(const char *path, struct ct_buf *text, struct ct_error *err);
void ct_key_ring_wipe_text(struct ct_buf *text);

#endif
