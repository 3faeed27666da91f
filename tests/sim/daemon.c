/* The daemons: the real service on the shared disk.
 *
 * One serves; a fault may start the second, which claims the next epoch while
 * the first still lives (or stands still) and does not know. A record is
 * durable when persist returns. A crash keeps what is durable; nothing is seen
 * of what a daemon would have said in or after its last record. */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"
#include "message_print.h"
#include "rdzv_check.h"
#include "rendezvous/service/admin.h"
#include "rendezvous/service/records.h"

#include <inttypes.h>

static void operator_receives(struct sim *sim, const struct ct_msg_admin_reply *reply)
{
    sim->operator_answer = reply->code;
    sim_trace(sim, "the operator is told: %.*s", (int)reply->text.size,
              (const char *)reply->text.data);
}

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    struct sim_daemon *daemon = context;
    struct conn *conn = peer;
    if (conn == &daemon->sim->operator&& message->type == CT_MSG_ADMIN_REPLY && !daemon->dying)
        operator_receives(daemon->sim, &message->admin_reply);
    if (daemon->dying || !conn->open[AT_DAEMON] || conn->closing)
        return;
    oracle_daemon_sends(daemon->sim, daemon, message);
    sim_send(daemon->sim, conn, AT_DAEMON, message);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    struct sim_daemon *daemon = context;
    struct sim *sim = daemon->sim;
    struct conn *conn = peer;
    if (daemon->dying || conn->closing || conn == &sim->operator)
        return;
    sim_log(sim, "daemon closes the link of %s: %s (%s)", sim->nodes[conn->node].host, sentence,
            ct_error_name(code));
    conn->closing = true;
    sim_schedule(sim, sim->now, EV_UNANSWERED, (uint32_t)(conn - sim->conns), AT_DAEMON);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    const struct sim_daemon *daemon = context;
    (void)job;
    if (!daemon->dying)
        sim_trace(daemon->sim, "daemon: %s", sentence);
}

static int io_persist(void *context, uint64_t ticket, const void *record, size_t size,
                      bool may_compact)
{
    (void)ticket;
    struct sim_daemon *daemon = context;
    if (daemon->dying)
        return 0;
    int rc =
        sim_disk_append(daemon->sim, daemon, (struct ct_journal_record){record, size, may_compact});
    if (((const unsigned char *)record)[0] == CT_RECORD_CLOSE && !daemon->dying)
        daemon->sim->oracle.close_failed = rc != 0;
    return rc;
}

/* ---- its life ---- */

/* It is gone, and maybe another process takes its place. */
static void end(struct sim *sim, uint32_t index)
{
    struct sim_daemon *daemon = &sim->daemons[index];
    sim->processes[index].alive = false;
    sim->processes[index].life++;
    sim->processes[index].paused_until = 0;
    sim_kill_conns(sim, index);
    ct_service_free(daemon->service);
    daemon->service = NULL;
}

static void fenced(struct sim *sim, uint32_t index)
{
    sim_trace(sim, "daemon %u, epoch %" PRIu64 ", ends: epoch %" PRIu64 " has begun", index,
              sim->daemons[index].epoch, sim->disk.newest);
    sim->coverage.takeovers++;
    end(sim, index);
}

/* After each call into the service. */
static void after(struct sim *sim, struct sim_daemon *daemon)
{
    if (daemon->fenced) {
        fenced(sim, daemon->index);
        return;
    }
    if (daemon->dying) {
        sim_daemon_crash(sim, daemon->index);
        return;
    }
    sim_arm(sim, daemon->index, ct_service_deadline(daemon->service));
    oracle_daemon_step(sim, daemon);
    if (daemon->slow_until > sim->now)
        sim_pause(sim, daemon->index, daemon->slow_until);
}

/* Claim an epoch, read what is there, write it anew, serve. */
void sim_daemon_start(struct sim *sim, uint32_t index)
{
    struct sim_daemon *daemon = &sim->daemons[index];
    struct ct_error err = {0};
    const struct ct_service_io io = {
        .context = daemon,
        .send = io_send,
        .close = io_close,
        .persist = io_persist,
        .announce = io_announce,
    };
    *daemon = (struct sim_daemon){.sim = sim, .index = index, .epoch = sim_disk_claim(sim)};
    sim->processes[index].alive = true;
    sim->processes[index].life++;
    daemon->service = ct_service_new(NULL, &io, 0);
    CT_ASSERT(daemon->service != NULL);
    if (sim_disk_replay(sim, daemon, &err) != 0) {
        sim_fail(sim, "S10: the journal cannot be replayed: %s", err.text);
        return;
    }
    ct_service_restored(daemon->service, daemon->epoch);
    if (sim_disk_begin(sim, daemon) != 0) { /* a full disk: it tries again */
        end(sim, index);
        sim_schedule(sim, sim->now + 500, EV_START, index, 0);
        return;
    }
    sim_trace(sim, "daemon %u starts, epoch %" PRIu64, index, daemon->epoch);
    sim->coverage.restarts++;
    oracle_daemon_restored(sim, daemon);
    sim_schedule(sim, sim->now + sim->poll_ms, EV_POLL, index, 0);
    after(sim, daemon);
}

void sim_daemon_crash(struct sim *sim, uint32_t index)
{
    if (!sim->processes[index].alive)
        return;
    sim_trace(sim, "daemon %u dies", index);
    end(sim, index);
    bool elsewhere = sim->scenario == NULL && !sim->processes[1 - index].alive &&
                     rng_chance(&sim->fault_rng, 250);
    uint64_t wait = 100 + ct_rng_below(&sim->fault_rng, 4000);
    sim_schedule(sim, sim->now + wait, EV_START, elsewhere ? 1 - index : index, 0);
}

