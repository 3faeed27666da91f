/* Who holds the record of a job: a leader chooses them among the nodes that offer, tells its
 * members, and tells the place where the job's nodes were told to meet. */
#include "rendezvous/holder/holder_state.h"

#include "rendezvous/replica/voters.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

enum {
    CHOICE = 64,     /* nodes that are considered, voters first */
    AWAY_LEASES = 2, /* until a voter whose node is not here gives way to another, and AWAY_MS more,
                      * for nodes to find a new leader */
};

/* ---- who they are --------------------------------------------------------------------------- */

/* In which order nodes try them: the leader, others, who led before, this one. */
static int order_of(const struct ct_holder *holder, uint64_t id)
{
    if (id == holder->id)
        return 3;
    if (id == ct_replica_leader(holder->replica))
        return 0;
    return id == holder->led_by ? 2 : 1;
}

void holder_list_voters(const struct ct_holder *holder, struct ct_holder_voters *ret_voters)
{
    struct ct_replica_server one;

    *ret_voters = (struct ct_holder_voters){.era = ct_replica_era(holder->replica)};
    for (int order = 0; order <= 3; order++)
        for (size_t i = 0; ct_replica_server(holder->replica, i, &one); i++)
            if (order_of(holder, one.id) == order)
                ret_voters->list[ret_voters->count++] = one;
    if (ret_voters->count == 0)
        *ret_voters = holder->known;
    ret_voters->epoch = holder->service != NULL ? holder->told.epoch : 0;
    ret_voters->generation = 0;
}

void holder_send_voters(const struct ct_holder *holder, const struct ct_holder_voters *voters,
                        const struct ct_holder_conn *conn)
{
    struct ct_wire_replica_server list[CT_REPLICA_SERVERS];
    const struct ct_message message = {.type = CT_MSG_VOTERS,
                                       .voters = {.epoch = voters->epoch,
                                                  .era = voters->era,
                                                  .generation = voters->generation,
                                                  .servers = {list, voters->count}}};

    for (uint32_t i = 0; i < voters->count; i++)
        list[i] = (struct ct_wire_replica_server){.id = voters->list[i].id,
                                                  .address = voters->list[i].address};
    if (conn != NULL)
        holder->io.send(holder->io.context, conn->peer, &message);
    else
        holder->io.send_endpoint(holder->io.context, &message);
}

bool holder_is_dead(const struct ct_holder *holder, uint64_t id)
{
    for (size_t i = 0; i < holder->dead_count; i++)
        if (holder->dead[i] == id)
            return true;
    return false;
}

struct ct_holder_voter *holder_voter_of(struct ct_holder *holder, uint64_t id)
{
    for (size_t i = 0; i < holder->voter_count; i++)
        if (holder->voters[i].id == id)
            return &holder->voters[i];
    return NULL;
}

void holder_set_offers(struct ct_holder *holder, struct ct_holder_conn *conn, bool offers)
{
    struct ct_holder_voter *voter = holder_voter_of(holder, conn->id);

    if (voter != NULL && conn->offers != offers) {
        voter->offers += offers ? 1u : UINT32_MAX;
        voter->awaited = voter->awaited && !offers;
        voter->seen_ms = holder->now_ms;
    }
    conn->offers = offers;
}

static uint32_t count_offers(const struct ct_holder *holder, uint64_t id)
{
    uint32_t count = 0;

    for (const struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next)
        count += conn->offers && conn->id == id;
    return count;
}

/* Those that are new were heard and seen just now. */
static void note_voters(struct ct_holder *holder, const struct ct_holder_voters *voters)
{
    struct ct_holder_voter list[CT_REPLICA_SERVERS] = {0};
    size_t count = 0;

    for (uint32_t i = 0; i < voters->count; i++) {
        const struct ct_holder_voter *known = holder_voter_of(holder, voters->list[i].id);

        if (voters->list[i].id == holder->id)
            continue;
        if (known != NULL)
            list[count] = *known;
        else
            list[count] =
                (struct ct_holder_voter){.id = voters->list[i].id,
                                         .heard_ms = holder->now_ms,
                                         .seen_ms = holder->now_ms,
                                         .offers = count_offers(holder, voters->list[i].id)};
        count++;
    }
    memcpy(holder->voters, list, count * sizeof *list);
    holder->voter_count = count;
}

/* ---- the endpoint that the nodes were told -------------------------------------------------- */

