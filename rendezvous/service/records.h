/* The durable state of the daemon as bytes: the payloads of the journal.
 *
 *      EPOCH    the daemon's tenure, before it serves
 *      RESERVE  a job, its terms, and a generation that is used up from now on
 *      COMMIT   the roster of a generation
 *      MANIFEST the newest publication
 *      CORDON   all hosts that are cordoned, each with the time that is left
 *      CLOSE    the result of a job
 *      FORGET   a job whose nodes all know its result
 *
 * The newest of each kind is all that is needed of a job. Pure. */
#ifndef CT_RENDEZVOUS_SERVICE_RECORDS_H
#define CT_RENDEZVOUS_SERVICE_RECORDS_H

#include "base/arena.h"
#include "base/bytes.h"
#include "rendezvous/core/core.h"

enum ct_record_kind {
    CT_RECORD_RESERVE = CT_RDZV_RECORD_RESERVE,
    CT_RECORD_COMMIT = CT_RDZV_RECORD_COMMIT,
    CT_RECORD_CLOSE = CT_RDZV_RECORD_CLOSE,
    CT_RECORD_MANIFEST = CT_RDZV_RECORD_MANIFEST,
    CT_RECORD_CORDON = CT_RDZV_RECORD_CORDON,
    CT_RECORD_EPOCH = 16,
    CT_RECORD_FORGET,
};

/* A record that was read; which fields count depends on the kind. Its strings lie in the arena. */
struct ct_record {
    enum ct_record_kind kind;
    const char *job; /* all but EPOCH */
    uint64_t epoch;
    struct ct_rdzv_params params; /* RESERVE, and the next three */
    uint64_t generation;
    uint32_t restarts; /* COMMIT too */
    bool charged;
    bool rebuilt;
    struct ct_rdzv_roster roster;         /* COMMIT */
    struct ct_rdzv_result result;         /* CLOSE */
    struct ct_rdzv_publication published; /* MANIFEST */
    struct ct_rdzv_cordon *cordons; /* CORDON; until_ms is how long from the time of writing */
    size_t cordon_count;
};

/* Append the record that `job` asks to be kept (CT_RDZV_DO_PERSIST). */
void ct_record_write_job(const struct ct_rdzv *job, enum ct_rdzv_record record, struct ct_buf *out);

/* The same for a roster that was committed before. */
void ct_record_write_commit(const struct ct_rdzv *job, const struct ct_rdzv_roster *roster,
                            struct ct_buf *out);

/* The same for a publication that is on record. */
void ct_record_write_manifest(const struct ct_rdzv *job,
                              const struct ct_rdzv_publication *published, struct ct_buf *out);

void ct_record_write_epoch(uint64_t epoch, struct ct_buf *out);
void ct_record_write_forget(const char *job, struct ct_buf *out);

/* Read the kind and the job of a payload; "" for EPOCH, which has none. False when it is none. */
bool ct_record_head(const void *payload, size_t size, enum ct_record_kind *ret_kind, char job[129]);

/* Read a payload; strings and rosters lie in `arena`. 0, CT_EPROTOCOL when it is none, CT_ENOMEM.
 */
int ct_record_read(const void *payload, size_t size, struct ct_arena *arena,
                   struct ct_record *ret_record, struct ct_error *err);

#endif
