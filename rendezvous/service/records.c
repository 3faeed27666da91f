/* Payloads: a kind (u8), the run id, then the fields of the kind, each written and read by one pair
 * of functions in the same order. Numbers are little-endian, a string is u16 length and bytes. */
#include "rendezvous/service/records.h"

#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

enum { CHARGED = 1, REBUILT = 2 }; /* of RESERVE */

/* ---- writing ---- */

static void put_u32(struct ct_buf *out, uint32_t value)
{
    unsigned char bytes[4];
    ct_put_le32(bytes, value);
    (void)ct_buf_append(out, bytes, sizeof(bytes));
}

static void put_u64(struct ct_buf *out, uint64_t value)
{
    unsigned char bytes[8];
    ct_put_le64(bytes, value);
    (void)ct_buf_append(out, bytes, sizeof(bytes));
}

static void put_str(struct ct_buf *out, const char *text)
{
    unsigned char bytes[2];
    size_t size = strlen(text);
    ct_put_le16(bytes, (uint16_t)size);
    (void)ct_buf_append(out, bytes, sizeof(bytes));
    (void)ct_buf_append(out, text, size);
}

static void put_head(struct ct_buf *out, enum ct_record_kind kind, const char *job)
{
    unsigned char byte = (unsigned char)kind;
    (void)ct_buf_append(out, &byte, 1);
    put_str(out, job);
}

static void put_reserve(struct ct_buf *out, const struct ct_rdzv *job)
{
    const struct ct_rdzv_params *p = &job->params;
    const uint32_t numbers[] = {
        p->nodes_min,
        p->nodes_max,
        p->max_restarts,
        p->join_timeout_ms,
        p->last_call_ms,
        p->lease_ms,
        p->prepare_ms,
        p->grow_ms,
        p->autonomy_ms,
        p->cordon_faults,
        p->world_divides,
        job->restarts,
        (job->charged ? CHARGED : 0u) | (job->lost_generation > 0 ? REBUILT : 0u),
    };
    put_u64(out, job->generation);
    put_u64(out, p->config_hash);
    for (size_t i = 0; i < CT_COUNT(numbers); i++)
        put_u32(out, numbers[i]);
    put_str(out, p->settings);
}

static void put_publication(struct ct_buf *out, const struct ct_rdzv_publication *published)
{
    put_u64(out, published->generation);
    put_u64(out, published->lineage);
    put_u64(out, published->step);
    put_u64(out, published->digest);
}

static void put_commit(struct ct_buf *out, const struct ct_rdzv_roster *roster, uint32_t restarts)
{
    put_u32(out, restarts);
    put_u64(out, roster->generation);
    put_u64(out, roster->lineage);
    put_u64(out, roster->oldest);
    put_u64(out, roster->base_step);
    put_u64(out, roster->base_digest);
    put_u32(out, (uint32_t)roster->base_node);
    put_publication(out, &roster->published);
    put_u32(out, roster->count);
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct ct_rdzv_place *place = &roster->places[i];
        put_u64(out, place->id.high);
        put_u64(out, place->id.low);
        put_u32(out, place->slots);
        put_u32(out, (uint32_t)place->node_rank);
        put_u32(out, place->port);
        put_u32(out, place->survivor);
        put_str(out, place->host);
        put_str(out, place->address);
        put_str(out, place->role);
    }
}

static void put_cordons(struct ct_buf *out, const struct ct_rdzv *job)
{
    put_u32(out, (uint32_t)job->cordon_count);
    for (size_t i = 0; i < job->cordon_count; i++) {
        const struct ct_rdzv_cordon *cordon = &job->cordons[i];
        uint64_t left = UINT64_MAX;
        if (cordon->until_ms != UINT64_MAX)
            left = cordon->until_ms - CT_MIN(cordon->until_ms, job->now_ms);
        put_u64(out, left);
        put_u32(out, cordon->by_operator);
        put_str(out, cordon->host);
        put_str(out, cordon->reason);
    }
}

static void put_close(struct ct_buf *out, const struct ct_rdzv_result *result)
{
    const struct ct_wire_failure *cause = &result->cause;
    const int32_t numbers[] = {
        result->code,      result->status, cause->code,   cause->rank,
        cause->local_rank, cause->pid,     cause->status, cause->signal,
    };
    put_u64(out, result->generation);
    put_u32(out, result->restarts);
    for (size_t i = 0; i < CT_COUNT(numbers); i++)
        put_u32(out, (uint32_t)numbers[i]);
    put_str(out, cause->host);
    put_str(out, cause->text);
}

void ct_record_write_job(const struct ct_rdzv *job, enum ct_rdzv_record record, struct ct_buf *out)
{
    put_head(out, (enum ct_record_kind)record, job->name);
    switch (record) {
    case CT_RDZV_RECORD_RESERVE:
        put_reserve(out, job);
        break;
    case CT_RDZV_RECORD_COMMIT:
        put_commit(out, &job->next, job->restarts);
        break;
    case CT_RDZV_RECORD_CLOSE:
        put_close(out, &job->result);
        break;
    case CT_RDZV_RECORD_MANIFEST:
        put_publication(out, &job->publishing);
        break;
    case CT_RDZV_RECORD_CORDON:
        put_cordons(out, job);
        break;
    case CT_RDZV_RECORDS:
        break;
    }
}