/* As server_uv.c: the timer fires, the loop reads, and then comes the tick. */
void sim_daemon_timer(struct sim *sim, uint32_t index)
{
    sim_schedule(sim, sim->now, EV_TICK, index, 0);
}

void sim_daemon_tick(struct sim *sim, uint32_t index)
{
    struct sim_daemon *daemon = &sim->daemons[index];
    ct_service_tick(daemon->service, sim_local_ms(sim, index));
    after(sim, daemon);
}

/* One that writes nothing would never find out. */
void sim_daemon_poll(struct sim *sim, uint32_t index)
{
    if (!sim_disk_is_newest(sim, &sim->daemons[index]))
        fenced(sim, index);
    else
        sim_schedule(sim, sim->now + sim->poll_ms, EV_POLL, index, 0);
}

/* ---- connections ---- */

void sim_daemon_opened(struct sim *sim, struct conn *conn)
{
    if (conn->daemon >= SIM_DAEMONS) {
        sim_host_opened(sim, conn);
        return;
    }
    conn->link = ct_service_open(sim->daemons[conn->daemon].service, conn);
    CT_ASSERT(conn->link != 0);
}

void sim_daemon_message(struct sim *sim, struct conn *conn, const struct ct_message *message)
{
    struct sim_daemon *daemon = &sim->daemons[conn->daemon];
    uint64_t before = 0;
    if (conn->daemon >= SIM_DAEMONS) {
        sim_host_message(sim, conn, message);
        return;
    }
    if (conn->link == 0 || conn->closing)
        return;
    if (message->type < CT_COUNT(sim->coverage.messages))
        sim->coverage.messages[message->type]++;
    if (message->type != CT_MSG_HEARTBEAT || sim->voice == VOICE_ALL) {
        struct ct_buf line;
        ct_buf_init(&line, 0);
        message_print(message, &line);
        sim_log(sim, "%s > %s", sim->nodes[conn->node].host, ct_buf_str(&line));
        ct_buf_deinit(&line);
    }
    bool is_void = oracle_is_void(sim, conn, message, &before);
    ct_service_message(daemon->service, sim_local_ms(sim, daemon->index), conn->link, message);
    if (is_void && !daemon->dying)
        oracle_was_void(sim, conn, message, before);
    after(sim, daemon);
}

void sim_daemon_closed(struct sim *sim, struct conn *conn, bool silent)
{
    struct sim_daemon *daemon = &sim->daemons[conn->daemon];
    if (conn->daemon >= SIM_DAEMONS) {
        sim_host_closed(sim, conn, silent);
        return;
    }
    if (conn->link == 0)
        return;
    ct_service_closed(daemon->service, sim_local_ms(sim, daemon->index), conn->link, silent);
    after(sim, daemon);
}

void sim_order(struct sim *sim, uint8_t verb, uint32_t node)
{
    struct sim_daemon *daemon = sim_newest_daemon(sim);
    if (sim->embedded) {
        sim_host_order(sim, verb, node);
        return;
    }
    sim->operator_answer = CT_EUNAVAILABLE;
    if (daemon == NULL || sim->processes[daemon->index].paused_until > sim->now)
        return;
    const struct ct_message hello = {
        .type = CT_MSG_HELLO,
        .hello = {.protocol = CT_WIRE_PROTOCOL, .job = "sim", .host = "desk", .role = "admin"}};
    const struct ct_message order = {
        .type = CT_MSG_ADMIN,
        .admin = {
            .verb = verb, .host = sim->nodes[node].host, .author = "operator@desk", .reason = ""}};
    uint64_t now = sim_local_ms(sim, daemon->index);
    if (verb == CT_ADMIN_UNCORDON) /* it may count, whatever the answer */
        sim->oracle.cordoned &= ~(1u << node);
    uint64_t link = ct_service_open(daemon->service, &sim->operator);
    ct_service_message(daemon->service, now, link, &hello);
    ct_service_message(daemon->service, now, link, &order);
    ct_service_closed(daemon->service, now, link, false);
    if (sim->operator_answer == 0 && verb == CT_ADMIN_CORDON) {
        sim->oracle.cordoned |= 1u << node;
        sim->oracle.cordoned_generation[node] = ct_rdzv_generation(sim_job(daemon));
    }
    after(sim, daemon);
}

/* One that leads the record which the oracle follows comes before others. */
static int rank_of(const struct sim *sim, uint32_t process)
{
    return process >= SIM_DAEMONS &&
           sim->hosts[process - SIM_DAEMONS].record == sim->agreement.record;
}

struct sim_daemon *sim_newest_daemon(struct sim *sim)
{
    struct sim_daemon *newest = NULL;
    for (uint32_t i = 0; i < SIM_PROCESSES; i++)
        if (sim->processes[i].alive && sim->daemons[i].service != NULL &&
            (newest == NULL || rank_of(sim, i) > rank_of(sim, newest->index) ||
             (rank_of(sim, i) == rank_of(sim, newest->index) &&
              sim->daemons[i].epoch > newest->epoch)))
            newest = &sim->daemons[i];
    return newest;
}

const struct ct_rdzv *sim_job(const struct sim_daemon *daemon)
{
    return daemon != NULL && daemon->service != NULL ? rdzv_job(daemon->service, 0) : NULL;
}
