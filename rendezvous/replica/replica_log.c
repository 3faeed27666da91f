#include "rendezvous/replica/replica_state.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void replica_log_deinit(struct replica_log *log)
{
    replica_log_cut(log, log->base_index + 1);
    free(log->entries);
    *log = (struct replica_log){0};
}

uint64_t replica_log_last(const struct replica_log *log)
{
    return log->base_index + log->count;
}

struct replica_entry *replica_log_at(const struct replica_log *log, uint64_t index)
{
    CT_ASSERT(index > log->base_index && index <= replica_log_last(log));
    return log->entries[index - log->base_index - 1];
}

uint64_t replica_log_term(const struct replica_log *log, uint64_t index)
{
    return index == log->base_index ? log->base_term : replica_log_at(log, index)->term;
}

static bool make_room(struct replica_log *log)
{
    size_t room = log->room ? 2 * log->room : 32;
    struct replica_entry **entries;

    if (log->count < log->room)
        return true;
    entries = realloc(log->entries, room * sizeof(struct replica_entry *));
    if (!entries)
        return false;
    log->entries = entries;
    log->room = room;
    return true;
}

uint64_t replica_log_append(struct replica_log *log, uint64_t term, enum replica_entry_type type,
                            const void *data, size_t size, uint64_t number)
{
    struct replica_entry *entry = make_room(log) ? malloc(sizeof *entry + size) : NULL;

    if (!entry)
        return 0;
    *entry = (struct replica_entry){.term = term, .number = number, .type = type, .size = size};
    if (size)
        memcpy(entry->data, data, size);
    log->entries[log->count++] = entry;
    return replica_log_last(log);
}

void replica_log_cut(struct replica_log *log, uint64_t index)
{
    CT_ASSERT(index > log->base_index);
    while (replica_log_last(log) >= index)
        free(log->entries[--log->count]);
}

void replica_log_drop(struct replica_log *log, uint64_t index)
{
    uint64_t term = replica_log_term(log, index);
    size_t count = index - log->base_index;

    replica_log_servers(log, index, &log->base_servers);
    for (size_t i = 0; i < count; i++)
        free(log->entries[i]);
    log->count -= count;
    memmove(log->entries, log->entries + count, log->count * sizeof(struct replica_entry *));
    log->base_index = index;
    log->base_term = term;
}

void replica_log_replace(struct replica_log *log, uint64_t index, uint64_t term,
                         const struct replica_servers *servers)
{
    replica_log_cut(log, log->base_index + 1);
    log->base_index = index;
    log->base_term = term;
    log->base_servers = *servers;
}

/* ---- who votes ---- */

uint64_t replica_log_servers(const struct replica_log *log, uint64_t index,
                             struct replica_servers *ret_servers)
{
    for (uint64_t i = index; i > log->base_index; i--) {
        const struct replica_entry *entry = replica_log_at(log, i);

        if (entry->type == REPLICA_SERVERS) {
            CT_ASSERT(replica_servers_read(entry->data, entry->size, ret_servers));
            return i;
        }
    }
    *ret_servers = log->base_servers;
    return log->base_index;
}

size_t replica_servers_write(const struct replica_servers *servers, void *at, size_t room)
{
    unsigned char *to = at;

    CT_ASSERT(room >= REPLICA_SERVERS_BYTES);
    ct_put_le32(to, servers->count);
    to += 4;
    for (uint32_t i = 0; i < servers->count; i++) {
        size_t length = strlen(servers->list[i].address);

        ct_put_le64(to, servers->list[i].id);
        ct_put_le16(to + 8, (uint16_t)length);
        memcpy(to + 10, servers->list[i].address, length);
        to += 10 + length;
    }
    return (size_t)(to - (unsigned char *)at);
}

static bool server_read(const unsigned char **from, size_t *left, struct replica_server *server)
{
    size_t length = *left >= 10 ? ct_get_le16(*from + 8) : SIZE_MAX;

    if (length >= CT_REPLICA_ADDRESS_BYTES || length > *left - 10)
        return false;
    server->id = ct_get_le64(*from);
    memcpy(server->address, *from + 10, length);
    server->address[length] = '\0';
    *from += 10 + length;
    *left -= 10 + length;
    return server->id != 0 && strlen(server->address) == length;
}

bool replica_servers_read(const void *data, size_t size, struct replica_servers *ret_servers)
{
    const unsigned char *from = data;
    uint32_t count = size >= 4 ? ct_get_le32(from) : 0;

    if (count == 0 || count > CT_REPLICA_SERVERS)
        return false;
    from += 4;
    size -= 4;
    for (uint32_t i = 0; i < count; i++)
        if (!server_read(&from, &size, &ret_servers->list[i]))
            return false;
    ret_servers->count = count;
    return size == 0;
}

void replica_only_self(const struct ct_replica *replica, struct replica_servers *ret_servers)
{
    ret_servers->count = 1;
    ret_servers->list[0].id = replica->id;
    memcpy(ret_servers->list[0].address, replica->address, sizeof replica->address);
}

bool replica_servers_have(const struct replica_servers *servers, uint64_t id)
{
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].id == id)
            return true;
    return false;
}
