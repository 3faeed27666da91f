/* The invariants of elastic.md 2.12, as far as the daemons can break them. The
 * names S1, S2, ... are those of the table in README.md. What is told counts,
 * whichever daemon told it; what a daemon that was taken over from thinks
 * counts as long as nobody hears of it. */
#include "sim.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "rdzv_check.h"
#include "rendezvous/core/core_state.h"

#include <inttypes.h>
#include <string.h>

static bool is_newest(const struct sim *sim, const struct sim_daemon *daemon)
{
    return sim->embedded ? agreement_is_newest(sim, daemon) : sim_disk_is_newest(sim, daemon);
}

/* ---- what a daemon says ---- */

static void check_epoch(struct sim *sim, const struct sim_daemon *daemon, uint64_t informed)
{
    if (informed != daemon->epoch && !sim->embedded)
        sim_fail(sim, "S3: a daemon of epoch %" PRIu64 " speaks as %" PRIu64, daemon->epoch,
                 informed);
}

/* What ended the round: the first cause that is told of in a step. */
static void note_reason(struct sim_daemon *daemon, unsigned cause)
{
    bool is_failure = cause == CT_RDZV_REASON_FAILURE || cause == CT_RDZV_REASON_LOST;
    daemon->failure_reported = daemon->failure_reported || (is_failure && !daemon->cause_reported);
    daemon->cause_reported = true;
}

void oracle_daemon_sends(struct sim *sim, struct sim_daemon *daemon,
                         const struct ct_message *message)
{
    struct oracle *o = &sim->oracle;
    uint64_t generation = 0;
    switch (message->type) {
    case CT_MSG_WELCOME:
        check_epoch(sim, daemon, message->welcome.epoch);
        break;
    case CT_MSG_HEARTBEAT_ACK:
        check_epoch(sim, daemon, message->heartbeat_ack.epoch);
        break;
    case CT_MSG_PREPARE:
        generation = message->prepare.generation;
        note_reason(daemon, message->prepare.cause);
        break;
    case CT_MSG_REVOKE:
        note_reason(daemon, message->revoke.cause);
        break;
    case CT_MSG_ROUND:
        check_epoch(sim, daemon, message->round.epoch);
        generation = o->committed = CT_MAX(o->committed, message->round.generation);
        break;
    case CT_MSG_CLOSE:
        o->close_reported_ms = o->close_reported ? o->close_reported_ms : sim->now;
        o->close_reported = true;
        break;
    case CT_MSG_PUBLISHED:
        if (message->published.code == 0 && message->published.step >= o->counted_step) {
            o->counted_generation = message->published.generation;
            o->counted_step = message->published.step;
        }
        break;
    default:
        break;
    }
    if (generation > 0 && o->close_reported && is_newest(sim, daemon)) {
        if (ct_rdzv_phase(sim_job(daemon)) == CT_RDZV_CLOSED)
            sim_fail(sim, "S12: round %" PRIu64 " is told after the end of the job", generation);
        sim->over = true; /* another job took the name */
    }
    o->generation = CT_MAX(o->generation, generation);
}

static bool is_cordoned(const struct ct_rdzv *job, const char *host)
{
    const struct ct_rdzv_cordon *cordon = NULL;
    for (size_t i = 0; (cordon = ct_rdzv_cordon(job, i)) != NULL; i++)
        if (cordon->by_operator && strcmp(cordon->host, host) == 0)
            return true;
    return false;
}

void oracle_keep_cordons(struct sim *sim, const struct ct_rdzv *job)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (job == NULL || !is_cordoned(job, sim->nodes[i].host))
            sim->oracle.cordoned &= ~(1u << i);
}

