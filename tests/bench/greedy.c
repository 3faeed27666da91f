/* One user who takes all that a ctrund gives him, in bounded memory: for scripts/bench/shares.
 *
 * usage: greedy ENDPOINT KEY_FILE SOURCE CONNECTIONS SECONDS
 *
 * It keeps CONNECTIONS connections from the IPv4 address SOURCE, each in a role by its number, and
 * makes those anew that are refused or closed:
 *
 *   0, 1  a job: values of 1 MiB under new keys until there is no room, then they are read again
 *   2     a job: new keys of a byte until there is no room, then they wait for keys that never come
 *   3     a job: the smallest request that there is, 64 of them under way
 *   4     a job for 100,000 nodes that never comes together
 *   5     a job that is left before its first round: no connection has it any more
 *   6     an operator who asks for the status without end
 *   7     a handshake, again and again
 *
 * At the end it prints a line: connections made, refused, jobs that were welcomed, values and keys
 * stored, values and keys refused, requests answered. */
#include "base/assert.h"
#include "base/str.h"
#include "net/conn_uv.h"
#include "rendezvous/service/admin.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUE_BYTES = 1 << 20,
    VALUES_UNDER_WAY = 2,
    SMALL_UNDER_WAY = 64,
    QUEUED = 4 << 20,
    TURN_MS = 10,      /* in which ... */
    BEGUN_A_TURN = 20, /* ... so many connections are begun at most */
    LEASE_MS = 600 * 1000,
    ROLES = 8,
};

struct one {
    struct ct_conn *conn; /* NULL: it is to be begun again */
    unsigned number;
    struct ct_id id;
    uint64_t seq, generation, request;
    unsigned under_way, stored;
    bool full;
    char job[64];
};

static struct {
    uv_loop_t loop;
    uv_timer_t timer, end;
    struct ct_endpoint endpoint;
    struct ct_key key;
    struct ct_conn_options options;
    struct one *all;
    unsigned count, next;
    uint64_t serial;
    bool over;
    uint64_t made, refused, welcomed, stored, full, answered;
} greedy;

static unsigned char value[VALUE_BYTES];

static unsigned role_of(const struct one *one)
{
    return one->number % ROLES;
}

static void send_to(struct one *one, const struct ct_message *message)
{
    (void)ct_conn_send(one->conn, message, NULL);
}

/* ---- what a member asks of its store ---- */

static void ask_large(struct one *one, uint64_t request, const char *key)
{
    struct ct_message get = {
        .type = CT_MSG_STORE_GET,
        .store_get = {.request = request, .generation = one->generation, .key = key}};
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.request = request,
                                           .generation = one->generation,
                                           .key = key,
                                           .value = {value, sizeof value}}};

    send_to(one, one->full ? &get : &set);
}

static void ask_for_keys(struct one *one, uint64_t request, const char *key)
{
    struct ct_message wait = {
        .type = CT_MSG_STORE_WAIT,
        .store_wait = {
            .request = request, .generation = one->generation, .key = key, .timeout_ms = 1000}};
    struct ct_message set = {
        .type = CT_MSG_STORE_SET,
        .store_set = {
            .request = request, .generation = one->generation, .key = key, .value = {value, 1}}};

    send_to(one, one->full ? &wait : &set);
}

static void ask(struct one *one)
{
    char key[64];
    uint64_t request = ++one->request << 32;
    struct ct_message add = {
        .type = CT_MSG_STORE_ADD,
        .store_add = {.request = request, .generation = one->generation, .key = "n", .delta = 1}};

    one->under_way++;
    if (role_of(one) <= 1) {
        unsigned which = one->full ? (unsigned)one->request % CT_MAX(one->stored, 1u) : one->stored;
        (void)snprintf(key, sizeof key, "v%u", which);
        ask_large(one, request, key);
    } else if (role_of(one) == 2) {
        (void)snprintf(key, sizeof key, "k%" PRIu64, one->request);
        ask_for_keys(one, request, key);
    } else {
        send_to(one, &add);
    }
}

static void ask_on(struct one *one)
{
    unsigned most = role_of(one) <= 1 ? VALUES_UNDER_WAY : SMALL_UNDER_WAY;

    while (one->conn != NULL && one->under_way < most && ct_conn_queued(one->conn) < QUEUED &&
           !greedy.over)
        ask(one);
}

static void ask_status(struct one *one)
{
    const struct ct_message ask = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_STATUS, .host = "", .author = "greedy", .reason = ""}};

    send_to(one, &ask);
}

/* ---- connections ---- */

static void on_open(struct ct_conn *conn)
{
    struct one *one = ct_conn_user(conn);
    bool is_operator = role_of(one) == 6;
    uint32_t nodes = role_of(one) == 4 || role_of(one) == 5 ? 100000 : 1;
    const struct ct_message hello = {.type = CT_MSG_HELLO,
                                     .hello = {.protocol = CT_WIRE_PROTOCOL,
                                               .job = one->job,
                                               .host = "greedy",
                                               .incarnation = one->id,
                                               .role = is_operator ? "admin" : "agent"}};
    const struct ct_message join = {.type = CT_MSG_JOIN,
                                    .join = {.seq = ++one->seq,
                                             .incarnation = one->id,
                                             .slots = 1,
                                             .node_rank = -1,
                                             .slurm_node = -1,
                                             .nodes_min = nodes,
                                             .nodes_max = nodes,
                                             .host = "greedy",
                                             .address = "10.9.1.1",
                                             .role = "default",
                                             .settings = "",
                                             .join_timeout_ms = 600000,
                                             .last_call_ms = 1,
                                             .lease_ms = LEASE_MS,
                                             .prepare_ms = 600000,
                                             .grow_ms = 100,
                                             .autonomy_ms = 2 * LEASE_MS}};

    if (role_of(one) == 7) {
        ct_conn_close(conn, 0, NULL);
        return;
    }
    send_to(one, &hello);
    if (is_operator)
        ask_status(one);
    else
        send_to(one, &join);
}

