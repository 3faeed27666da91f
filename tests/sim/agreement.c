/* What the holders of a job's record agree on, checked after each of their events. The names R1,
 * R2, ... are those of the table in README.md.
 *
 *      era --> record: founded (a new one), or founded anew by one of its holders (the same)
 *      record --> entries that were ever committed, by index
 *
 * A record is lost when so many of its holders are dead that none of them may lead. What is founded
 * then at the job's endpoint is another job; while it lives, it must be the only one. */
#include "sim.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/number/hash.h"
#include "rdzv_check.h"
#include "rendezvous/holder/holder_state.h"
#include "rendezvous/replica/replica_state.h"
#include "rendezvous/service/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CALM_MS = 2000 }; /* without a fault, until who leads has told a new founder */

static struct record *record_of(struct sim *sim, const struct sim_host *host)
{
    return &sim->agreement.records[host->record];
}

static uint64_t id_of(const struct sim_host *host)
{
    return ct_id_fold(host->sim->nodes[host->index].options.id);
}

void agreement_disturb(struct sim *sim)
{
    sim->agreement.disturbed_ms = sim->now;
}

void agreement_free(struct sim *sim)
{
    for (uint32_t i = 0; i <= sim->agreement.record_count; i++)
        free(sim->agreement.records[i].list);
}

/* ---- records and their eras ---- */

static uint32_t find_era(const struct agreement *a, uint64_t era)
{
    for (uint32_t i = 0; i < a->era_count; i++)
        if (a->eras[i] == era)
            return a->era_record[i];
    return 0;
}

static void add_era(struct agreement *a, uint64_t era, uint32_t record)
{
    CT_ASSERT(a->era_count < SIM_ERAS);
    a->eras[a->era_count] = era;
    a->era_record[a->era_count++] = record;
}

/* Does any node remember a round of the record that was lost? */
static bool is_remembered(const struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_NODES; i++)
        if (sim->processes[sim_process(i)].alive && sim->nodes[i].member.received > 0)
            return true;
    return false;
}

/* What a record that was lost, in part or as a whole, takes with it (core/rebuild.c): who was in
 * the last round, what was published, cordons, restarts. Generations go on. */
static void forget_part(struct sim *sim)
{
    struct oracle *o = &sim->oracle;
    o->order_count = o->restarts = o->cordoned = 0;
    o->order_generation = 0;
    o->cut_generation = SIM_ROUNDS;
    o->stable = 0;
    if (o->step_generation !=
        sim->training.generation) /* else its workers have not been told yet */
        o->step_generation = 0;
    o->published = (struct ct_rdzv_publication){0};
    o->counted_generation = o->counted_step = 0;
    o->has_digest = false;
}

/* From now on two jobs of the name have rounds. */
static void divide(struct sim *sim)
{
    sim->coverage.second++;
    sim->divided = true;
}

/* The oracle follows another record: of a new job of the name, or of the same job, rebuilt from
 * what its nodes say. A new job beside nodes of the old one ends the run. */
static void follow_record(struct sim *sim, uint32_t record, uint64_t generation)
{
    struct oracle *o = &sim->oracle;
    bool is_known = o->generation > 0 && is_remembered(sim);
    bool is_told = o->generation > 0;
    bool is_rebuilt = is_known && generation > sim->agreement.rosters;
    if (sim->over)
        return;
    bool has_rounds =
        generation > 1 || (generation == 0 && sim->agreement.records[record].reserved > 0);
    if (has_rounds && record < sim->agreement.record) { /* an older job has come back */
        divide(sim);
        return;
    }
    sim->agreement.record = record;
    if ((is_known && !is_rebuilt) || o->close_reported) {
        sim->coverage.ended++;
        sim->over = true;
        return;
    }
    o->epoch = o->generation = o->committed = 0;
    sim->coverage.lost += is_known || is_told;
    sim->coverage.rebuilt += is_rebuilt;
    if (is_rebuilt) {
        forget_part(sim);
        return;
    }
    sim->agreement.rosters = 0;
    const struct oracle kept = {
        .wall_reads = o->wall_reads, .starts = o->starts, .breaks = o->breaks};
    *o = kept;
    sim->training = (struct training){0};
}

