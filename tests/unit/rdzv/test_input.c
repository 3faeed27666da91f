/* What is longer or larger than its place in what nodes, operators and daemons say: at the bound it
 * is taken whole, one more is refused by name; nothing is cut in silence. */
#include "member_bench.h"
#include "rdzv_check.h"
#include "rendezvous/service/admin.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(input, .timeout = 30);

/* ---- a service with one node and one operator ---- */

struct peer {
    uint64_t link;
    uint64_t seq;
    int code;        /* of the last refusal or answer */
    char text[5000]; /* and its words */
};

struct desk {
    struct ct_service *service;
    uint64_t now_ms;
    struct peer node, operator;
};

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;
    struct ct_buf frame = {0};
    (void)context;
    cr_assert_eq(ct_wire_encode(message, 0, &frame, NULL), 0);
    ct_buf_deinit(&frame);
    if (message->type == CT_MSG_REFUSE) {
        peer->code = message->refuse.code;
        (void)snprintf(peer->text, sizeof(peer->text), "%s", message->refuse.text);
    } else if (message->type == CT_MSG_ADMIN_REPLY) {
        peer->code = message->admin_reply.code;
        (void)snprintf(peer->text, sizeof(peer->text), "%.*s", (int)message->admin_reply.text.size,
                       (const char *)message->admin_reply.text.data);
    }
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context, (void)of, (void)code, (void)sentence;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static void send_message(struct desk *d, const struct peer *peer, const struct ct_message *message)
{
    ct_service_message(d->service, d->now_ms, peer->link, message);
}

static void hello(struct desk *d, struct peer *peer, const char *job, const char *role)
{
    *peer = (struct peer){.link = ct_service_open(d->service, peer)};
    struct ct_message m = {.type = CT_MSG_HELLO,
                           .hello = {.protocol = CT_WIRE_PROTOCOL,
                                     .job = job,
                                     .host = "h",
                                     .incarnation = {peer->link, 1},
                                     .role = role}};
    send_message(d, peer, &m);
}

static void begin(struct desk *d)
{
    const struct ct_service_io io = {
        .context = d, .send = io_send, .close = io_close, .announce = io_announce};
    *d = (struct desk){.service = ct_service_new(NULL, &io, 1), .now_ms = 1000};
    cr_assert_not_null(d->service);
}

static struct ct_message join_of(struct peer *peer)
{
    return (struct ct_message){.type = CT_MSG_JOIN,
                               .join = {.seq = ++peer->seq,
                                        .incarnation = {peer->link, 1},
                                        .slots = 1,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = 1,
                                        .nodes_max = 2,
                                        .host = "h",
                                        .address = "10.0.0.1",
                                        .role = "default",
                                        .settings = "",
                                        .join_timeout_ms = 60000,
                                        .last_call_ms = 1,
                                        .lease_ms = 1000000 / 2,
                                        .prepare_ms = 200000,
                                        .grow_ms = 100,
                                        .autonomy_ms = 10000000}};
}

static int order(struct desk *d, enum ct_admin_verb verb, const char *host)
{
    struct ct_message m = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = (uint8_t)verb, .host = host, .author = "o@h", .reason = ""}};
    d->operator.code = 1;
    d->now_ms += 100; /* no more than so many a second are served */
    send_message(d, &d->operator, & m);
    return d->operator.code;
}

static const char *of_size(char text[512], size_t size)
{
    memset(text, 'n', size);
    text[size] = '\0';
    return text;
}

/* ---- names ---- */

enum { HOST, ADDRESS, ROLE, NAMES };

static int join_with(struct desk *d, int which, const char *name)
{
    hello(d, &d->node, "j", "agent");
    struct ct_message m = join_of(&d->node);
    const char **const names[NAMES] = {&m.join.host, &m.join.address, &m.join.role};
    *names[which] = name;
    send_message(d, &d->node, &m);
    return d->node.code;
}