/* A holder of a record with a round that nobody leads. */
static bool is_unled(const struct ct_holder *holder)
{
    return holder->service == NULL && ct_replica_leader(holder->replica) == 0 && !holder->removed &&
           holder_votes(holder) && holder_has_round(holder) && !ct_holder_is_orphan(holder);
}

void holder_tell_endpoint(struct ct_holder *holder)
{
    struct ct_holder_voters voters;

    if (holder->service != NULL) {
        holder->told.generation = holder->endpoint_generation = ct_holder_generation(holder);
        holder_send_voters(holder, &holder->told, NULL);
        return;
    }
    holder_list_voters(holder, &voters);
    voters.generation = holder_recorded_generation(holder);
    holder_send_voters(holder, &voters, NULL);
}

/* A ctrun that is started again at the endpoint knows of no job, and founds one: it must hear
 * of this one before its first round. It is told anew of each round. */
static void watch_endpoint(struct ct_holder *holder)
{
    if (holder->service == NULL && !is_unled(holder)) {
        holder_leave_endpoint(holder);
        return;
    }
    if (holder->endpoint == CT_HOLDER_THERE && holder->service != NULL &&
        holder->endpoint_generation != ct_holder_generation(holder))
        holder_tell_endpoint(holder);
    if (holder->endpoint != CT_HOLDER_AWAY || holder->at_endpoint)
        return;
    if (holder->io.dial_endpoint(holder->io.context))
        holder->endpoint = CT_HOLDER_DIALS;
}

void holder_leave_endpoint(struct ct_holder *holder)
{
    if (holder->endpoint != CT_HOLDER_AWAY)
        holder->io.leave_endpoint(holder->io.context);
    holder->endpoint = CT_HOLDER_AWAY;
}

/* ---- the choice ----------------------------------------------------------------------------- */

struct choice {
    struct ct_replica_node nodes[CHOICE];
    char hosts[CHOICE][CT_REPLICA_ADDRESS_BYTES];
    const char *addresses[CHOICE];
    size_t count;
};

/* A node at `address`, whose part before the port stands for its host. */
static void consider(struct choice *choice, uint64_t id, const char *address, bool votes, bool gone)
{
    size_t at = choice->count++;
    char *host = choice->hosts[at];
    char *colon;

    (void)ct_str_copy(host, CT_REPLICA_ADDRESS_BYTES, address);
    colon = strrchr(host, ':');
    if (colon != NULL)
        *colon = '\0';
    choice->addresses[at] = address;
    choice->nodes[at] =
        (struct ct_replica_node){.id = id, .host = host, .votes = votes, .gone = gone};
}

/* Neither its node nor its replica was here for longer than the replica counts on its vote
 * (ct_replica_known_within). */
static bool is_gone(struct ct_holder *holder, uint64_t id)
{
    const struct ct_holder_voter *voter = holder_voter_of(holder, id);
    uint64_t away_ms = AWAY_LEASES * (uint64_t)holder->lease_ms + CT_HOLDER_AWAY_MS;

    /* Of two, the other one would go on with what it holds if this one died. */
    if (voter != NULL && holder->voter_count == 1 && !holder_is_dead(holder, id))
        return false;
    return holder_is_dead(holder, id) ||
           (voter != NULL && voter->offers == 0 &&
            holder->now_ms - CT_MAX(voter->seen_ms, voter->heard_ms) >= away_ms);
}

static bool was_left(const struct ct_holder *holder, uint64_t id)
{
    for (size_t i = 0; i < holder->left_count; i++)
        if (holder->left[i] == id)
            return true;
    return false;
}

/* Is there one that may not have heard that this host went on alone? When this one dies, that one
 * goes on with what it holds, if it heard of this one within a lease (go_on_in_minority); and so
 * would another one that was added meanwhile. */
static bool awaits_left(struct ct_holder *holder)
{
    bool awaits = false;

    if (holder->now_ms >= holder->left_ms + holder->lease_ms + holder->lease_ms / 4)
        return false;
    for (size_t i = 0; i < holder->left_count; i++)
        awaits = awaits || (holder->left[i] != holder->id &&
                            holder_voter_of(holder, holder->left[i]) == NULL &&
                            !holder_is_dead(holder, holder->left[i]));
    return awaits;
}

/* The voters, then those nodes that offer, in the order in which they came. */
static void list_choice(struct ct_holder *holder, const struct ct_holder_voters *voters,
                        struct choice *choice)
{
    const struct ct_holder_conn *conn;
    bool awaits = awaits_left(holder);

