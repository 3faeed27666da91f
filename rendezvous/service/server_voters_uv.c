/* Who holds the record of a job: a leader chooses them among the nodes that offer, tells its
 * members, and tells the place where the job's nodes were told to meet. */
#include "rendezvous/service/server_state_uv.h"

#include "rendezvous/replica/voters.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

enum {
    CHOICE = 64,             /* nodes that are considered, voters first */
    AWAY_LEASES = 2,         /* until a voter whose node is not here gives way to another ... */
    AWAY_MS = 5000,          /* ... and as much more, for nodes to find a new leader */
    ENDPOINT_RETRY_MS = 100, /* a ctrun that starts there is told soon enough */
};

/* ---- who they are --------------------------------------------------------------------------- */

/* In which order nodes try them: the leader, others, who led before, this one. */
static int order_of(const struct ct_server_replica *of, uint64_t id)
{
    if (id == of->id)
        return 3;
    if (id == ct_replica_leader(of->replica))
        return 0;
    return id == of->led_by ? 2 : 1;
}

void ct_server_list_voters(const struct ct_server_replica *of, struct ct_server_voters *ret_voters)
{
    const struct ct_rdzv_server *server = of->server;
    struct ct_replica_server one;

    *ret_voters = (struct ct_server_voters){.era = ct_replica_era(of->replica)};
    for (int order = 0; order <= 3; order++)
        for (size_t i = 0; ct_replica_server(of->replica, i, &one); i++)
            if (order_of(of, one.id) == order)
                ret_voters->list[ret_voters->count++] = one;
    if (ret_voters->count == 0)
        *ret_voters = of->known;
    ret_voters->epoch = server->service != NULL ? of->told.epoch : 0;
}

void ct_server_send_voters(const struct ct_server_voters *voters, struct ct_conn *conn)
{
    struct ct_wire_replica_server list[CT_REPLICA_SERVERS];

    for (uint32_t i = 0; i < voters->count; i++)
        list[i] = (struct ct_wire_replica_server){.id = voters->list[i].id,
                                                  .address = voters->list[i].address};
    (void)ct_conn_send(conn,
                       &(struct ct_message){.type = CT_MSG_VOTERS,
                                            .voters = {.epoch = voters->epoch,
                                                       .era = voters->era,
                                                       .servers = {list, voters->count}}},
                       NULL);
}

bool ct_server_is_dead(const struct ct_server_replica *of, uint64_t id)
{
    for (size_t i = 0; i < of->dead_count; i++)
        if (of->dead[i] == id)
            return true;
    return false;
}

struct ct_server_voter *ct_server_voter_of(struct ct_server_replica *of, uint64_t id)
{
    for (size_t i = 0; i < of->voter_count; i++)
        if (of->voters[i].id == id)
            return &of->voters[i];
    return NULL;
}

/* Those that are new were heard and seen just now. */
static void note_voters(struct ct_server_replica *of, const struct ct_server_voters *voters)
{
    uint64_t now_ms = ct_server_now_ms(of->server);
    struct ct_server_voter list[CT_REPLICA_SERVERS] = {0};
    size_t count = 0;

    for (uint32_t i = 0; i < voters->count; i++) {
        const struct ct_server_voter *known = ct_server_voter_of(of, voters->list[i].id);

        if (voters->list[i].id == of->id)
            continue;
        list[count] = (struct ct_server_voter){
            .id = voters->list[i].id, .heard_ms = now_ms, .seen_ms = now_ms};
        if (known != NULL)
            list[count] = *known;
        count++;
    }
    memcpy(of->voters, list, count * sizeof *list);
    of->voter_count = count;
}

/* ---- the endpoint that the nodes were told --------------------------------------------------- */

static void on_endpoint_open(struct ct_conn *conn)
{
    struct ct_server_replica *of = ct_conn_user(conn);

    if (of == NULL)
        return;
    const struct ct_message hello =
        ct_replica_hello(of->server->only_job, of->host, of->incarnation);
    (void)ct_conn_send(conn, &hello, NULL);
    ct_server_send_voters(&of->told, conn);
}

static void on_endpoint_message(struct ct_conn *conn, const struct ct_message *message)
{
    (void)conn;
    (void)message;
}

static void on_endpoint_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_server_replica *of = ct_conn_user(conn);

    (void)why;
    if (of != NULL)
        of->endpoint_conn = NULL; /* dialled again with the next heartbeat */
}

/* A ctrun that is started again at the endpoint knows of no job, and founds one: it must hear
 * of this one before its first round. */
