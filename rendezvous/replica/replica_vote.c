/* Elections: who stands, who votes for whom, and who has won. */
#include "rendezvous/replica/replica_state.h"

#include "base/assert.h"

enum {
    STAND_MS = 60,   /* between two voters that stand for election after a death */
    STAND_AGAIN = 6, /* times that the wait is doubled */
};

void replica_voters(const struct ct_replica *replica, struct replica_servers *ret_servers)
{
    uint64_t since =
        replica_log_servers(&replica->log, replica_log_last(&replica->log), ret_servers);

    if (replica->left.count > 0 && replica_log_term(&replica->log, since) <= replica->left_term)
        *ret_servers = replica->left;
}

int ct_replica_reduce(struct ct_replica *replica, uint64_t now_ms, uint64_t era,
                      const uint64_t *ids, size_t count)
{
    struct replica_servers servers, left = {.count = 0};
    uint32_t place = 0;

    CT_ASSERT(!replica->io.keep); /* who votes on disk is fixed */
    replica_voters(replica, &servers);
    for (uint32_t i = 0; i < servers.count; i++)
        for (size_t k = 0; k < count; k++)
            if (servers.list[i].id == ids[k])
                left.list[left.count++] = servers.list[i];
    if (replica->role == REPLICA_LEADER || !replica_servers_have(&left, replica->id))
        return CT_EFENCED;
    while (left.list[place].id != replica->id)
        place++;
    replica->left = left;
    replica->left_term = replica->term;
    replica->era = era;
    replica->known_ms = 0; /* to a leader of it: another of `ids` may have led, and go on alone */
    replica->dead = 0;
    replica->stands = 0;
    replica->now_ms = now_ms;
    replica_follow(replica, replica->term + 1, 0); /* votes of the old era are none of this one */
    replica->campaign_ms = now_ms + (uint64_t)place * STAND_MS;
    return 0;
}

bool ct_replica_known_within(const struct ct_replica *replica, uint64_t now_ms, uint64_t ms)
{
    return replica->role == REPLICA_LEADER ||
           (replica->known_ms != 0 && now_ms - CT_MIN(now_ms, replica->known_ms) < ms);
}

static bool is_voter(const struct ct_replica *replica)
{
    struct replica_servers servers;

    replica_voters(replica, &servers);
    return replica_servers_have(&servers, replica->id);
}

static void count_vote(struct ct_replica *replica, uint64_t from);

/* Ask all voters. `pre`: whether they would elect this replica; only then its term grows, so that
 * one that was cut off for long disturbs nobody when it comes back (section 9.6). */
static void ask_for_votes(struct ct_replica *replica, bool pre)
{
    struct replica_servers servers;
    uint64_t last = replica_log_last(&replica->log);

    replica_voters(replica, &servers);
    replica->role = REPLICA_CANDIDATE;
    replica->leader = 0;
    replica->pre = pre;
    replica->vote_count = 0;
    replica->deadline_ms = replica_election_ms(replica);
    if (!pre) {
        replica->term++;
        replica->voted_for = replica->id;
        if (!replica_keep(replica)) {
            replica_follow(replica, replica->term, 0);
            return; /* its own vote would not count */
        }
    }
    for (uint32_t i = 0; i < servers.count; i++) {
        uint64_t id = servers.list[i].id;

        if (id != replica->id) {
            replica_send(
                replica, id, servers.list[i].address,
                &(struct ct_message){.type = CT_MSG_VOTE,
                                     .vote = {.term = replica->term + pre,
                                              .sender = replica_sender(replica, id),
                                              .last_index = last,
                                              .last_term = replica_log_term(&replica->log, last),
                                              .disrupt = replica->disrupt,
                                              .pre = pre}});
        }
    }
    count_vote(replica, replica->id);
}

static void count_vote(struct ct_replica *replica, uint64_t from)
{
    struct replica_servers servers;

    for (uint32_t i = 0; i < replica->vote_count; i++)
        if (replica->votes[i] == from)
            return; /* one vote each */
    replica_voters(replica, &servers);
    if (!replica_servers_have(&servers, from))
        return;
    replica->votes[replica->vote_count++] = from;
    if (2 * replica->vote_count <= servers.count)
        return;
    if (replica->pre)
        ask_for_votes(replica, false);
    else
        replica_lead_begin(replica);
}

void replica_stand(struct ct_replica *replica, bool disrupt)
{
    if (!is_voter(replica)) {
        replica->deadline_ms = replica_election_ms(replica);
        return;
    }
    replica->disrupt = disrupt;
    ask_for_votes(replica, !disrupt);
}

/* ---- votes ---- */