/* S10: what was told, by whichever daemon, is known to the one that begins now. */
void oracle_daemon_restored(struct sim *sim, struct sim_daemon *daemon)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv *job = sim_job(daemon);
    if (daemon->epoch <= o->epoch)
        sim_fail(sim, "S3: epoch %" PRIu64 " after %" PRIu64, daemon->epoch, o->epoch);
    o->epoch = daemon->epoch;
    if (job == NULL) {
        if (o->generation > 0 && !o->was_closed)
            sim_fail(sim, "S10: the job is forgotten after round %" PRIu64, o->generation);
        sim->over = o->was_closed;
        o->cordoned = 0;
        return;
    }
    if (ct_rdzv_generation(job) < o->generation)
        sim_fail(sim, "S10: generation %" PRIu64 " was told, %" PRIu64 " is known", o->generation,
                 ct_rdzv_generation(job));
    if (ct_rdzv_roster(job)->generation < o->committed)
        sim_fail(sim, "S10: round %" PRIu64 " was told, %" PRIu64 " is known", o->committed,
                 ct_rdzv_roster(job)->generation);
    if (ct_rdzv_published(job)->step < o->counted_step)
        sim_fail(sim, "S10: step %" PRIu64 " was published, step %" PRIu64 " is known",
                 o->counted_step, ct_rdzv_published(job)->step);
    for (uint32_t i = 0; i < sim->node_count; i++) {
        if ((o->cordoned >> i & 1u) == 0 || is_cordoned(job, sim->nodes[i].host))
            continue;
        if (o->cordoned_generation[i] > 0)
            sim_fail(sim, "S10: the cordon of %s is forgotten", sim->nodes[i].host);
        o->cordoned &= ~(1u << i); /* given before any record of the job: follows the first one */
    }
    if (o->close_reported && o->close_failed)
        sim->over = true; /* the end is told even when it cannot be kept */
    else if (o->close_reported && ct_rdzv_phase(job) != CT_RDZV_CLOSED)
        sim_fail(sim, "S12: the job was ended and lives again");
    daemon->phase = ct_rdzv_phase(job);
    daemon->phase_ms = sim_local_ms(sim, daemon->index);
    daemon->restarts = ct_rdzv_restarts(job); /* one that was not told yet may be forgotten */
    daemon->generation = ct_rdzv_generation(job);
}

/* ---- what a daemon does ---- */

/* The key by which nodes of a first round are ordered: Slurm's number if there
 * is one, then the host name, which here is the node's number. */
static uint64_t first_key(const struct sim *sim, const struct ct_rdzv_place *place)
{
    uint64_t index = place->id.high - 1;
    int32_t slurm = sim->nodes[index].options.slurm_node;
    return (slurm >= 0 ? (uint64_t)slurm : SIM_NODES) << 32 | index;
}

/* S11: survivors keep their order, and their ranks when the places did not
 * change; nodes of a first round are in the order of their keys. */
static void check_order(struct sim *sim, const struct ct_rdzv_roster *roster)
{
    const struct oracle *o = &sim->oracle;
    uint32_t after = 0;
    bool same_shape = roster->count == o->order_count;
    for (uint32_t i = 0; same_shape && i < roster->count; i++)
        same_shape = roster->places[i].slots == o->order_slots[i];
    for (uint32_t i = 1;
         o->order_count == 0 && o->cut_generation != SIM_ROUNDS && i < roster->count; i++)
        if (first_key(sim, &roster->places[i]) < first_key(sim, &roster->places[i - 1]))
            sim_fail(sim, "S11: %s comes before %s", roster->places[i - 1].host,
                     roster->places[i].host);
    for (uint32_t i = 0; i < roster->count; i++) {
        for (uint32_t k = 0; k < o->order_count; k++) {
            if (!ct_id_equal(roster->places[i].id, o->order[k]))
                continue;
            if (k < after)
                sim_fail(sim, "S11: %s fell behind another survivor", roster->places[i].host);
            sim->oracle.past[roster->generation].overlaps = true;
            /* In a world that must divide the batch a base that comes new may push others. */
            if (same_shape && i != k && sim->params.world_divides == 0)
                sim_fail(sim, "S11: %s moved from place %u to %u of an equal world",
                         roster->places[i].host, k, i);
            after = k + 1;
        }
    }
}