Test(input, a_name_that_would_be_cut_is_refused)
{
    static const size_t longest[NAMES] = {CT_RDZV_HOST_BYTES - 1, CT_RDZV_ADDRESS_BYTES - 1, 64};
    for (int which = 0; which < NAMES; which++) {
        struct desk d;
        char text[512];
        begin(&d);
        cr_assert_eq(join_with(&d, which, of_size(text, longest[which])), 0, "%s", d.node.text);
        const struct ct_rdzv_member *member = ct_rdzv_member(rdzv_job(d.service, 0), 0);
        const char *const kept[NAMES] = {member->host, member->address, member->role};
        cr_assert_str_eq(kept[which], text);
        if (which == ROLE) { /* the wire takes no longer one */
            ct_service_free(d.service);
            continue;
        }
        cr_assert_eq(join_with(&d, which, of_size(text, longest[which] + 1)), CT_EUSAGE);
        cr_assert_not_null(strstr(d.node.text, "128 bytes: 127 are possible"), "%s", d.node.text);
        ct_service_free(d.service);
    }
}

Test(input, an_order_that_names_no_possible_host_is_refused)
{
    struct desk d;
    char text[512];
    begin(&d);
    cr_assert_eq(join_with(&d, ADDRESS, "10.0.0.1"), 0);
    hello(&d, &d.operator, "j", "admin");
    cr_assert_eq(order(&d, CT_ADMIN_CORDON, of_size(text, CT_RDZV_HOST_BYTES - 1)), 0);
    cr_assert_eq(order(&d, CT_ADMIN_UNCORDON, text), 0, "it is found again: %s", d.operator.text);
    of_size(text, CT_RDZV_HOST_BYTES);
    for (enum ct_admin_verb verb = CT_ADMIN_DRAIN; verb <= CT_ADMIN_UNCORDON; verb++)
        cr_assert_eq(order(&d, verb, text), CT_EUSAGE, "%s", d.operator.text);
    cr_assert_eq(order(&d, CT_ADMIN_TAKEOVER, ""), CT_EUNSUPPORTED, "%s", d.operator.text);
    cr_assert_null(ct_rdzv_cordon(rdzv_job(d.service, 0), 0));
    ct_service_free(d.service);
}

Test(input, as_many_cordons_as_there_may_be_and_one_more)
{
    struct desk d;
    char host[32];
    begin(&d);
    cr_assert_eq(join_with(&d, ADDRESS, "10.0.0.1"), 0);
    hello(&d, &d.operator, "j", "admin");
    for (int i = 0; i < CT_RDZV_CORDONS; i++) {
        (void)snprintf(host, sizeof(host), "h%d", i);
        cr_assert_eq(order(&d, CT_ADMIN_CORDON, host), 0, "%s", d.operator.text);
    }
    cr_assert_eq(order(&d, CT_ADMIN_CORDON, "one-more"), CT_ELIMIT);
    cr_assert_eq(order(&d, CT_ADMIN_CORDON, "h7"), 0, "a known one may change");
    ct_service_free(d.service);
}

/* ---- numbers, lists ---- */

Test(input, any_number_of_steps_and_seconds_may_be_said)
{
    struct desk d;
    begin(&d);
    cr_assert_eq(join_with(&d, ADDRESS, "10.0.0.1"), 0);
    for (uint64_t step = 1; step <= 2; step++) {
        struct ct_message m = {.type = CT_MSG_PROGRESS,
                               .progress = {.step = step,
                                            .steps = UINT64_MAX,
                                            .loss = NAN,
                                            .elapsed_s = INFINITY,
                                            .eta_s = 1e300}};
        send_message(&d, &d.node, &m);
        d.now_ms += 10000;
    }
    hello(&d, &d.operator, "j", "admin");
    cr_assert_eq(order(&d, CT_ADMIN_STATUS, ""), 0);
    cr_assert_not_null(strstr(d.operator.text, "elapsed    ?, about ? left\n"), "%s",
                       d.operator.text);
    ct_service_free(d.service);
}

Test(input, jobs_beyond_a_list_are_counted)
{
    struct desk d;
    char job[129];
    begin(&d);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(job, sizeof(job), "job-%0100d", i);
        hello(&d, &d.node, job, "agent");
        struct ct_message m = join_of(&d.node);
        send_message(&d, &d.node, &m);
        if (i == 20)
            hello(&d, &d.operator, "none", "admin");
        if (i == 20 || i == 99)
            (void)order(&d, CT_ADMIN_STATUS, "");
        if (i == 20)
            cr_assert_null(strstr(d.operator.text, " more"), "%s", d.operator.text);
    }
    cr_assert_eq(d.operator.code, CT_ENOTFOUND);
    cr_assert_str_eq(d.operator.text + strlen(d.operator.text) - strlen(" and 66 more"),
                     " and 66 more");
    ct_service_free(d.service);
}