/* It has been at work for a while, not only between two pauses. */
static bool is_awake(const struct sim *sim, uint32_t node)
{
    return sim->now > sim->processes[sim_process(node)].paused_until + CALM_MS;
}

static bool reach(const struct sim *sim, uint32_t one, uint32_t other)
{
    return is_awake(sim, one) && is_awake(sim, other) && sim->severed[one][other] == 0 &&
           sim->severed[other][one] == 0;
}

/* Does it lead the record that lives, or hold it while nobody leads, for a while? */
static bool may_tell(const struct sim *sim, const struct sim_host *host, bool is_first)
{
    if (!host->holds || host->record != sim->agreement.record)
        return false;
    if (host->serves)
        return sim->now > host->led_ms + CALM_MS;
    return is_first && host->unled_ms > 0 && sim->now > host->unled_ms + CALM_MS &&
           sim->now <
               host->unled_ms + sim->params.lease_ms; /* it is waited for as long, and more */
}

/* Does somebody who may tell of the record that lives reach the endpoint, and the founder of
 * another, too? `is_first`: that one's round is, which is not made of what nodes told. */
static bool is_reached(const struct sim *sim, const struct sim_host *founder, bool is_first)
{
    const struct sim_host *there = &sim->hosts[0];
    bool is_there = sim->processes[sim_process(0)].alive && there->holds &&
                    sim->now > there->started_ms + CALM_MS && reach(sim, founder->index, 0);
    for (uint32_t i = 0; is_there && i < SIM_NODES; i++)
        if (sim->processes[sim_process(i)].alive && may_tell(sim, &sim->hosts[i], is_first) &&
            reach(sim, i, 0))
            return true;
    return false;
}

/* R7: it begins no first round while nodes ask that were in a round of the job, which they remember
 * (a lease is less than it waits for). */
static void check_asked(struct sim *sim, const struct sim_host *host, uint64_t generation)
{
    if (generation == 1 && host->asked_ms > 0 &&
        sim->now < host->asked_ms + sim->params.lease_ms * 9 / 10)
        sim_fail(sim,
                 "R7: n%u makes the first round, %" PRIu64 " ms after a node came that was in one",
                 host->index, sim->now - host->asked_ms);
}

/* Another job begins under the name while the first one lives: where somebody could have told it
 * so, it must not. */
static void founds_second(struct sim *sim, const struct sim_host *host, uint64_t generation)
{
    const struct agreement *a = &sim->agreement;
    if (sim->over || sim->divided)
        return;
    uint64_t calm_since = CT_MAX(a->disturbed_ms, host->started_ms);
    bool is_younger = host->record > a->record; /* else an older job has come back */
    if (is_younger && sim->storms == 0 && sim->now > calm_since + CALM_MS &&
        sim->oracle.generation > 0 && !host->ordered && is_reached(sim, host, generation == 1))
        sim_fail(sim,
                 "R5: n%u makes round %" PRIu64 " of a record that it founded, and the one with "
                 "round %" PRIu64 " lives",
                 host->index, generation, sim->oracle.generation);
    divide(sim);
}

/* ---- R6: who may found anew ---- */

/* All others are dead; of two, it was elected last; no majority lives, and it led, or all that live
 * go on together; an operator says so, who is right; or nothing was told yet. */