/* A leader with a majority, or a follower that hears of its leader, changes for nobody but those
 * who know better (section 4.2.3). */
static bool has_living_leader(const struct ct_replica *replica)
{
    return replica->role == REPLICA_LEADER ||
           (replica->role == REPLICA_FOLLOWER && replica->leader &&
            replica->leader != replica->dead &&
            replica->now_ms < replica->heard_ms + replica->election_ms);
}

/* The candidate's log has all that was ever committed as far as this replica can tell (section
 * 3.6.1). */
static bool is_up_to_date(const struct ct_replica *replica, const struct ct_msg_vote *vote)
{
    uint64_t last = replica_log_last(&replica->log);
    uint64_t term = replica_log_term(&replica->log, last);

    return vote->last_term > term || (vote->last_term == term && vote->last_index >= last);
}

/* A disk that holds nothing is a new one, whose replica may have forgotten what it confirmed: it
 * gives its vote to none that has a record, until a leader has sent it that. At the start all are
 * new. */
static bool may_have_forgotten(const struct ct_replica *replica, const struct ct_msg_vote *vote)
{
    return ct_replica_is_new(replica) && vote->last_index > 0;
}

void replica_receive_vote(struct ct_replica *replica, const struct ct_msg_vote *vote)
{
    bool granted = false;

    if (vote->disrupt || !has_living_leader(replica)) {
        if (!vote->pre && vote->term > replica->term)
            replica_follow(replica, vote->term, 0);
        granted = is_up_to_date(replica, vote) && !may_have_forgotten(replica, vote) &&
                  (vote->pre ? vote->term > replica->term
                             : vote->term == replica->term &&
                                   (!replica->voted_for || replica->voted_for == vote->sender.id));
    }
    if (granted && !vote->pre) {
        replica->voted_for = vote->sender.id;
        replica->deadline_ms = replica_election_ms(replica);
    }
    replica_send(replica, vote->sender.id, vote->sender.address,
                 &(struct ct_message){.type = CT_MSG_VOTED,
                                      .voted = {.term = granted ? vote->term : replica->term,
                                                .sender = replica_sender(replica, vote->sender.id),
                                                .granted = granted,
                                                .pre = vote->pre}});
}

void replica_receive_voted(struct ct_replica *replica, const struct ct_msg_voted *voted)
{
    /* The term of a vote that would be given is the candidate's next, no term of the voter. */
    if (voted->term > replica->term && !(voted->granted && voted->pre))
        replica_follow(replica, voted->term, 0); /* the next question is for a term above it */
    else if (voted->granted && replica->role == REPLICA_CANDIDATE &&
             replica->pre == (voted->pre != 0) && voted->term == replica->term + replica->pre)
        count_vote(replica, voted->sender.id);
}

void replica_receive_take_lead(struct ct_replica *replica, const struct ct_msg_take_lead *order)
{
    if (order->term == replica->term && replica->role == REPLICA_FOLLOWER &&
        replica->leader == order->sender.id)
        replica_stand(replica, true);
}

/* The leader is known to be dead: this replica stands at once, although others may have heard the
 * leader a moment ago; from the second time on it asks before, so that two of them do not raise
 * their terms for ever, and waits twice as long each time: answers may take longer than STAND_MS.
 */
void replica_stand_after_death(struct ct_replica *replica)
{
    uint64_t wait_ms;

    if (replica->leader && replica->leader != replica->dead) {
        replica->dead = 0;
        replica->campaign_ms = UINT64_MAX;
        return;
    }
    wait_ms = CT_MIN((uint64_t)STAND_MS << replica->stands, (uint64_t)replica->election_ms);
    replica->stands += replica->stands < STAND_AGAIN;
    replica->campaign_ms = replica->now_ms + wait_ms + ct_rng_below(&replica->rng, wait_ms);
    replica_stand(replica, replica->leader != 0);
}

void ct_replica_died(struct ct_replica *replica, uint64_t now_ms, uint64_t id)
{
    struct replica_servers servers;
    uint32_t place = 0;

    replica->now_ms = now_ms;
    replica->died[replica->died_count++ % REPLICA_DIED] = id;
    if (id == 0 || id == replica->id || replica->role != REPLICA_FOLLOWER || replica->leader != id)
        return;
    replica_voters(replica, &servers);
    for (uint32_t i = 0; i < servers.count && servers.list[i].id != replica->id; i++)
        place += servers.list[i].id != id;
    replica->dead = id;
    replica->stands = 0;
    replica->campaign_ms = now_ms + (uint64_t)place * STAND_MS; /* one after the other */
    if (place == 0)
        ct_replica_tick(replica, now_ms);
}