void ct_record_write_manifest(const struct ct_rdzv *job,
                              const struct ct_rdzv_publication *published, struct ct_buf *out)
{
    put_head(out, CT_RECORD_MANIFEST, job->name);
    put_publication(out, published);
}

void ct_record_write_commit(const struct ct_rdzv *job, const struct ct_rdzv_roster *roster,
                            struct ct_buf *out)
{
    put_head(out, CT_RECORD_COMMIT, job->name);
    put_commit(out, roster, job->restarts);
}

void ct_record_write_epoch(uint64_t epoch, struct ct_buf *out)
{
    put_head(out, CT_RECORD_EPOCH, "");
    put_u64(out, epoch);
}

void ct_record_write_forget(const char *job, struct ct_buf *out)
{
    put_head(out, CT_RECORD_FORGET, job);
}

/* ---- reading: a cursor that remembers whether anything was missing ---- */

struct cursor {
    const unsigned char *at;
    size_t left;
    struct ct_arena *arena;
    int rc; /* the first error */
};

static const unsigned char *read_bytes(struct cursor *cursor, size_t size)
{
    if (cursor->rc == 0 && cursor->left < size)
        cursor->rc = CT_EPROTOCOL;
    if (cursor->rc != 0)
        return NULL;
    const unsigned char *at = cursor->at;
    cursor->at += size;
    cursor->left -= size;
    return at;
}

static uint32_t get_u32(struct cursor *cursor)
{
    const unsigned char *at = read_bytes(cursor, 4);
    return at != NULL ? ct_get_le32(at) : 0;
}

static uint64_t get_u64(struct cursor *cursor)
{
    const unsigned char *at = read_bytes(cursor, 8);
    return at != NULL ? ct_get_le64(at) : 0;
}

/* Into `text`, which must be able to hold it. */
static void get_str(struct cursor *cursor, char *text, size_t room)
{
    const unsigned char *at = read_bytes(cursor, 2);
    size_t size = at != NULL ? ct_get_le16(at) : 0;
    if (size >= room)
        cursor->rc = cursor->rc != 0 ? cursor->rc : CT_EPROTOCOL;
    at = read_bytes(cursor, size);
    text[0] = '\0';
    if (at == NULL)
        return;
    memcpy(text, at, size);
    text[size] = '\0';
}

/* Into the arena, if it is shorter than `room`. */
static const char *get_text(struct cursor *cursor, size_t room)
{
    char *text = ct_arena_alloc(cursor->arena, room);
    if (text == NULL)
        cursor->rc = cursor->rc != 0 ? cursor->rc : CT_ENOMEM;
    else
        get_str(cursor, text, room);
    return text != NULL ? text : "";
}

static void get_reserve(struct cursor *cursor, struct ct_record *record)
{
    uint32_t flags;
    struct ct_rdzv_params *p = &record->params;
    record->generation = get_u64(cursor);
    p->config_hash = get_u64(cursor);
    uint32_t *const numbers[] = {
        &p->nodes_min,    &p->nodes_max,     &p->max_restarts,  &p->join_timeout_ms,
        &p->last_call_ms, &p->lease_ms,      &p->prepare_ms,    &p->grow_ms,
        &p->autonomy_ms,  &p->cordon_faults, &p->world_divides, &record->restarts,
    };
    for (size_t i = 0; i < CT_COUNT(numbers); i++)
        *numbers[i] = get_u32(cursor);
    flags = get_u32(cursor);
    record->charged = (flags & CHARGED) != 0;
    record->rebuilt = (flags & REBUILT) != 0;
    get_str(cursor, p->settings, sizeof(p->settings));
    if (cursor->rc == 0 && ct_rdzv_params_check(p, NULL) != 0)
        cursor->rc = CT_EPROTOCOL;
}

static void get_place(struct cursor *cursor, struct ct_rdzv_place *place, uint32_t first_rank)
{
    place->id.high = get_u64(cursor);
    place->id.low = get_u64(cursor);
    place->slots = get_u32(cursor);
    place->first_rank = first_rank;
    place->node_rank = (int32_t)get_u32(cursor);
    place->port = (uint16_t)get_u32(cursor);
    place->survivor = get_u32(cursor) != 0;
    get_str(cursor, place->host, sizeof(place->host));
    get_str(cursor, place->address, sizeof(place->address));
    get_str(cursor, place->role, sizeof(place->role));
    if (cursor->rc == 0 && (place->slots == 0 || place->slots > CT_RDZV_SLOTS_LIMIT))
        cursor->rc = CT_EPROTOCOL;
}

static void get_publication(struct cursor *cursor, struct ct_rdzv_publication *published)
{
    published->generation = get_u64(cursor);
    published->lineage = get_u64(cursor);
    published->step = get_u64(cursor);
    published->digest = get_u64(cursor);
}