static void check_anew(struct sim *sim, const struct sim_host *host)
{
    const struct ct_replica *replica = host->holder.replica;
    const struct record *record = record_of(sim, host);
    size_t living = 0, left = 0;
    for (size_t i = 0; i < host->other_count; i++) {
        bool is_alive = agreement_holder_with(sim, host->others[i]) != NULL;
        living += is_alive;
        left += is_alive && replica->left.count > 0 &&
                replica_servers_have(&replica->left, host->others[i]);
    }
    bool led = host->other_count == 1 && record->last_leader == id_of(host);
    bool is_minority = 2 * (living + 1) <= host->other_count + 1;
    if (living > 0 && !led && record->reserved > 0 && !host->ordered &&
        !(is_minority && (host->serves || left == living)))
        sim_fail(sim, "R6: n%u founds the record anew, %zu of the %zu others that held it live",
                 host->index, living, host->other_count);
    sim->coverage.anew++;
}

static uint64_t hash_of(const struct replica_entry *entry)
{
    return ct_hash64(entry->data, entry->size, entry->type);
}

static struct agreed *entry_at(struct record *record, uint64_t index)
{
    if (index >= record->room) {
        size_t room = CT_MAX(2 * record->room, (size_t)index + 64);
        record->list = realloc(record->list, room * sizeof(*record->list));
        CT_ASSERT(record->list != NULL);
        memset(record->list + record->room, 0, (room - record->room) * sizeof(*record->list));
        record->room = room;
    }
    return &record->list[index];
}

/* What the map says of the job. */
static void read_map(struct record *record, const struct ct_replica *replica)
{
    struct ct_bytes value;
    const char *key;
    for (size_t i = 0; ct_replica_entry(replica, i, &key, &value); i++) {
        struct ct_record content;
        struct ct_arena arena;
        ct_arena_init(&arena, 4 << 20);
        CT_ASSERT(ct_record_read(value.data, value.size, &arena, &content, NULL) == 0);
        if (content.kind == CT_RECORD_RESERVE)
            record->reserved = CT_MAX(record->reserved, content.generation);
        else if (content.kind == CT_RECORD_COMMIT)
            record->committed = CT_MAX(record->committed, content.roster.generation);
        else if (content.kind == CT_RECORD_MANIFEST)
            record->published_step = CT_MAX(record->published_step, content.published.step);
        else if (content.kind == CT_RECORD_CLOSE)
            record->closed = true;
        ct_arena_deinit(&arena);
    }
}

/* The entries that it holds are the record from now on. */
static void read_anew(struct sim *sim, struct sim_host *host)
{
    struct record *record = record_of(sim, host);
    for (size_t i = 0; i < record->room; i++)
        record->list[i].known = false;
    record->last = record->reserved = record->committed = record->published_step = 0;
    record->closed = false;
    host->committed = host->holder.replica->log.base_index;
    while (host->committed < host->holder.replica->committed) {
        const struct replica_entry *entry =
            replica_log_at(&host->holder.replica->log, ++host->committed);
        *entry_at(record, host->committed) =
            (struct agreed){.term = entry->term, .hash = hash_of(entry), .known = true};
        record->last = host->committed;
    }
    read_map(record, host->holder.replica);
}

/* The holder has another replica, or its replica another era. */
static void note_era(struct sim *sim, struct sim_host *host)
{
    struct agreement *a = &sim->agreement;
    const struct ct_replica *replica = host->holder.replica;
    bool is_same = host->replica == replica;
    uint32_t record = find_era(a, ct_replica_era(replica));
    if (is_same)
        check_anew(sim, host);
    /* Who is left with an empty record begins a new one: others may go on with the old one, or have
     * begun it anew with what nodes knew. */
    if (is_same && !holder_has_round(&host->holder))
        is_same = false;
    if (record == 0 && is_same) {
        record = host->record;
        add_era(a, ct_replica_era(replica), record);
    } else if (record == 0) {
        CT_ASSERT(a->record_count + 1 < SIM_ERAS);
        record = ++a->record_count;
        add_era(a, ct_replica_era(replica), record);
    }
    if (!is_same)
        host->committed = 0;
    host->voters_as_of = UINT64_MAX;
    host->serves = host->serves && is_same;
    host->replica = replica;
    host->era = ct_replica_era(replica);
    host->record = record;
    if ((host->era >> 32) >= (a->records[record].newest_era >> 32))
        a->records[record].newest_era = host->era;
    if (a->record == 0)
        a->record = record;
    else if (record != a->record && host->holder.service != NULL &&
             !agreement_lives(sim, a->record) &&
             (sim->oracle.generation == 0 || !is_remembered(sim)))
        follow_record(sim, record, 0);
}

