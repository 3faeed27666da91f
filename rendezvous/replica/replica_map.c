#include "rendezvous/replica/replica_map.h"

#include "rendezvous/replica/replica.h"

#include <stdlib.h>
#include <string.h>

void ct_replica_map_deinit(struct ct_replica_map *map)
{
    for (size_t i = 0; i < map->count; i++)
        free(map->entries[i].key);
    free(map->entries);
    *map = (struct ct_replica_map){0};
}

/* The place of `key`, or where it belongs. */
static size_t place_of(const struct ct_replica_map *map, const char *key, bool *ret_there)
{
    size_t low = 0, high = map->count;

    *ret_there = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(map->entries[middle].key, key);

        if (order == 0) {
            *ret_there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void forget(struct ct_replica_map *map, size_t place)
{
    free(map->entries[place].key);
    map->count--;
    memmove(map->entries + place, map->entries + place + 1,
            (map->count - place) * sizeof map->entries[0]);
}

static int make_room(struct ct_replica_map *map)
{
    size_t room = map->room ? 2 * map->room : 8;
    struct ct_replica_map_entry *entries;

    if (map->count < map->room)
        return 0;
    if (map->count >= CT_REPLICA_KEYS)
        return CT_ELIMIT;
    entries = realloc(map->entries, room * sizeof *entries);
    if (!entries)
        return CT_ENOMEM;
    map->entries = entries;
    map->room = room;
    return 0;
}

/* A copy of key and value in one allocation. */
static bool entry_make(struct ct_replica_map_entry *entry, const char *key, const void *value,
                       size_t size)
{
    size_t key_bytes = strlen(key) + 1;
    char *copy = malloc(key_bytes + size);

    if (!copy)
        return false;
    memcpy(copy, key, key_bytes);
    memcpy(copy + key_bytes, value, size);
    entry->key = copy;
    entry->value = (struct ct_bytes){.data = (unsigned char *)copy + key_bytes, .size = size};
    return true;
}

static int set(struct ct_replica_map *map, const char *key, const void *value, size_t size)
{
    struct ct_replica_map_entry entry;
    bool there;
    size_t place = place_of(map, key, &there);
    int code;

    if (!value) {
        if (there)
            forget(map, place);
        return 0;
    }
    code = there ? 0 : make_room(map);
    if (code)
        return code;
    if (!entry_make(&entry, key, value, size))
        return CT_ENOMEM;
    if (there) {
        free(map->entries[place].key);
    } else {
        memmove(map->entries + place + 1, map->entries + place,
                (map->count - place) * sizeof map->entries[0]);
        map->count++;
    }
    map->entries[place] = entry;
    return 0;
}

const struct ct_replica_map_entry *ct_replica_map_find(const struct ct_replica_map *map,
                                                       const char *key)
{
    bool there;
    size_t place = place_of(map, key, &there);

    return there ? &map->entries[place] : NULL;
}

/* ---- bytes ---- */

enum { ENTRY_HEAD = 5 }; /* u32, u8 */

size_t ct_replica_entry_bytes(const char *key, size_t value_bytes)
{
    return ENTRY_HEAD + strlen(key) + 1 + value_bytes;
}

void ct_replica_entry_write(void *at, const char *key, const void *value, size_t value_bytes)
{
    unsigned char *to = at;
    size_t key_bytes = strlen(key) + 1;

    ct_put_le32(to, (uint32_t)key_bytes);
    to[4] = value != NULL;
    memcpy(to + ENTRY_HEAD, key, key_bytes);
    if (value)
        memcpy(to + ENTRY_HEAD + key_bytes, value, value_bytes);
}

int ct_replica_entry_apply(struct ct_replica_map *map, const void *data, size_t size)
{
    const unsigned char *from = data;
    size_t key_bytes = size >= ENTRY_HEAD ? ct_get_le32(from) : 0;
    const char *key = (const char *)from + ENTRY_HEAD;

    if (key_bytes == 0 || key_bytes > CT_REPLICA_KEY_BYTES || key_bytes > size - ENTRY_HEAD ||
        key[key_bytes - 1] != '\0' || strlen(key) + 1 != key_bytes)
        return CT_EPROTOCOL;
    return set(map, key, from[4] ? key + key_bytes : NULL, size - ENTRY_HEAD - key_bytes);
}

size_t ct_replica_map_bytes(const struct ct_replica_map *map)
{
    size_t bytes = 0;

    for (size_t i = 0; i < map->count; i++)
        bytes += 4 + ct_replica_entry_bytes(map->entries[i].key, map->entries[i].value.size);
    return bytes;
}

void ct_replica_map_write(const struct ct_replica_map *map, void *at)
{
    unsigned char *to = at;

    for (size_t i = 0; i < map->count; i++) {
        const struct ct_replica_map_entry *entry = &map->entries[i];
        size_t bytes = ct_replica_entry_bytes(entry->key, entry->value.size);

        ct_put_le32(to, (uint32_t)bytes);
        ct_replica_entry_write(to + 4, entry->key, entry->value.data, entry->value.size);
        to += 4 + bytes;
    }
}

int ct_replica_map_read(struct ct_replica_map *map, const void *data, size_t size)
{
    const unsigned char *from = data;

    while (size > 0) {
        size_t bytes = size >= 4 ? ct_get_le32(from) : SIZE_MAX;
        int code = bytes <= size - 4 && size >= 4 ? ct_replica_entry_apply(map, from + 4, bytes)
                                                  : CT_EPROTOCOL;

        if (code)
            return code;
        from += 4 + bytes;
        size -= 4 + bytes;
    }
    return 0;
}
