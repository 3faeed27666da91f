/* Records of jobs as bytes: a kind, the run id, then what the kind needs. Numbers are
 * little-endian, a string is u16 length and bytes. */
#include "rendezvous/journal.h"

#include "rendezvous/core_state.h"

#include <string.h>

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

static void put_params(struct ct_buf *out, const struct ct_rdzv_params *params)
{
    const uint32_t numbers[] = {
        params->nodes_min,    params->nodes_max, params->max_restarts, params->join_timeout_ms,
        params->last_call_ms, params->lease_ms,  params->prepare_ms,   params->grow_ms,
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        put_u32(out, numbers[i]);
    put_u64(out, params->config_hash);
}

static void put_roster(struct ct_buf *out, const struct ct_rdzv_roster *roster)
{
    put_u64(out, roster->generation);
    put_u64(out, roster->lineage);
    put_u64(out, roster->base_step);
    put_u64(out, roster->base_digest);
    put_u32(out, (uint32_t)roster->base_node);
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

static void put_result(struct ct_buf *out, const struct ct_rdzv_result *result)
{
    const struct ct_rdzv_failure *cause = &result->cause;
    const int32_t numbers[] = {
        result->code,      result->status, cause->code,   cause->rank,
        cause->local_rank, cause->pid,     cause->status, cause->signal,
    };
    put_u64(out, result->generation);
    put_u32(out, result->restarts);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        put_u32(out, (uint32_t)numbers[i]);
    put_str(out, cause->host);
    put_str(out, cause->text);
}

void ct_journal_job_record(const struct ct_rdzv *job, enum ct_rdzv_record record,
                           struct ct_buf *out)
{
    unsigned char kind = (unsigned char)record;
    (void)ct_buf_append(out, &kind, 1);
    put_str(out, job->name);
    switch (record) {
    case CT_RDZV_RECORD_RESERVE:
        put_params(out, &job->params);
        put_u64(out, job->generation);
        put_u32(out, job->restarts);
        break;
    case CT_RDZV_RECORD_COMMIT:
        put_roster(out, &job->next);
        break;
    case CT_RDZV_RECORD_CLOSE:
        put_result(out, &job->result);
        break;
    }
}