/* S16: who comes new into a round is not of a host that an operator kept out before it was made. */
static void check_cordons(struct sim *sim, const struct ct_rdzv_roster *roster)
{
    const struct oracle *o = &sim->oracle;
    for (uint32_t i = 0; i < roster->count; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < o->order_count; k++)
            is_new = is_new && !ct_id_equal(roster->places[i].id, o->order[k]);
        uint64_t node = roster->places[i].id.high - 1;
        if (is_new && (o->cordoned >> node & 1u) != 0 &&
            roster->generation > o->cordoned_generation[node])
            sim_fail(sim, "S16: %s is cordoned, and in round %" PRIu64, roster->places[i].host,
                     roster->generation);
    }
}

/* What the node of that incarnation promised last; NULL: it is no member. */
static const struct ct_rdzv_member *member_of(const struct ct_rdzv *job, struct ct_id id)
{
    for (size_t i = 0; i < ct_rdzv_capacity(job); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        if (member->state != CT_RDZV_FREE && ct_id_equal(member->id, id))
            return member;
    }
    return NULL;
}

/* Does somebody of the round before promise that it took part in no step of it? Who lost its
 * workers cannot tell; and of a round that an earlier daemon committed, the promises are gone. */
static bool reports_idle(const struct sim *sim, const struct ct_rdzv *job)
{
    const struct oracle *o = &sim->oracle;
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    if (job->store_lost)
        return false;
    for (uint32_t i = 0; i < roster->count; i++) {
        const struct ct_rdzv_member *member = member_of(job, roster->places[i].id);
        for (uint32_t k = 0; member != NULL && k < o->order_count; k++)
            if (ct_id_equal(member->id, o->order[k]) && member->acted < o->order_generation)
                return true;
    }
    return false;
}

static void note_order(struct sim *sim, const struct ct_rdzv *job)
{
    struct oracle *o = &sim->oracle;
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    CT_ASSERT(roster->count <= CT_COUNT(o->order));
    bool was_idle = o->order_generation > o->step_generation;
    if (!o->past[roster->generation].overlaps || (was_idle && !reports_idle(sim, job)))
        o->cut_generation = roster->generation;
    o->order_count = roster->count;
    o->order_generation = roster->generation;
    o->restarts = ct_rdzv_restarts(job);
    for (uint32_t i = 0; i < roster->count; i++) {
        o->order[i] = roster->places[i].id;
        o->order_slots[i] = roster->places[i].slots;
    }
}

/* Nobody is left out while its connection is open and it is heard in time, the daemon's own stalls
 * not counted (S9: who is not in a new roster has expired or was released). */
static void check_losses(struct sim *sim, struct sim_daemon *daemon, const struct ct_rdzv *job)
{
    uint64_t now = sim_local_ms(sim, daemon->index);
    uint64_t stalled = sim->processes[daemon->index].stalled_ms;
    for (size_t i = 0; i < ct_rdzv_capacity(job) && i < SIM_MEMBERS; i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        bool was = daemon->was_member[i];
        if (!was || member->received_ms != daemon->received_ms[i]) {
            daemon->received_ms[i] = member->received_ms;
            daemon->received_stalled_ms[i] = stalled;
        }
        daemon->was_member[i] = member->state != CT_RDZV_FREE;
        if (!was || member->state != CT_RDZV_FREE || member->leaving || member->link == 0)
            continue;
        uint64_t silent = now - member->received_ms;
        bool was_slow =
            daemon->phase == CT_RDZV_PREPARE && now - daemon->phase_ms >= sim->params.prepare_ms;
        /* Its own stalls cost nobody his lease (nine tenths: clocks differ); of what is shorter
         * than the time between two of its looks, in all, it cannot know. */
        uint64_t own = (stalled - daemon->received_stalled_ms[i]) * 9 / 10;
        if (own < ct_rdzv_heartbeat_ms(&sim->params) / 2)
            own = 0;
        if (silent >= sim->params.lease_ms + own || was_slow ||
            ct_rdzv_phase(job) == CT_RDZV_CLOSED)
            continue;
        sim_fail(sim,
                 "S9: %s is left out, heard %" PRIu64 " ms ago, of which %" PRIu64
                 " ms are the daemon's own stall",
                 member->host, silent, own);
    }
}

