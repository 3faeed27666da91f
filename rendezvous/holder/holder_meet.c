/* Two records of one job. Where the job's nodes meet, the host there hears of each, for who leads
 * one and is not there tells it (watch_endpoint); the record that knows less gives way:
 *
 *      which     the one of the lower generation; of two that are equal, of the lower epoch
 *      how       who leads it follows the other, and its nodes go there
 *
 * Before a new leader is elected, nobody leads a record. Its holders tell of it too, where the
 * nodes meet: a founder waits with its first round, as long as it does for nodes that were in one;
 * where nobody is elected by then, those that are left have no majority.
 *
 * A node obeys no epoch below one that it has obeyed. So the record that stays raises its epoch
 * above that of the other before anybody gives way to it, and keeps that as a part of the record:
 * also where the other one has had no round, for nodes may have joined it. Only such a one that
 * nobody leads gives way at once. */
#include "rendezvous/holder/holder_state.h"

#include "base/assert.h"

/* What is known of a record. */
struct standing {
    uint64_t generation; /* the newest round; 0: none */
    uint64_t epoch;      /* of who leads it */
    uint64_t era;
};

static struct standing standing_of(const struct ct_msg_voters *voters)
{
    return (struct standing){voters->generation, voters->epoch, voters->era};
}

/* Of the record that is held here, or followed. */
static struct standing standing_here(const struct ct_holder *holder)
{
    uint64_t epoch = holder_epoch(holder), era = ct_replica_era(holder->replica);

    if (holder->service != NULL)
        return (struct standing){ct_holder_generation(holder), epoch, era};
    return (struct standing){
        .generation = CT_MAX(holder->follows_generation, holder_recorded_generation(holder)),
        .epoch = CT_MAX(holder->followed, epoch),
        .era = era,
    };
}

static bool knows_more(const struct standing *a, const struct standing *b)
{
    if (a->generation != b->generation)
        return a->generation > b->generation;
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->era > b->era;
}

/* Words of a record that this host has left, or of one begun after it, may still be under way. */
static bool is_newer(const struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    return voters->era != ct_replica_era(holder->replica) &&
           voters->epoch > CT_MAX(holder->followed, holder_epoch(holder));
}

/* ---- giving way ----------------------------------------------------------------------------- */

/* The holder that leads the record which is held here, or followed; NULL: it is not connected. */
static const struct ct_holder_conn *leader_here(const struct ct_holder *holder, uint64_t era)
{
    for (const struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next)
        if (conn->era == era)
            return conn;
    return NULL;
}

/* Who waits for a leader of a record without a round would as well be led by another one. */
static bool gives_way(const struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    const struct standing here = standing_here(holder), other = standing_of(voters);
    bool is_unled = holder->service == NULL && ct_replica_leader(holder->replica) == 0 &&
                    leader_here(holder, here.era) == NULL;

    if (other.era == here.era || voters->servers.count == 0)
        return false;
    if (is_unled && here.generation == 0)
        return true;
    return knows_more(&other, &here) && is_newer(holder, voters);
}

/* Its node may be a member of a job that was founded beside the one whose record it holds: others
 * count on what it holds. */
bool holder_may_follow(const struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    bool is_needed = holder_votes(holder) && holder_has_round(holder);

    return gives_way(holder, voters) || (!is_needed && is_newer(holder, voters));
}

/* This host joins the record that lives. */
static void give_way(struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    holder_log(holder, CT_LOG_INFO, "job %s lives: its rendezvous is at %s, this host joins it",
               holder->limits.only_job, voters->servers.data[voters->servers.count - 1].address);
    (void)holder_follow(holder, voters);
}

/* ---- telling the others --------------------------------------------------------------------- */

/* Another record gives way to this one when this one's epoch is above `epoch`: who leads sees to
 * that. */
static void ask_to_raise(struct ct_holder *holder, const struct ct_holder_conn *leader,
                         const struct ct_holder_conn *other)
{
    const struct ct_holder_voters voters = {
        .generation = other->generation, .epoch = other->epoch, .era = other->era};

    if (holder->service != NULL)
        holder_raise(holder, other->epoch);
    else if (leader != NULL)
        holder_send_voters(holder, &voters, leader);
}

/* Tell `conn` of the record that is held here, or followed. */
static void tell(const struct ct_holder *holder, const struct standing *here,
                 const struct ct_holder_conn *conn)
{
    struct ct_holder_voters voters;

    holder_list_voters(holder, &voters);
    voters.epoch = here->epoch;
    voters.generation = here->generation;
    holder_send_voters(holder, &voters, conn);
}

void holder_tell_those_who_know_less(struct ct_holder *holder)
{
    const struct standing here = standing_here(holder);
    const struct ct_holder_conn *leader;
    bool is_led;

    if (holder->tellers == 0 || here.generation == 0 || ct_holder_is_orphan(holder))
        return;
    leader = leader_here(holder, here.era);
    is_led = holder->service != NULL || leader != NULL || ct_replica_is_led(holder->replica);
    for (const struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next) {
        const struct standing other = {conn->generation, conn->epoch, conn->era};

        if (other.era == 0 || other.era == here.era || !knows_more(&here, &other))
            continue;
        if (here.epoch > other.epoch && (is_led || other.generation == 0))
            tell(holder, &here, conn);
        else if (is_led)
            ask_to_raise(holder, leader, conn);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

void holder_wait_for_unled(struct ct_holder *holder)
{
    const char *host = holder_host_of(holder, holder->waits_for);

    if (holder->waits_since_ms != 0 && holder->service != NULL)
        ct_service_note_elsewhere(holder->service, holder->waits_since_ms,
                                  host != NULL ? host : "of another holder");
}

void holder_receive_voters(struct ct_holder *holder, struct ct_holder_conn *conn,
                           const struct ct_msg_voters *voters)
{
    const struct standing other = standing_of(voters);
    struct standing here;

    if (holder->peers != NULL)
        return;
    if (voters->epoch == 0) {
        holder->waits_since_ms = holder->now_ms;
        holder->waits_for = conn->id;
        holder_wait_for_unled(holder);
        return;
    }
    holder->tellers = holder->tellers - (conn->era != 0) + (voters->era != 0);
    conn->era = other.era;
    conn->epoch = other.epoch;
    conn->generation = other.generation;
    if (other.era == ct_replica_era(holder->replica))
        holder_keep_known(holder, voters);
    here = standing_here(holder);
    if (gives_way(holder, voters))
        give_way(holder, voters);
    else if (other.era != here.era && other.generation > 0 && knows_more(&other, &here))
        tell(holder, &here, conn); /* it raises its epoch, and tells again */
    holder_tell_those_who_know_less(holder);
}

void holder_receive_of_endpoint(struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    const struct standing here = standing_here(holder), other = standing_of(voters);

    if (holder->service == NULL || other.era == here.era ||
        (other.generation == 0 && here.generation == 0))
        return;
    if (gives_way(holder, voters)) {
        give_way(holder, voters);
        holder_update_voters(holder);
    } else if (knows_more(&other, &here)) {
        holder_tell_endpoint(holder); /* it was told of an older epoch */
    } else if (other.epoch >= here.epoch) {
        holder_raise(holder, other.epoch);
    }
}