static void get_cordons(struct cursor *cursor, struct ct_record *record)
{
    record->cordon_count = get_u32(cursor);
    if (cursor->rc == 0 && record->cordon_count > CT_RDZV_CORDONS)
        cursor->rc = CT_EPROTOCOL;
    if (cursor->rc != 0)
        return;
    record->cordons = ct_arena_array(cursor->arena, CT_RDZV_CORDONS, sizeof(*record->cordons));
    if (record->cordons == NULL)
        cursor->rc = CT_ENOMEM;
    for (size_t i = 0; i < record->cordon_count && cursor->rc == 0; i++) {
        struct ct_rdzv_cordon *cordon = &record->cordons[i];
        cordon->until_ms = get_u64(cursor);
        cordon->by_operator = get_u32(cursor) != 0;
        get_str(cursor, cordon->host, sizeof(cordon->host));
        get_str(cursor, cordon->reason, sizeof(cordon->reason));
    }
}

static void get_commit(struct cursor *cursor, struct ct_record *record)
{
    struct ct_rdzv_roster *roster = &record->roster;
    record->restarts = get_u32(cursor);
    roster->generation = get_u64(cursor);
    roster->lineage = get_u64(cursor);
    roster->oldest = get_u64(cursor);
    roster->base_step = get_u64(cursor);
    roster->base_digest = get_u64(cursor);
    roster->base_node = (int32_t)get_u32(cursor);
    get_publication(cursor, &roster->published);
    roster->count = get_u32(cursor);
    bool sound = roster->count > 0 && roster->count <= CT_RDZV_NODES_LIMIT &&
                 roster->base_node >= -1 && roster->base_node < (int32_t)roster->count;
    if (cursor->rc == 0 && !sound)
        cursor->rc = CT_EPROTOCOL;
    if (cursor->rc != 0)
        return;
    roster->places = ct_arena_array(cursor->arena, roster->count, sizeof(*roster->places));
    if (roster->places == NULL)
        cursor->rc = CT_ENOMEM;
    for (uint32_t i = 0; i < roster->count && cursor->rc == 0; i++) {
        get_place(cursor, &roster->places[i], roster->world);
        roster->world += roster->places[i].slots;
    }
}

static void get_close(struct cursor *cursor, struct ct_rdzv_result *result)
{
    struct ct_wire_failure *cause = &result->cause;
    int32_t *const numbers[] = {
        &result->code,      &result->status, &cause->code,   &cause->rank,
        &cause->local_rank, &cause->pid,     &cause->status, &cause->signal,
    };
    result->generation = get_u64(cursor);
    result->restarts = get_u32(cursor);
    for (size_t i = 0; i < CT_COUNT(numbers); i++)
        *numbers[i] = (int32_t)get_u32(cursor);
    cause->host = get_text(cursor, CT_FAILURE_HOST_BYTES);
    cause->text = get_text(cursor, CT_FAILURE_TEXT_BYTES);
    cause->error_file = "";
}

static void get_body(struct cursor *cursor, struct ct_record *record)
{
    switch (record->kind) {
    case CT_RECORD_EPOCH:
        record->epoch = get_u64(cursor);
        break;
    case CT_RECORD_RESERVE:
        get_reserve(cursor, record);
        break;
    case CT_RECORD_COMMIT:
        get_commit(cursor, record);
        break;
    case CT_RECORD_CLOSE:
        get_close(cursor, &record->result);
        break;
    case CT_RECORD_MANIFEST:
        get_publication(cursor, &record->published);
        break;
    case CT_RECORD_CORDON:
        get_cordons(cursor, record);
        break;
    case CT_RECORD_FORGET:
        break;
    default:
        cursor->rc = CT_EPROTOCOL;
        break;
    }
}

bool ct_record_head(const void *payload, size_t size, enum ct_record_kind *ret_kind, char job[129])
{
    struct cursor cursor = {.at = payload, .left = size};
    const unsigned char *kind = read_bytes(&cursor, 1);
    *ret_kind = kind != NULL ? (enum ct_record_kind) * kind : 0;
    get_str(&cursor, job, CT_RDZV_NAME_BYTES);
    return cursor.rc == 0;
}

int ct_record_read(const void *payload, size_t size, struct ct_arena *arena,
                   struct ct_record *ret_record, struct ct_error *err)
{
    struct cursor cursor = {.at = payload, .left = size, .arena = arena};
    struct ct_record record = {0};
    char name[CT_RDZV_NAME_BYTES];
    const unsigned char *kind = read_bytes(&cursor, 1);
    record.kind = kind != NULL ? (enum ct_record_kind) * kind : 0;
    get_str(&cursor, name, sizeof(name));
    record.job = ct_arena_strdup(arena, name);
    if (record.job == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a record of the journal");
    get_body(&cursor, &record);
    if (cursor.rc == CT_ENOMEM)
        return ct_error_set(err, CT_ENOMEM, "no memory for a record of the journal");
    if (cursor.rc != 0 || cursor.left > 0)
        return ct_error_set(err, CT_EPROTOCOL,
                            "a record of %zu bytes (kind %d) cannot be understood: a newer "
                            "release of ctrund wrote it, which has to go on with it, or one with "
                            "--peers",
                            size, (int)record.kind);
    *ret_record = record;
    return 0;
}