static bool acts(enum ct_rdzv_phase phase)
{
    return phase == CT_RDZV_RUNNING || phase == CT_RDZV_RECOVER;
}

/* Who wanted to leave, or was sent away, and is lost before it could costs nothing. */
static bool lost_a_leaver(const struct sim_daemon *daemon, const struct ct_rdzv *job)
{
    for (size_t i = 0; i < ct_rdzv_capacity(job) && i < SIM_MEMBERS; i++)
        if (daemon->was_member[i] && ct_rdzv_member(job, i)->state == CT_RDZV_FREE &&
            ct_rdzv_member(job, i)->leaving)
            return true;
    return false;
}

/* S12: an incident, from a failure to the next round, costs one restart: not
 * two, and not none. */
static void check_budget(struct sim *sim, const struct sim_daemon *daemon,
                         const struct ct_rdzv *job)
{
    const struct oracle *o = &sim->oracle;
    uint32_t restarts = ct_rdzv_restarts(job);
    bool is_broken_off =
        acts(daemon->phase) && !acts(ct_rdzv_phase(job)) && ct_rdzv_phase(job) < CT_RDZV_CLOSING;
    if (restarts < daemon->restarts || restarts > sim->params.max_restarts)
        sim_fail(sim, "S12: %u restarts after %u, %u are allowed", restarts, daemon->restarts,
                 sim->params.max_restarts);
    if (!is_newest(sim, daemon) || oracle_has_forgotten(sim))
        return;
    /* The step that begins a round may bring the next incident, which nobody
     * could see before. */
    uint32_t incidents = ct_rdzv_roster(job)->generation > o->order_generation ? 2 : 1;
    if (restarts > o->restarts + incidents)
        sim_fail(sim, "S12: %u restarts, %u at the last round: one failure counts twice", restarts,
                 o->restarts);
    if (is_broken_off && daemon->failure_reported && restarts == daemon->restarts &&
        !lost_a_leaver(daemon, job))
        sim_fail(sim, "S12: a failure ended round %" PRIu64 " and was not counted",
                 ct_rdzv_roster(job)->generation);
}

/* S17: a round runs when all hold its base. */
static void check_recovered(struct sim *sim, const struct sim_daemon *daemon,
                            const struct ct_rdzv *job)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    bool begins = daemon->phase != CT_RDZV_RUNNING && ct_rdzv_phase(job) == CT_RDZV_RUNNING;
    for (uint32_t i = 0; begins && i < roster->count; i++) {
        const struct sim_node *node = &sim->nodes[roster->places[i].id.high - 1];
        if (node->incarnations == roster->places[i].id.low &&
            node->recovered_max < roster->generation)
            sim_fail(sim, "S17: g%" PRIu64 " runs, and %s does not hold its base",
                     roster->generation, node->host);
    }
}

/* The member that was asked to stop its workers so long ago that it must have been given up: not by
 * a daemon that was away, hears nobody, or whose disk does not take its records; one that waited
 * for a step boundary asks anew. NULL: none. */