static void note_voters(struct sim_host *host)
{
    struct replica_servers servers;
    uint64_t last = replica_log_last(&host->holder.replica->log);
    uint64_t as_of = last << 16 | (replica_log_term(&host->holder.replica->log, last) & 0xffff);
    if (as_of == host->voters_as_of)
        return;
    host->voters_as_of = as_of;
    replica_voters(host->holder.replica, &servers);
    host->other_count = 0;
    for (uint32_t i = 0; i < servers.count; i++)
        if (servers.list[i].id != id_of(host))
            host->others[host->other_count++] = servers.list[i].id;
}

/* ---- R2: what is committed ---- */

static bool holds(const struct sim_host *host, uint64_t index, uint64_t term)
{
    const struct replica_log *log = &host->holder.replica->log;
    return index <= log->base_index ||
           (index <= replica_log_last(log) && replica_log_term(log, index) == term);
}

/* Those that died since may have held it, and those that gave up a record without a round for one
 * that lives. */
static uint32_t count_holders(struct sim *sim, const struct sim_host *host, uint64_t index,
                              uint64_t term, const struct replica_servers *servers)
{
    bool is_empty = record_of(sim, host)->reserved == 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++) {
        const struct sim_host *other = agreement_holder_with(sim, servers->list[i].id);
        bool is_there = other != NULL && other->record == host->record;
        count += other == NULL || (is_there ? holds(other, index, term) : is_empty);
    }
    return count;
}

/* Who votes may have changed since, in the same event. */
static void check_majority(struct sim *sim, const struct sim_host *host, uint64_t index,
                           uint64_t term)
{
    struct replica_servers now, then;
    replica_voters(host->holder.replica, &now);
    (void)replica_log_servers(&host->holder.replica->log, index, &then);
    uint32_t count = count_holders(sim, host, index, term, &now);
    if (2 * count <= now.count && 2 * count_holders(sim, host, index, term, &then) <= then.count)
        sim_fail(sim, "R2: n%u commits entry %" PRIu64 ", %u of %u hold it", host->index, index,
                 count, now.count);
}

static void check_entry(struct sim *sim, const struct sim_host *host, uint64_t index)
{
    struct record *record = record_of(sim, host);
    const struct replica_entry *entry = replica_log_at(&host->holder.replica->log, index);
    struct agreed *agreed = entry_at(record, index);
    uint64_t hash = hash_of(entry);
    if (agreed->known && (agreed->term != entry->term || agreed->hash != hash))
        sim_fail(sim, "R2: entry %" PRIu64 " of n%u is another one than was committed", index,
                 host->index);
    if (agreed->known)
        return;
    check_majority(sim, host, index, entry->term);
    *agreed = (struct agreed){.term = entry->term, .hash = hash, .known = true};
    record->last = CT_MAX(record->last, index);
}

static void check_commits(struct sim *sim, struct sim_host *host)
{
    const struct ct_replica *replica = host->holder.replica;
    struct record *record = record_of(sim, host);
    uint64_t last = record->last;
    if (replica->committed <= host->committed)
        return;
    for (uint64_t i = CT_MAX(host->committed, replica->log.base_index) + 1; i <= replica->committed;
         i++)
        check_entry(sim, host, i);
    host->committed = replica->committed;
    if (record->last > last)
        read_map(record, replica);
}

/* ---- R1, R3: who leads ---- */

