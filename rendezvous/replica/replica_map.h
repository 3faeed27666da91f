/* The map of a replica: keys with their newest bytes, sorted, and the same as one block of bytes
 * (libraft's snapshot). */
#ifndef CT_RENDEZVOUS_REPLICA_REPLICA_MAP_H
#define CT_RENDEZVOUS_REPLICA_REPLICA_MAP_H

#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_replica_map_entry {
    char *key; /* and its value, in one allocation */
    struct ct_bytes value;
};

struct ct_replica_map {
    struct ct_replica_map_entry *entries;
    size_t count;
    size_t room;
};

void ct_replica_map_deinit(struct ct_replica_map *map); /* it is empty and may be used on */

/* The entry of `key`, NULL when there is none. */
const struct ct_replica_map_entry *ct_replica_map_find(const struct ct_replica_map *map,
                                                       const char *key);

/* An entry of the log: u32 size of the key with its terminator, key, u8 1: a value follows. */
size_t ct_replica_entry_bytes(const char *key, size_t value_bytes);
void ct_replica_entry_write(void *at, const char *key, const void *value, size_t value_bytes);

/* Apply such an entry: the key is set, or without a value forgotten. 0, CT_EPROTOCOL for what is no
 * entry, CT_ELIMIT (too many keys), CT_ENOMEM. */
int ct_replica_entry_apply(struct ct_replica_map *map, const void *data, size_t size);

/* All of the map as bytes (u32 length, entry; ...), and a map from them (which was empty). */
size_t ct_replica_map_bytes(const struct ct_replica_map *map);
void ct_replica_map_write(const struct ct_replica_map *map, void *at);
int ct_replica_map_read(struct ct_replica_map *map, const void *data, size_t size);

#endif