static const struct ct_rdzv_member *find_overdue(const struct sim *sim, struct sim_daemon *daemon,
                                                 const struct ct_rdzv *job, uint64_t now)
{
    uint64_t limit = 3 * (uint64_t)sim->params.prepare_ms + sim->params.lease_ms;
    bool was_away = now > daemon->step_ms + sim->params.lease_ms / 2;
    daemon->step_ms = now;
    if (ct_rdzv_is_isolated(job) || job->pending != 0 || was_away)
        daemon->isolated_ms = now;
    for (size_t i = 0; ct_rdzv_phase(job) == CT_RDZV_PREPARE && i < ct_rdzv_capacity(job); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        uint64_t since = CT_MAX(member->prepare_sent_ms, daemon->isolated_ms);
        if (member->state == CT_RDZV_PREPARING && now > since + limit)
            return member;
    }
    return NULL;
}

/* S18: a node that does not stop its workers is given up. A daemon that wakes up after a pause has
 * a second for that, and some steps. */
static void check_prepared(struct sim *sim, struct sim_daemon *daemon, const struct ct_rdzv *job)
{
    enum { STEPS = 50, SPAN_MS = 1000 };
    uint64_t now = sim_local_ms(sim, daemon->index);
    const struct ct_rdzv_member *member = find_overdue(sim, daemon, job, now);
    if (member == NULL || !is_newest(sim, daemon))
        daemon->overdue_steps = 0;
    else if (daemon->overdue_steps++ == 0)
        daemon->overdue_ms = now;
    if (daemon->overdue_steps > STEPS && now > daemon->overdue_ms + SPAN_MS)
        sim_fail(sim, "S18: %s was asked to stop %" PRIu64 " ms ago, and is waited for",
                 member->host, now - member->prepare_sent_ms);
}

void oracle_daemon_step(struct sim *sim, struct sim_daemon *daemon)
{
    struct oracle *o = &sim->oracle;
    struct ct_error err = {0};
    const struct ct_rdzv *job = sim_job(daemon);
    if (sim->embedded && sim->hosts[daemon->index - SIM_DAEMONS].record != sim->agreement.record)
        return; /* founded beside the one that lives: it must do nothing */
    bool was_closed = daemon->phase == CT_RDZV_CLOSED;
    if (job == NULL && o->generation == 0)
        o->cordoned = 0; /* no round ran: nothing of the job is worth keeping */
    if (job == NULL || (was_closed && ct_rdzv_phase(job) != CT_RDZV_CLOSED)) {
        sim->over = sim->over || (was_closed && is_newest(sim, daemon));
        return;
    }
    if (rdzv_check(job, &err) != 0)
        sim_fail(sim, "%s", err.text);
    if (ct_rdzv_generation(job) < daemon->generation)
        sim_fail(sim, "S3: generation %" PRIu64 " after %" PRIu64, ct_rdzv_generation(job),
                 daemon->generation);
    CT_ASSERT(ct_rdzv_generation(job) < SIM_ROUNDS);
    check_budget(sim, daemon, job);
    if (ct_rdzv_published(job)->generation > 0 && is_newest(sim, daemon))
        oracle_published(sim, ct_rdzv_published(job));
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job);
    if (roster->generation > o->order_generation) {
        check_order(sim, roster);
        check_cordons(sim, roster);
        note_order(sim, job);
        sim->coverage.rounds++;
    }
    check_losses(sim, daemon, job);
    check_prepared(sim, daemon, job);
    check_recovered(sim, daemon, job);
    enum ct_rdzv_phase phase = ct_rdzv_phase(job);
    if (daemon->phase != phase)
        daemon->phase_ms = sim_local_ms(sim, daemon->index);
    daemon->phase = phase;
    daemon->generation = ct_rdzv_generation(job);
    daemon->restarts = ct_rdzv_restarts(job);
    daemon->failure_reported = daemon->cause_reported = false;
    if (is_newest(sim, daemon))
        o->was_closed = phase == CT_RDZV_CLOSED;
}

/* ---- S13: old, repeated and orphaned messages change nothing ---- */