static void check_leader(struct sim *sim, struct sim_host *host)
{
    struct agreement *a = &sim->agreement;
    const struct ct_replica *replica = host->holder.replica;
    struct record *record = record_of(sim, host);
    for (uint32_t i = 0; i < a->leader_count; i++)
        if (a->leaders[i].era == host->era && a->leaders[i].term == replica->term &&
            a->leaders[i].id != id_of(host))
            sim_fail(sim, "R1: n%u leads in term %" PRIu64 ", as another did", host->index,
                     replica->term);
    CT_ASSERT(a->leader_count < SIM_TERMS);
    a->leaders[a->leader_count].era = host->era;
    a->leaders[a->leader_count].term = replica->term;
    a->leaders[a->leader_count++].id = id_of(host);
    for (uint64_t i = replica->log.base_index + 1; i <= record->last; i++)
        if (entry_at(record, i)->known && entry_at(record, i)->term < replica->term &&
            !holds(host, i, entry_at(record, i)->term))
            sim_fail(sim, "R3: n%u leads without entry %" PRIu64 ", which was committed",
                     host->index, i);
    host->led_ms = sim->now;
    sim->coverage.leads++;
    agreement_disturb(sim);
}

/* It leads with what a minority held: what only the dead knew is lost. */
static void lose_part(struct sim *sim, struct sim_host *host)
{
    struct oracle *o = &sim->oracle;
    const struct record *record = record_of(sim, host);
    const struct ct_rdzv *job = rdzv_job(host->holder.service, 0);
    sim->coverage.partial++;
    if (o->close_reported && !record->closed)
        sim->over = true;
    oracle_keep_cordons(sim, job);
    if (job != NULL && record->published_step < o->published.step)
        o->published = *ct_rdzv_published(job); /* the newer one was told to nobody, or below */
    if (record->reserved >= o->generation && record->committed >= o->committed &&
        record->published_step >= o->counted_step)
        return;
    sim->coverage.lossy++;
    /* At an operator's word it hears nodes for a while: where messages are lost, that may not be
     * long enough. */
    bool may_miss = host->ordered && sim->datagrams;
    uint64_t known = record->committed; /* rounds beyond, nobody lives who was in them */
    for (uint32_t i = 0; i < SIM_NODES; i++)
        if (sim->processes[sim_process(i)].alive && !may_miss)
            known = CT_MAX(known, CT_MAX(sim->nodes[i].member.acting, sim->nodes[i].member.over));
    for (uint64_t i = known + 1; i < SIM_ROUNDS; i++)
        o->past[i].roster = 0; /* nodes may hold states of it all the same */
    if (sim->training.generation > known)
        sim->training = (struct training){0};
    forget_part(sim);
    o->generation = record->reserved;
    o->committed = record->committed;
    o->order_generation = record->committed;
    if (job != NULL) {
        o->published = *ct_rdzv_published(job);
        o->counted_generation = o->published.generation;
        o->counted_step = o->published.step;
        o->restarts = ct_rdzv_restarts(job);
    }
}

static void begin_to_lead(struct sim *sim, struct sim_host *host)
{
    struct sim_daemon *daemon = &sim->daemons[sim_process(host->index)];
    uint64_t epoch = daemon->epoch;
    if (host->holder.partial && host->record == sim->agreement.record)
        lose_part(sim, host);
    if (sim->over)
        return;
    check_leader(sim, host);
    *daemon = (struct sim_daemon){.sim = sim,
                                  .index = daemon->index,
                                  .service = host->holder.service,
                                  .epoch = epoch,
                                  .tears = daemon->tears,
                                  .phase_ms = sim_local_ms(sim, daemon->index)};
    sim_trace(sim, "n%u leads, epoch %" PRIx64 ", record %u", host->index, epoch, host->record);
    /* One that begins late, when another has been elected already, can tell nothing. */
    if (host->record == sim->agreement.record && epoch > sim->oracle.epoch)
        oracle_daemon_restored(sim, daemon);
}