/* ---- a round, as a daemon tells it ---- */

static struct ct_wire_node node_of(uint32_t index)
{
    return (struct ct_wire_node){.index = index,
                                 .incarnation = {1, index == 1 ? 2 : 99 + index},
                                 .host = "h",
                                 .address = "",
                                 .role = "default",
                                 .slots = 2,
                                 .first_rank = 2 * index};
}

/* Does the member begin the round of three nodes (bench's is node 1) with this change? */
static bool begins(bool is_short,
                   void (*change)(struct ct_msg_round *m, struct ct_wire_node *nodes))
{
    struct bench b;
    struct ct_wire_node nodes[] = {node_of(0), node_of(1), node_of(2)};
    const struct ct_wire_run runs[] = {{3, 2, "default"}};
    struct ct_message m = {
        .type = CT_MSG_ROUND,
        .round = {.generation = 1, .epoch = 1, .base_node = 2, .world = 6, .node_count = 3}};
    m.round.nodes.data = nodes;
    m.round.nodes.count = 3;
    m.round.first = is_short ? 3 : 0;
    m.round.runs.data = runs;
    m.round.runs.count = is_short ? 1 : 0;
    bench_begin(&b);
    ct_member_connected(&b.member, 0);
    bench_send_welcome(&b, 0);
    bench_send_prepare(&b, 1, false);
    bench_promise(&b, 1);
    if (change != NULL)
        change(&m.round, nodes);
    bench_send(&b, &m);
    cr_assert_eq(b.rounds + b.fails, 1);
    cr_assert(b.fails == 0 || b.error.code == CT_EPROTOCOL, "%s", b.error.text);
    bool begun = b.rounds == 1;
    bench_end(&b);
    return begun;
}

static void too_few_slots(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    nodes[1].slots = 1; /* of this node's two */
    nodes[2].first_rank = 3;
    m->world = 5;
}

static void too_many_slots(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    nodes[1].slots = 3;
    nodes[2].first_rank = 5;
    m->world = 7;
}

static void small_world(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    m->world = 3; /* this node's last rank is 3 */
}

static void large_rank(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)m;
    nodes[1].first_rank = UINT32_MAX;
}

static void no_base(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    m->base_node = 3;
}

static void negative_base(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    m->base_node = -2;
}

static void beyond_the_end(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)m;
    nodes[1].index = 3;
}

static void no_runs(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    m->runs.count = 0;
}

static void set_runs(struct ct_msg_round *m, uint32_t count, struct ct_wire_run one,
                     struct ct_wire_run other)
{
    static struct ct_wire_run runs[2];
    runs[0] = one;
    runs[1] = other;
    m->runs.data = runs;
    m->runs.count = count;
}

static void too_many_nodes(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    set_runs(m, 2, (struct ct_wire_run){3, 2, ""}, (struct ct_wire_run){UINT32_MAX, 2, ""});
}

static void nobodys_nodes(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    set_runs(m, 2, (struct ct_wire_run){3, 2, ""}, (struct ct_wire_run){0, 2, ""});
}

static void others_slots(struct ct_msg_round *m, struct ct_wire_node *nodes)
{
    (void)nodes;
    set_runs(m, 2, (struct ct_wire_run){1, 4, ""}, (struct ct_wire_run){2, 1, ""});
}

Test(input, a_round_whose_ranks_do_not_fit_its_nodes_is_not_begun)
{
    for (int is_short = 0; is_short < 2; is_short++) {
        cr_assert(begins(is_short, NULL));
        cr_assert_not(begins(is_short, too_few_slots));
        cr_assert_not(begins(is_short, too_many_slots));
        cr_assert_not(begins(is_short, small_world));
        cr_assert_not(begins(is_short, large_rank));
        cr_assert_not(begins(is_short, no_base));
        cr_assert_not(begins(is_short, negative_base));
    }
    cr_assert_not(begins(true, beyond_the_end));
    cr_assert_not(begins(true, no_runs));
    cr_assert_not(begins(true, too_many_nodes));
    cr_assert_not(begins(true, nobodys_nodes));
    cr_assert_not(begins(true, others_slots));
}