static void on_reply(struct one *one, const struct ct_msg_store_reply *reply)
{
    greedy.answered++;
    one->under_way -= one->under_way > 0;
    if (reply->code == CT_ELIMIT) {
        greedy.full++;
        one->full = true;
    } else if (reply->code == 0 && !one->full) {
        greedy.stored++;
        one->stored++;
    }
    ask_on(one);
}

static void on_prepare(struct one *one, uint64_t generation)
{
    const struct ct_message prepared = {.type = CT_MSG_PREPARED,
                                        .prepared = {.generation = generation, .seq = ++one->seq}};

    send_to(one, &prepared);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct one *one = ct_conn_user(conn);

    switch (message->type) {
    case CT_MSG_WELCOME:
        greedy.welcomed++;
        if (role_of(one) == 5)
            ct_conn_close(conn, 0, NULL);
        break;
    case CT_MSG_REFUSE:
        greedy.refused++;
        break;
    case CT_MSG_PREPARE:
        on_prepare(one, message->prepare.generation);
        break;
    case CT_MSG_ROUND:
        one->generation = message->round.generation;
        ask_on(one);
        break;
    case CT_MSG_STORE_REPLY:
        on_reply(one, &message->store_reply);
        break;
    case CT_MSG_ADMIN_REPLY:
        greedy.answered++;
        ask_status(one);
        break;
    default:
        break;
    }
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    (void)why;
    ((struct one *)ct_conn_user(conn))->conn = NULL;
}

static void begin(struct one *one)
{
    static const struct ct_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_close = on_close};
    const unsigned number = one->number;
    struct ct_error err = {0};

    greedy.serial++;
    *one = (struct one){.number = number, .id = {greedy.serial, 4711}};
    if (role_of(one) != 6)
        (void)snprintf(one->job, sizeof one->job, "greedy-%" PRIu64, greedy.serial);
    greedy.options.job = one->job;
    greedy.options.seed = greedy.serial;
    if (ct_conn_connect(&greedy.loop, &greedy.endpoint, &greedy.options, &callbacks, one,
                        &one->conn, &err) == 0)
        greedy.made++;
    else
        one->conn = NULL;
}

static void on_turn(uv_timer_t *timer)
{
    unsigned begun = 0;

    (void)timer;
    for (unsigned i = 0; i < greedy.count && begun < BEGUN_A_TURN && !greedy.over; i++) {
        struct one *one = &greedy.all[greedy.next++ % greedy.count];
        if (one->conn != NULL)
            continue;
        begin(one);
        begun++;
    }
}

static void on_end(uv_timer_t *timer)
{
    printf("made %" PRIu64 " refused %" PRIu64 " welcomed %" PRIu64 " stored %" PRIu64
           " full %" PRIu64 " answered %" PRIu64 "\n",
           greedy.made, greedy.refused, greedy.welcomed, greedy.stored, greedy.full,
           greedy.answered);
    uv_stop(timer->loop);
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct in_addr source;
    uint64_t count, seconds;

    if (argc != 6 || inet_pton(AF_INET, argv[3], &source) != 1 ||
        ct_parse_u64(argv[4], &count) != 0 || count == 0 || count > 1 << 20 ||
        ct_parse_u64(argv[5], &seconds) != 0) {
        fprintf(stderr, "usage: greedy ENDPOINT KEY_FILE SOURCE CONNECTIONS SECONDS\n");
        return 2;
    }
    greedy.count = (unsigned)count;
    greedy.all = calloc(greedy.count, sizeof *greedy.all);
    if (greedy.all == NULL || ct_endpoint_parse(argv[1], -1, &greedy.endpoint, &err) != 0 ||
        ct_net_key_load(argv[2], &greedy.key, &err) != 0) {
        fprintf(stderr, "greedy: %s\n", err.text);
        return 1;
    }
    greedy.options = (struct ct_conn_options){.from = CT_FROM_SERVER,
                                              .key = &greedy.key,
                                              .queue_limit = 2 * QUEUED,
                                              .connect_ms = 5000,
                                              .source = ntohl(source.s_addr)};
    for (unsigned i = 0; i < greedy.count; i++)
        greedy.all[i].number = i;
    (void)uv_loop_init(&greedy.loop);
    (void)uv_timer_init(&greedy.loop, &greedy.timer);
    (void)uv_timer_init(&greedy.loop, &greedy.end);
    (void)uv_timer_start(&greedy.timer, on_turn, 0, TURN_MS);
    (void)uv_timer_start(&greedy.end, on_end, seconds * 1000, 0);
    (void)uv_run(&greedy.loop, UV_RUN_DEFAULT);
    return 0; /* the kernel closes what is open */
}