/* Also in the middle of an event, before something is told that it has brought. */
static void look(struct sim *sim, struct sim_host *host)
{
    const struct ct_replica *replica = host->holder.replica;
    if (host->replica != replica || host->era != ct_replica_era(replica))
        note_era(sim, host);
    note_voters(host);
    struct record *record = record_of(sim, host);
    if (host->holder.partial && replica->role == REPLICA_LEADER &&
        record->partial_era != host->era) {
        record->partial_era = host->era;
        if ((host->era >> 32) < (record->newest_era >> 32)) { /* others went on, unknown to it */
            divide(sim);
            return;
        }
        read_anew(sim, host);
    }
    check_commits(sim, host);
    if (replica->role == REPLICA_LEADER && replica->term > record->last_term) {
        record->last_term = replica->term;
        record->last_leader = id_of(host);
    }
}

void agreement_look(struct sim *sim, uint32_t index)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_daemon *daemon = &sim->daemons[sim_process(index)];
    bool serves = host->holder.service != NULL;
    look(sim, host);
    if (sim->over)
        return;
    if (serves)
        daemon->epoch = holder_epoch(&host->holder);
    if (serves && !host->serves) {
        begin_to_lead(sim, host);
        host->asked_ms = 0; /* a new service remembers no such node */
    }
    host->serves = serves;
    bool is_unled = !serves && ct_replica_leader(host->holder.replica) == 0 &&
                    holder_votes(&host->holder) && holder_has_round(&host->holder);
    host->unled_ms = !is_unled ? 0 : host->unled_ms > 0 ? host->unled_ms : sim->now;
    if (serves && host->record == sim->agreement.record)
        sim->oracle.epoch = CT_MAX(sim->oracle.epoch, daemon->epoch);
}

bool agreement_is_newest(const struct sim *sim, const struct sim_daemon *daemon)
{
    const struct sim_host *host = &sim->hosts[daemon->index - SIM_DAEMONS];
    return host->record == sim->agreement.record && daemon->epoch >= sim->oracle.epoch;
}

/* ---- R4: what is told ---- */

void agreement_sends(struct sim *sim, uint32_t index, const struct ct_message *message)
{
    struct sim_host *host = &sim->hosts[index];
    struct sim_daemon *daemon = &sim->daemons[sim_process(index)];
    uint64_t generation = message->type == CT_MSG_PREPARE ? message->prepare.generation
                          : message->type == CT_MSG_ROUND ? message->round.generation
                                                          : 0;
    if (message->type != CT_MSG_REFUSE && message->type != CT_MSG_VOTERS)
        look(sim, host);
    struct record *record = record_of(sim, host);
    check_asked(sim, host, message->type == CT_MSG_PREPARE ? generation : 0);
    if (sim->divided) {
        sim->over = sim->over || message->type == CT_MSG_CLOSE;
    } else if (host->record != sim->agreement.record) {
        if (generation > 0 && agreement_lives(sim, sim->agreement.record))
            founds_second(sim, host, generation);
        else if (generation > 0)
            follow_record(sim, host->record, generation);
        sim->over = sim->over || message->type == CT_MSG_CLOSE; /* another job's end */
        if (sim->over || generation == 0)
            return;
    }
    if (generation > record->reserved)
        sim_fail(sim, "R4: n%u tells round %" PRIu64 ", which is not on record", index, generation);
    if (message->type == CT_MSG_ROUND)
        sim->agreement.rosters = CT_MAX(sim->agreement.rosters, generation);
    if (message->type == CT_MSG_ROUND && generation > record->committed)
        sim_fail(sim, "R4: n%u tells the roster of round %" PRIu64 ", which is not on record",
                 index, generation);
    if (message->type == CT_MSG_PUBLISHED && message->published.code == 0 &&
        message->published.step > record->published_step)
        sim_fail(sim, "R4: n%u tells of step %" PRIu64 ", whose publication is not on record",
                 index, message->published.step);
    if (message->type == CT_MSG_CLOSE && record->reserved > 0 && !record->closed)
        sim_fail(sim, "R4: n%u tells the end of the job, which is not on record", index);
    if (!sim->divided)
        oracle_daemon_sends(sim, daemon, message);
}
