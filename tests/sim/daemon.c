/* The daemon: the real service with a disk of its own.
 *
 * A record is durable when persist returns. A crash keeps what is durable; a crash in the middle of
 * a record keeps any part of it, and nothing that the daemon would have said after is seen. */
#include "sim.h"

#include "base/assert.h"
#include "rendezvous/records.h"

#include <inttypes.h>

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    struct sim *sim = context;
    struct conn *conn = peer;
    if (sim->daemon.dying || !conn->open[AT_DAEMON] || conn->closing)
        return;
    oracle_daemon_tells(sim, message);
    sim_send(sim, conn, AT_DAEMON, message);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    struct sim *sim = context;
    struct conn *conn = peer;
    if (sim->daemon.dying || conn->closing)
        return;
    sim_log(sim, "daemon closes the link of %s: %s (%s)", sim->nodes[conn->node].host, sentence,
            ct_error_name(code));
    conn->closing = true;
    sim_schedule(sim, sim->now, EV_UNANSWERED, (uint32_t)(conn - sim->conns), AT_DAEMON);
}

static bool io_is_for(void *context, void *peer, const char *job)
{
    (void)context;
    (void)peer;
    (void)job;
    return true;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    struct sim *sim = context;
    (void)job;
    if (!sim->daemon.dying)
        sim_log(sim, "daemon: %s", sentence);
}

/* ---- the disk ---- */

struct rewrite {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
};

static void emit(void *context, const void *record, size_t size)
{
    struct rewrite *rewrite = context;
    ct_journal_frame(&rewrite->tail, record, size, &rewrite->bytes);
}

/* Replace the journal by a snapshot, as the real one does when it has grown. */
static void rewrite(struct sim *sim)
{
    struct disk *disk = &sim->daemon.disk;
    struct rewrite fresh = {.tail = {.seq = disk->tail.seq}};
    ct_buf_init(&fresh.bytes, 0);
    ct_service_snapshot(sim->daemon.service, emit, &fresh);
    ct_buf_deinit(&disk->bytes);
    disk->bytes = fresh.bytes;
    disk->tail = fresh.tail;
}

static int io_persist(void *context, const void *record, size_t size)
{
    struct sim *sim = context;
    struct disk *disk = &sim->daemon.disk;
    if (sim->daemon.dying)
        return 0;
    bool is_close = ((const unsigned char *)record)[0] == CT_RECORD_CLOSE;
    if (is_close && (disk->full > 0 || !disk->tear_next))
        sim->daemon.close_failed = disk->full > 0;
    if (disk->full > 0)
        return CT_EIO;
    if (ct_rng_chance(&sim->disk_rng, 20))
        rewrite(sim);
    size_t before = disk->bytes.size;
    ct_journal_frame(&disk->tail, record, size, &disk->bytes);
    if (disk->tear_next) {
        size_t written = disk->bytes.size - before;
        disk->bytes.size = before + ct_rng_below(&sim->disk_rng, written + 1);
        disk->tear_next = false;
        sim->daemon.dying = true;
        sim_log(sim, "daemon dies after %zu of %zu bytes of a record", disk->bytes.size - before,
                written);
    }
    return 0;
}

static int on_replay(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct sim *sim = context;
    return ct_service_restore(sim->daemon.service, sim_local_ms(sim, 0), record, size, err);
}

/* ---- its life ---- */

/* After each call into the service. */
static void after(struct sim *sim)
{
    if (sim->daemon.dying) {
        sim_daemon_crash(sim);
        return;
    }
    sim_arm(sim, 0, ct_service_deadline(sim->daemon.service));
    oracle_daemon_step(sim);
}

void sim_daemon_start(struct sim *sim)
{
    struct sim_daemon *daemon = &sim->daemon;
    struct ct_error err = {0};
    size_t valid = 0;
    if (daemon->disk.full > 0) {
        sim_schedule(sim, sim->now + 500, EV_START, 0, 0);
        return;
    }
    const struct ct_service_io io = {
        .context = sim,
        .send = io_send,
        .close = io_close,
        .is_for = io_is_for,
        .persist = io_persist,
        .announce = io_announce,
    };
    sim->processes[0].alive = true;
    sim->processes[0].life++;
    daemon->dying = false;
    daemon->service = ct_service_new(NULL, &io, 0);
    CT_ASSERT(daemon->service != NULL);
    if (ct_journal_scan(daemon->disk.bytes.data, daemon->disk.bytes.size, on_replay, sim,
                        &daemon->disk.tail, &valid, &err) != 0) {
        sim_fail(sim, "S10: the journal cannot be replayed: %s", err.text);
        return;
    }
    daemon->disk.bytes.size = valid;
    daemon->epoch = ct_service_epoch(daemon->service) + 1;
    struct ct_buf record;
    ct_buf_init(&record, 0);
    ct_record_write_epoch(daemon->epoch, &record);
    ct_journal_frame(&daemon->disk.tail, record.data, record.size, &daemon->disk.bytes);
    ct_buf_deinit(&record);
    ct_service_restored(daemon->service, daemon->epoch);
    sim_log(sim, "daemon starts, epoch %" PRIu64, daemon->epoch);
    sim->coverage.restarts++;
    oracle_daemon_restored(sim);
    after(sim);
}

void sim_daemon_crash(struct sim *sim)
{
    if (!sim->processes[0].alive)
        return;
    sim_log(sim, "daemon dies");
    sim->processes[0].alive = false;
    sim->processes[0].life++;
    sim->processes[0].paused_until = 0;
    sim_kill_conns(sim, 0);
    ct_service_free(sim->daemon.service);
    sim->daemon.service = NULL;
    sim->daemon.dying = false;
    sim_schedule(sim, sim->now + 100 + ct_rng_below(&sim->fault_rng, 4000), EV_START, 0, 0);
}

void sim_daemon_timer(struct sim *sim)
{
    ct_service_tick(sim->daemon.service, sim_local_ms(sim, 0));
    after(sim);
}

void sim_daemon_opened(struct sim *sim, struct conn *conn)
{
    conn->link = ct_service_open(sim->daemon.service, conn);
    CT_ASSERT(conn->link != 0);
}

void sim_daemon_message(struct sim *sim, struct conn *conn, const struct ct_message *message)
{
    if (conn->link == 0 || conn->closing)
        return;
    if (message->type < 64)
        sim->coverage.messages[message->type]++;
    if (message->type != CT_MSG_HEARTBEAT || sim->trace) {
        struct ct_buf line;
        ct_buf_init(&line, 0);
        ct_wire_print(message, &line);
        sim_log(sim, "%s > %s", sim->nodes[conn->node].host, ct_buf_str(&line));
        ct_buf_deinit(&line);
    }
    ct_service_message(sim->daemon.service, sim_local_ms(sim, 0), conn->link, message);
    after(sim);
}

void sim_daemon_closed(struct sim *sim, struct conn *conn, bool silent)
{
    if (conn->link == 0)
        return;
    ct_service_closed(sim->daemon.service, sim_local_ms(sim, 0), conn->link, silent);
    after(sim);
}

const struct ct_rdzv *sim_job(const struct sim *sim)
{
    return sim->daemon.service != NULL ? ct_service_job(sim->daemon.service, 0) : NULL;
}