    choice->count = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        consider(choice, voters->list[i].id, voters->list[i].address, true,
                 is_gone(holder, voters->list[i].id));
    for (conn = holder->oldest; conn != NULL && choice->count < CHOICE; conn = conn->prev)
        if (conn->offers && conn->add_ms <= holder->now_ms && conn->id != holder->id &&
            holder_voter_of(holder, conn->id) == NULL && (!awaits || was_left(holder, conn->id)))
            consider(choice, conn->id, conn->address, false, holder_is_dead(holder, conn->id));
}

/* As many vote as ever do, and none is gone: whoever else offers changes nothing. */
static bool is_settled(struct ct_holder *holder, const struct ct_holder_voters *voters)
{
    bool settled = voters->count == CT_REPLICA_VOTERS;

    for (uint32_t i = 0; settled && i < voters->count; i++)
        settled = voters->list[i].id == holder->id || !is_gone(holder, voters->list[i].id);
    return settled;
}

static void change_voters(struct ct_holder *holder, const struct ct_holder_voters *voters)
{
    struct choice choice;
    size_t index;
    int rc = CT_EINUSE;

    if (holder->changes || is_settled(holder, voters))
        return;
    list_choice(holder, voters, &choice);
    switch (ct_replica_next_change(choice.nodes, choice.count, holder->id, &index)) {
    case CT_REPLICA_ADD:
        holder->adds = choice.nodes[index].id;
        rc = ct_replica_add(holder->replica, holder->now_ms, holder->adds, choice.addresses[index]);
        break;
    case CT_REPLICA_REMOVE:
        holder->adds = 0;
        rc = ct_replica_remove(holder->replica, holder->now_ms, choice.nodes[index].id);
        break;
    case CT_REPLICA_KEEP:
        break;
    }
    holder->changes = rc == 0;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool differ(const struct ct_holder_voters *a, const struct ct_holder_voters *b)
{
    bool same = a->count == b->count && a->era == b->era && a->epoch == b->epoch;

    for (uint32_t i = 0; same && i < a->count; i++)
        same = a->list[i].id == b->list[i].id;
    return !same;
}

void holder_tell_member(struct ct_holder *holder, struct ct_holder_conn *conn)
{
    conn->told_ms = holder->now_ms;
    holder_send_voters(holder, &holder->told, conn);
}

static void send_to_members(struct ct_holder *holder, struct ct_holder_voters *voters)
{
    /* Only who is told an epoch offers to hold the record. */
    voters->epoch = holder->peers != NULL ? 0 : holder_epoch(holder);
    if (!differ(voters, &holder->told))
        return;
    voters->generation = ct_holder_generation(holder);
    holder->told = *voters;
    for (struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next)
        if (conn->link != 0 && ct_service_has_joined(holder->service, conn->link))
            holder_tell_member(holder, conn);
    if (holder->endpoint == CT_HOLDER_THERE)
        holder_tell_endpoint(holder);
}

static void want_living(const struct ct_holder *holder, const struct ct_holder_voters *voters)
{
    struct ct_replica_server living[CT_REPLICA_SERVERS];
    size_t count = 0;

    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->list[i].id != holder->id && !holder_is_dead(holder, voters->list[i].id))
            living[count++] = voters->list[i];
    holder->io.want(holder->io.context, living, count);
}

/* Somebody leads the record since, or its epoch was raised: those who know less may give way. */
static void tell_others(struct ct_holder *holder)
{
    bool is_led = holder->service != NULL || ct_replica_is_led(holder->replica);
    uint64_t epoch = holder_epoch(holder);

    if (is_led == holder->met_led && epoch == holder->met_epoch)
        return;
    holder->met_led = is_led;
    holder->met_epoch = epoch;
    if (is_led)
        holder_tell_those_who_know_less(holder);
}

void holder_update_voters(struct ct_holder *holder)
{
    struct ct_holder_voters voters;

    holder_list_voters(holder, &voters);
    note_voters(holder, &voters);
    want_living(holder, &voters);
    if (holder->peers != NULL)
        holder_report_peers(holder);
    else if (holder->tellers > 0)
        tell_others(holder);
    if (holder->service != NULL)
        send_to_members(holder, &voters);
    if (holder->service != NULL && holder->peers == NULL)
        change_voters(holder, &voters);
    if (holder->peers == NULL)
        watch_endpoint(holder);
}
