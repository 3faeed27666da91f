/* What a replica must not forget, on disk before anybody is told: the persistent state of figure
 * 3.1 in Ongaro's dissertation.
 *
 *      event --> term, vote, log change --> replica_keep --> io.keep --> messages, counts itself
 *                                              `-- it fails: the replica is mute until it works
 *
 * Two kinds of records, the same in the file as while it grows:
 *
 *      BASE  u8 'B', id u64, era u64, term u64, vote u64, index u64, entry's term u64,
 *            u32 size, who votes (replica_log.c), the map (replica_map.h)
 *      LOG   u8 'L', term u64, vote u64, first index u64, u32 count, { term u64, type u8, u32 size,
 *            data } ...
 *
 * A BASE replaces all before it. A LOG replaces the entries from its first index on; those that the
 * base has already are passed over. So a record that is written once more changes nothing. */
#include "rendezvous/replica/replica_state.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum {
    RECORD_BASE = 'B', /* no kind of service/records.h */
    RECORD_LOG = 'L',
    BASE_HEAD = 1 + 6 * 8 + 4,
    LOG_HEAD = 1 + 3 * 8 + 4,
    ENTRY_HEAD = 8 + 1 + 4,
    RECORD_BYTES = 4 << 20, /* of entries in a record, the first whatever its size */
    TRIES = 5,              /* to write again, in an election's time */
};

/* ---- records ---- */

static unsigned char *put_u64(unsigned char *at, uint64_t value)
{
    ct_put_le64(at, value);
    return at + 8;
}

static int keep_base(const struct ct_replica *replica, ct_replica_keep_fn keep, void *context)
{
    struct replica_servers servers;
    unsigned char voters[REPLICA_SERVERS_BYTES], *at;
    struct ct_buf record;
    size_t size, map_bytes = ct_replica_map_bytes(&replica->map);
    int code = CT_ENOMEM;

    (void)replica_log_servers(&replica->log, replica->committed, &servers);
    size = replica_servers_write(&servers, voters, sizeof voters);
    ct_buf_init(&record, 0);
    at = ct_buf_reserve(&record, BASE_HEAD + size + map_bytes);
    if (at) {
        *at++ = RECORD_BASE;
        at = put_u64(at, replica->id);
        at = put_u64(at, replica->era);
        at = put_u64(at, replica->term);
        at = put_u64(at, replica->voted_for);
        at = put_u64(at, replica->committed);
        at = put_u64(at, replica_log_term(&replica->log, replica->committed));
        ct_put_le32(at, (uint32_t)size);
        memcpy(at + 4, voters, size);
        ct_replica_map_write(&replica->map, at + 4 + size);
        code = keep(context, record.data, BASE_HEAD + size + map_bytes);
    }
    ct_buf_deinit(&record);
    return code;
}

static void put_entry(struct ct_buf *record, const struct replica_entry *entry)
{
    unsigned char head[ENTRY_HEAD], *at = put_u64(head, entry->term);

    at[0] = (unsigned char)entry->type;
    ct_put_le32(at + 1, (uint32_t)entry->size);
    (void)ct_buf_append(record, head, sizeof head);
    (void)ct_buf_append(record, entry->data, entry->size);
}

/* Entries from `*index` on, as many as a record takes; `*index` is moved behind them. */
static int keep_some(const struct ct_replica *replica, uint64_t *index, ct_replica_keep_fn keep,
                     void *context)
{
    const struct replica_log *log = &replica->log;
    unsigned char head[LOG_HEAD] = {RECORD_LOG}, *at = head + 1;
    uint64_t first = *index;
    struct ct_buf record;
    int code;

    ct_buf_init(&record, 0);
    at = put_u64(at, replica->term);
    at = put_u64(at, replica->voted_for);
    at = put_u64(at, first);
    (void)ct_buf_append(&record, head, sizeof head);
    while (*index <= replica_log_last(log) &&
           (*index == first || record.size + replica_log_at(log, *index)->size <= RECORD_BYTES))
        put_entry(&record, replica_log_at(log, (*index)++));
    if (!record.failed)
        ct_put_le32(record.data + (at - head), (uint32_t)(*index - first));
    code = record.failed ? CT_ENOMEM : keep(context, record.data, record.size);
    ct_buf_deinit(&record);
    return code;
}