static uint64_t seq_of(const struct ct_message *message)
{
    switch (message->type) {
    case CT_MSG_JOIN:
        return message->join.seq;
    case CT_MSG_HEARTBEAT:
        return message->heartbeat.seq;
    case CT_MSG_PREPARED:
        return message->prepared.seq;
    case CT_MSG_FAILURE:
        return message->failure.seq;
    case CT_MSG_DONE:
        return message->done.seq;
    case CT_MSG_LEAVE:
        return message->leave.seq;
    case CT_MSG_PUBLISH:
        return message->publish.seq;
    default:
        return 0; /* carries none */
    }
}

/* The member that may speak on the connection; for a JOIN the one that it
 * names. */
static const struct ct_rdzv_member *speaker(const struct ct_rdzv *job, const struct conn *conn,
                                            const struct ct_message *message)
{
    for (size_t i = 0; i < ct_rdzv_capacity(job); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job, i);
        if (member->state != CT_RDZV_FREE &&
            (message->type == CT_MSG_JOIN ? ct_id_equal(member->id, message->join.incarnation)
                                          : member->link == conn->link))
            return member;
    }
    return NULL;
}

static uint64_t sum_up(const struct ct_rdzv *job)
{
    const uint64_t head[] = {
        ct_rdzv_generation(job),
        ct_rdzv_phase(job),
        ct_rdzv_restarts(job),
        ct_rdzv_roster(job)->generation,
        ct_rdzv_published(job)->generation,
        ct_rdzv_published(job)->step,
    };
    uint64_t hash = ct_hash64(head, sizeof(head), 1);
    for (size_t i = 0; i < ct_rdzv_capacity(job); i++) {
        const struct ct_rdzv_member *m = ct_rdzv_member(job, i);
        const uint64_t row[] = {
            m->state, m->id.high, m->id.low, m->link, m->seq,    m->received_ms,
            m->acted, m->lineage, m->step,   m->port, m->digest, m->leaving,
        };
        hash = ct_hash64(row, sizeof(row), hash);
    }
    for (uint32_t i = 0; i < ct_rdzv_roster(job)->count; i++)
        hash = hash * 3 + ct_rdzv_roster(job)->places[i].done +
               2 * ct_rdzv_roster(job)->places[i].recovered;
    return hash;
}

static bool reports_nothing(const struct ct_rdzv *job, const struct conn *conn,
                            const struct ct_message *message)
{
    const struct ct_rdzv_member *member = speaker(job, conn, message);
    return member != NULL ? seq_of(message) <= member->seq : message->type != CT_MSG_JOIN;
}

bool oracle_is_void(struct sim *sim, const struct conn *conn, const struct ct_message *message,
                    uint64_t *ret_before)
{
    struct sim_daemon *daemon = &sim->daemons[conn->daemon];
    const struct ct_rdzv *job = sim_job(daemon);
    if (job == NULL || seq_of(message) == 0)
        return false;
    if (!reports_nothing(job, conn, message))
        return false;
    if (sim->embedded) /* time alone may */
        ct_holder_tick(&sim->hosts[conn->daemon - SIM_DAEMONS].holder,
                       sim_local_ms(sim, daemon->index));
    else
        ct_service_tick(daemon->service, sim_local_ms(sim, daemon->index));
    if (sim->embedded)
        daemon->service = sim->hosts[conn->daemon - SIM_DAEMONS].holder.service;
    job = sim_job(daemon);
    if (job == NULL || !reports_nothing(job, conn, message))
        return false;
    *ret_before = sum_up(job);
    return true;
}

void oracle_was_void(struct sim *sim, const struct conn *conn, const struct ct_message *message,
                     uint64_t before)
{
    const struct ct_rdzv *job = sim_job(&sim->daemons[conn->daemon]);
    if (job != NULL && sum_up(job) != before)
        sim_fail(sim, "S13: %s of %s is old or nobody's, and changes the job",
                 ct_wire_name(message->type), sim->nodes[conn->node].host);
}