static void watch_endpoint(struct ct_server_replica *of)
{
    static const struct ct_conn_callbacks callbacks = {.on_open = on_endpoint_open,
                                                       .on_message = on_endpoint_message,
                                                       .on_close = on_endpoint_close};
    struct ct_rdzv_server *server = of->server;
    struct ct_conn_options options = {
        .from = CT_FROM_SERVER | CT_FROM_REPLICA,
        .key = of->has_key ? &of->key : NULL,
        .job = server->only_job,
        .connect_ms = INT32_MAX,
        .retry_ms = ENDPOINT_RETRY_MS,
        .seed = of->id,
    };
    struct ct_endpoint endpoint;

    if (of->endpoint_conn != NULL || of->job_endpoint[0] == '\0' ||
        ct_service_generation(server->service) == 0 ||
        ct_endpoint_parse(of->job_endpoint, -1, &endpoint, NULL) != 0)
        return;
    if (ct_conn_connect(server->loop, &endpoint, &options, &callbacks, of, &of->endpoint_conn,
                        NULL) != 0)
        of->endpoint_conn = NULL;
}

void ct_server_leave_endpoint(struct ct_server_replica *of)
{
    struct ct_conn *conn = of->endpoint_conn;

    of->endpoint_conn = NULL;
    if (conn == NULL)
        return;
    ct_conn_set_user(conn, NULL);
    ct_conn_close(conn, 0, NULL);
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

static bool is_gone(struct ct_server_replica *of, uint64_t id)
{
    const struct ct_server_voter *voter = ct_server_voter_of(of, id);
    uint64_t away_ms = AWAY_LEASES * (uint64_t)of->lease_ms + AWAY_MS;

    return ct_server_is_dead(of, id) ||
           (voter != NULL && ct_server_now_ms(of->server) - voter->seen_ms >= away_ms);
}

/* The voters, then those nodes that offer, in the order in which they came. */
static void list_choice(struct ct_server_replica *of, const struct ct_server_voters *voters,
                        struct choice *choice)
{
    const struct ct_server_peer *peer = of->server->peers;

    choice->count = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        consider(choice, voters->list[i].id, voters->list[i].address, true,
                 is_gone(of, voters->list[i].id));
    while (peer != NULL && peer->next != NULL)
        peer = peer->next;
    for (; peer != NULL && choice->count < CHOICE; peer = peer->prev)
        if (peer->offers && peer->id != of->id && ct_server_voter_of(of, peer->id) == NULL)
            consider(choice, peer->id, peer->address, false, ct_server_is_dead(of, peer->id));
}

static void change_voters(struct ct_server_replica *of, const struct ct_server_voters *voters)
{
    uint64_t now_ms = ct_server_now_ms(of->server);
    struct choice choice;
    size_t index;
    int rc = CT_EINUSE;

    if (of->changes)
        return;
    list_choice(of, voters, &choice);
    switch (ct_replica_next_change(choice.nodes, choice.count, of->id, &index)) {
    case CT_REPLICA_ADD:
        of->adds = choice.nodes[index].id;
        rc = ct_replica_add(of->replica, now_ms, of->adds, choice.addresses[index]);
        break;
    case CT_REPLICA_REMOVE:
        of->adds = 0;
        rc = ct_replica_remove(of->replica, now_ms, choice.nodes[index].id);
        break;
    case CT_REPLICA_KEEP:
        break;
    }
    of->changes = rc == 0;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool differ(const struct ct_server_voters *a, const struct ct_server_voters *b)
{
    bool same = a->count == b->count && a->era == b->era && a->epoch == b->epoch;

    for (uint32_t i = 0; same && i < a->count; i++)
        same = a->list[i].id == b->list[i].id;
    return !same;
}

static void send_to_members(struct ct_server_replica *of, struct ct_server_voters *voters)
{
    struct ct_rdzv_server *server = of->server;

    voters->epoch = ct_server_epoch(of);
    if (!differ(voters, &of->told))
        return;
    of->told = *voters;
    for (const struct ct_server_peer *peer = server->peers; peer != NULL; peer = peer->next)
        if (peer->link != 0 && ct_service_has_joined(server->service, peer->link))
            ct_server_send_voters(&of->told, peer->conn);
    if (of->endpoint_conn != NULL)
        ct_server_send_voters(&of->told, of->endpoint_conn);
}

void ct_server_update_voters(struct ct_server_replica *of)
{
    struct ct_rdzv_server *server = of->server;
    struct ct_replica_server living[CT_REPLICA_SERVERS];
    struct ct_server_voters voters;
    size_t count = 0;

    ct_server_list_voters(of, &voters);
    note_voters(of, &voters);
    for (uint32_t i = 0; i < voters.count; i++)
        if (voters.list[i].id != of->id && !ct_server_is_dead(of, voters.list[i].id))
            living[count++] = voters.list[i];
    ct_replica_links_want(of->links, living, count);
    if (server->service == NULL) {
        ct_server_leave_endpoint(of);
        return;
    }
    for (const struct ct_server_peer *peer = server->peers; peer != NULL; peer = peer->next) {
        struct ct_server_voter *voter = peer->offers ? ct_server_voter_of(of, peer->id) : NULL;

        if (voter != NULL)
            voter->seen_ms = ct_server_now_ms(server);
    }
    send_to_members(of, &voters);
    change_voters(of, &voters);
    watch_endpoint(of);
}