static int keep_log(const struct ct_replica *replica, uint64_t from, ct_replica_keep_fn keep,
                    void *context)
{
    uint64_t index = from;
    int code;

    do
        code = keep_some(replica, &index, keep, context);
    while (code == 0 && index <= replica_log_last(&replica->log));
    return code;
}

/* ---- keeping ---- */

static bool is_kept(const struct ct_replica *replica)
{
    const struct replica_kept *kept = &replica->kept;
    uint64_t last = replica_log_last(&replica->log);

    return kept->base && kept->term == replica->term && kept->voted_for == replica->voted_for &&
           kept->index == last && kept->last == last;
}

static void note_kept(struct ct_replica *replica)
{
    uint64_t last = replica_log_last(&replica->log);

    replica->kept = (struct replica_kept){.term = replica->term,
                                          .voted_for = replica->voted_for,
                                          .index = last,
                                          .last = last,
                                          .base = true};
}

/* The log has dropped what was never kept: only the map has it. */
static bool lacks_entries(const struct ct_replica *replica)
{
    return replica->kept.index < replica->log.base_index;
}

static int keep_changes(const struct ct_replica *replica)
{
    void *context = replica->io.context;

    if (replica->kept.base && !lacks_entries(replica))
        return keep_log(replica, replica->kept.index + 1, replica->io.keep, context);
    return ct_replica_emit(replica, replica->io.keep, context);
}

bool replica_keep(struct ct_replica *replica)
{
    if (!replica->io.keep || is_kept(replica))
        return true;
    if (replica->mute && replica->now_ms < replica->keep_again_ms)
        return false;
    replica->mute = keep_changes(replica) != 0;
    replica->keep_again_ms = replica->now_ms + replica->election_ms / TRIES;
    if (!replica->mute)
        note_kept(replica);
    return !replica->mute;
}

bool ct_replica_is_new(const struct ct_replica *replica)
{
    return replica->io.keep && replica_log_last(&replica->log) == 0;
}

uint64_t replica_kept_index(const struct ct_replica *replica)
{
    return replica->io.keep ? replica->kept.index : replica_log_last(&replica->log);
}

void replica_unkeep(struct ct_replica *replica, uint64_t index)
{
    replica->kept.index = CT_MIN(replica->kept.index, index - 1);
}

int ct_replica_emit(const struct ct_replica *replica, ct_replica_keep_fn emit, void *context)
{
    int code = keep_base(replica, emit, context);

    if (code == 0 && replica->committed < replica_log_last(&replica->log))
        code = keep_log(replica, replica->committed + 1, emit, context);
    return code;
}

/* ---- restoring ---- */

/* The list of a record's servers as text, for a person. */
static const char *list_servers(const struct replica_servers *servers, char *text, size_t room)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < servers->count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i > 0 ? "," : "",
                                 servers->list[i].address);
    return text;
}

static int refuse_other(const struct ct_replica *replica, const struct replica_servers *theirs,
                        struct ct_error *err)
{
    char own[192], other[192];

    return ct_error_set(err, CT_EDATA,
                        "it is of one of the peers %s, and this one is %s of %s: give each list of "
                        "peers a folder of its own",
                        list_servers(theirs, other, sizeof other), replica->address,
                        list_servers(&replica->log.base_servers, own, sizeof own));
}

static int read_base(struct ct_replica *replica, const unsigned char *at, size_t size,
                     struct ct_error *err)
{
    struct replica_servers servers;
    struct ct_replica_map map = {0};
    size_t bytes = size >= BASE_HEAD ? ct_get_le32(at + BASE_HEAD - 4) : SIZE_MAX;
    int code;

