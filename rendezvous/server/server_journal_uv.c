/* A server's records in a journal: written before anything is sent, replayed at the start, and left
 * to the newer daemon that takes them over. */
#include "rendezvous/server/server_state_uv.h"

#include "rendezvous/service/records.h"

enum {
    WATCH_MS = 500, /* between two looks for a newer daemon */
    CHECK_BYTES = 64 << 20,
};

static void on_watch(uv_timer_t *timer);

static int append(struct ct_rdzv_server *server, struct ct_journal_record record,
                  struct ct_error *ret_why)
{
    struct ct_error err = {0};
    if (server->fenced.code != 0)
        return CT_EFENCED;
    int rc = ct_journal_append(server->journal, record, &err);
    if (rc == CT_EFENCED) {
        server->fenced = err; /* told by the next look, not from inside the service */
        (void)uv_timer_start(&server->watch, on_watch, 0, WATCH_MS);
        return rc;
    }
    if ((rc != 0) != server->journal_failed)
        ct_log_event(server->log, rc != 0 ? CT_LOG_ERROR : CT_LOG_INFO, "journal", "%s",
                     rc != 0 ? err.text : "the journal can be written again");
    server->journal_failed = rc != 0;
    *ret_why = err;
    return rc;
}

int ct_server_keep_on_disk(void *context, uint64_t ticket, const void *record, size_t size,
                           bool may_compact)
{
    struct ct_rdzv_server *server = context;
    (void)ticket; /* it is on disk, or not, when this returns */
    struct ct_error err = {0};
    int rc = append(server, (struct ct_journal_record){record, size, may_compact}, &err);
    if (rc != CT_EFENCED)
        ct_service_set_trouble(server->service, rc != 0 ? err.text : "");
    return rc;
}

/* Of a newer release? Its daemon may still run, and is not to be ended by one that cannot go on. */
static int on_check(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct ct_arena arena;
    struct ct_record content;

    (void)context;
    ct_arena_init(&arena, CHECK_BYTES);
    int rc = ct_record_read(record, size, &arena, &content, err);
    ct_arena_deinit(&arena);
    return rc;
}

static int on_replay(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct ct_rdzv_server *server = context;
    return ct_service_restore(server->service, ct_server_now_ms(server), record, size, err);
}

static int on_snapshot(void *context, ct_journal_emit_fn emit, void *emit_context)
{
    const struct ct_rdzv_server *server = context;
    return ct_service_snapshot(server->service, emit, emit_context);
}

/* Is there a newer daemon? One that has nothing to write would not find out otherwise. */
static void on_watch(uv_timer_t *timer)
{
    struct ct_rdzv_server *server = timer->data;
    struct ct_error err = {0};
    if (server->fenced.code == 0 && ct_journal_check(server->journal, &err) != CT_EFENCED)
        return;
    if (server->fenced.code == 0)
        server->fenced = err;
    (void)uv_timer_stop(&server->watch);
    if (server->on_fenced != NULL)
        server->on_fenced(server->user, &server->fenced);
    else
        ct_log_event(server->log, CT_LOG_ERROR, "fenced", "%s", server->fenced.text);
}

int ct_server_restore(struct ct_rdzv_server *server, const char *dir, struct ct_error *err)
{
    struct ct_journal_options options = {.dir = dir,
                                         .takeover = server->takeover,
                                         .check = on_check,
                                         .replay = on_replay,
                                         .snapshot = on_snapshot,
                                         .context = server};
    int rc = ct_journal_open(&server->journal, &options, err);
    if (rc != 0)
        return rc;
    uint64_t epoch = ct_journal_epoch(server->journal);
    ct_service_restored(server->service, epoch);
    rc = ct_journal_begin(server->journal, err);
    if (rc != 0)
        return rc;
    (void)uv_timer_start(&server->watch, on_watch, WATCH_MS, WATCH_MS);
    ct_log_event(server->log, CT_LOG_INFO, "journal",
                 "epoch %llu with %zu jobs of the journal in %s", (unsigned long long)epoch,
                 ct_service_jobs(server->service), dir);
    return 0;
}

/* ---- with peers ---- */

int ct_server_keep_of_holder(void *context, const void *record, size_t size)
{
    struct ct_error err = {0};
    /* The replica's state has the record already: it may be written as part of all of it. */
    return append(context, (struct ct_journal_record){record, size, true}, &err);
}

static int on_replay_of_holder(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct ct_rdzv_server *server = context;
    return ct_holder_restore(&server->replica->holder, record, size, err);
}

static int on_snapshot_of_holder(void *context, ct_journal_emit_fn emit, void *emit_context)
{
    const struct ct_rdzv_server *server = context;
    return ct_holder_emit(&server->replica->holder, emit, emit_context);
}

int ct_server_restore_holder(struct ct_rdzv_server *server, const char *dir, struct ct_error *err)
{
    struct ct_journal_options options = {.dir = dir,
                                         .replay = on_replay_of_holder,
                                         .snapshot = on_snapshot_of_holder,
                                         .context = server};
    int rc = ct_journal_open(&server->journal, &options, err);
    if (rc == 0)
        rc = ct_journal_begin(server->journal, err);
    if (rc == 0)
        (void)uv_timer_start(&server->watch, on_watch, WATCH_MS, WATCH_MS);
    return rc;
}