    if (bytes > size - BASE_HEAD || !replica_servers_read(at + BASE_HEAD, bytes, &servers))
        return ct_error_set(err, CT_EDATA, "the base of a replica cannot be read");
    if (ct_get_le64(at + 1) != replica->id || ct_get_le64(at + 9) != replica->era)
        return refuse_other(replica, &servers, err);
    code = ct_replica_map_read(&map, at + BASE_HEAD + bytes, size - BASE_HEAD - bytes);
    if (code) {
        ct_replica_map_deinit(&map);
        return ct_error_set(err, code, "the map of a replica cannot be read");
    }
    ct_replica_map_deinit(&replica->map);
    replica->map = map;
    replica->term = ct_get_le64(at + 17);
    replica->voted_for = ct_get_le64(at + 25);
    replica->committed = ct_get_le64(at + 33);
    replica_log_replace(&replica->log, replica->committed, ct_get_le64(at + 41), &servers);
    replica->kept.base = true;
    return 0;
}

/* One entry of a record at `*at`, to be entry `index`. */
static int read_entry(struct replica_log *log, uint64_t index, const unsigned char **at,
                      size_t *left)
{
    size_t size = *left >= ENTRY_HEAD ? ct_get_le32(*at + 9) : SIZE_MAX;
    const unsigned char *data = *at + ENTRY_HEAD;
    struct replica_servers servers;
    uint8_t type;

    if (size > *left - ENTRY_HEAD)
        return CT_EDATA;
    type = (*at)[8];
    if (type < REPLICA_PUT || type > REPLICA_LEAD ||
        (type == REPLICA_SERVERS && !replica_servers_read(data, size, &servers)))
        return CT_EDATA;
    if (index > log->base_index && !replica_log_append(log, ct_get_le64(*at), type, data, size, 0))
        return CT_ENOMEM;
    *at += ENTRY_HEAD + size;
    *left -= ENTRY_HEAD + size;
    return 0;
}

static int read_log(struct ct_replica *replica, const unsigned char *at, size_t size,
                    struct ct_error *err)
{
    struct replica_log *log = &replica->log;
    uint64_t first = size >= LOG_HEAD ? ct_get_le64(at + 17) : 0, index = first;
    uint32_t count = size >= LOG_HEAD ? ct_get_le32(at + 25) : 0;
    size_t left = size - LOG_HEAD;
    int code = 0;

    if (first == 0 || !replica->kept.base || first > replica_log_last(log) + 1)
        return ct_error_set(err, CT_EDATA, "entries of a replica do not follow each other");
    replica->term = ct_get_le64(at + 1);
    replica->voted_for = ct_get_le64(at + 9);
    if (CT_MAX(first, log->base_index + 1) <= replica_log_last(log))
        replica_log_cut(log, CT_MAX(first, log->base_index + 1));
    for (at += LOG_HEAD; code == 0 && index < first + count; index++)
        code = read_entry(log, index, &at, &left);
    if (code == 0 && left > 0)
        code = CT_EDATA;
    return code ? ct_error_set(err, code, "an entry of a replica cannot be read") : 0;
}

int ct_replica_restore(struct ct_replica *replica, const void *record, size_t size,
                       struct ct_error *err)
{
    const unsigned char *at = record;

    if (size > 0 && at[0] == RECORD_BASE)
        return read_base(replica, at, size, err);
    if (size > 0 && at[0] == RECORD_LOG)
        return read_log(replica, at, size, err);
    return ct_error_set(err, CT_EDATA,
                        "it is no replica's: a ctrund with --peers needs a folder of its own");
}

void ct_replica_begin(struct ct_replica *replica)
{
    CT_ASSERT(replica->log.base_servers.count > 0);
    note_kept(replica);
    replica_follow(replica, replica->term, 0);
}
