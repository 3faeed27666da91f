/* Two users of one service: what one of them takes up keeps nothing from the other. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(quotas, .timeout = 20);

enum { PEERS = 48 };

struct peer {
    uint64_t link;
    int64_t uid;
    uint64_t seq;
    struct ct_id id;
    int refused, closed, reply;
    uint64_t retry_ms;
    char text[1024];
};

static struct bench {
    struct ct_service *service;
    struct peer peers[PEERS];
    size_t count;
    int lines;
    char line[1200], status[8192];
} b;

static void io_send(void *context, void *of, const struct ct_message *m)
{
    struct peer *peer = of;
    (void)context;
    if (m->type == CT_MSG_REFUSE) {
        peer->refused = m->refuse.code;
        peer->retry_ms = m->refuse.retry_ms;
        (void)snprintf(peer->text, sizeof(peer->text), "%s", m->refuse.text);
    } else if (m->type == CT_MSG_STORE_REPLY) {
        peer->reply = m->store_reply.code;
    } else if (m->type == CT_MSG_ADMIN_REPLY) {
        (void)snprintf(b.status, sizeof(b.status), "%.*s", (int)m->admin_reply.text.size,
                       (const char *)m->admin_reply.text.data);
    }
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    (void)context;
    (void)sentence;
    ((struct peer *)of)->closed = code;
}

static bool io_whose(void *context, void *of, struct ct_account_name *ret_name)
{
    (void)context;
    const struct ct_account_of account = {.uid = ((struct peer *)of)->uid, .network = ""};
    ct_account_name(&account, ret_name);
    return true;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context;
    (void)job;
    b.lines++;
    (void)snprintf(b.line, sizeof(b.line), "%s", sentence);
}

static void begin(const struct ct_quotas *quotas)
{
    const struct ct_service_io io = {.context = &b,
                                     .send = io_send,
                                     .close = io_close,
                                     .whose = io_whose,
                                     .announce = io_announce};
    const struct ct_service_limits limits = {.quotas = *quotas};
    b = (struct bench){.service = ct_service_new(&limits, &io, 1)};
    cr_assert_not_null(b.service);
}

static struct peer *open_of(int64_t uid)
{
    cr_assert_lt(b.count, (size_t)PEERS);
    struct peer *peer = &b.peers[b.count++];
    *peer = (struct peer){.uid = uid, .id = {b.count, 1}, .reply = 1};
    peer->link = ct_service_open(b.service, peer);
    return peer;
}

static struct ct_message join_of(struct peer *peer)
{
    return (struct ct_message){.type = CT_MSG_JOIN,
                               .join = {.seq = ++peer->seq,
                                        .incarnation = peer->id,
                                        .slots = 1,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = 1,
                                        .nodes_max = 1,
                                        .host = "h",
                                        .address = "",
                                        .role = "default",
                                        .settings = "",
                                        .join_timeout_ms = 60000,
                                        .last_call_ms = 1,
                                        .lease_ms = 1000,
                                        .prepare_ms = 1000,
                                        .grow_ms = 100,
                                        .autonomy_ms = 600000}};
}

static void send_hello(struct peer *peer, const char *job, const char *role)
{
    const struct ct_message hello = {.type = CT_MSG_HELLO,
                                     .hello = {.protocol = CT_WIRE_PROTOCOL,
                                               .job = job,
                                               .host = "h",
                                               .incarnation = peer->id,
                                               .role = role}};
    ct_service_message(b.service, 0, peer->link, &hello);
}

static struct peer *join(int64_t uid, const char *job, uint32_t nodes)
{
    struct peer *peer = open_of(uid);
    struct ct_message m = join_of(peer);
    m.join.nodes_min = m.join.nodes_max = nodes;
    send_hello(peer, job, "agent");
    ct_service_message(b.service, 0, peer->link, &m);
    return peer;
}

static void promise(struct peer *peer)
{
    const struct ct_message m = {.type = CT_MSG_PREPARED,
                                 .prepared = {.generation = 1, .seq = ++peer->seq}};
    ct_service_message(b.service, 0, peer->link, &m);
}

/* A job of one node, in its round. */
static struct peer *run(int64_t uid, const char *job)
{
    struct peer *peer = join(uid, job, 1);
    if (peer->refused == 0)
        promise(peer);
    return peer;
}

static void end(struct peer *peer)
{
    const struct ct_message done = {.type = CT_MSG_DONE,
                                    .done = {.generation = 1, .seq = ++peer->seq}};
    ct_service_message(b.service, 0, peer->link, &done);
    ct_service_closed(b.service, 0, peer->link, false);
}

/* A job of two nodes, which `stop` ends while one is away: its result is kept for that one. */
static struct peer *run_pair(int64_t uid, const char *job)
{
    struct peer *first = join(uid, job, 2);
    if (first->refused != 0)
        return first;
    promise(join(uid, job, 2));
    promise(first);
    return first;
}

static void stop(struct peer *first)
{
    const struct ct_message leave = {.type = CT_MSG_LEAVE,
                                     .leave = {.how = CT_RDZV_LEAVE_STOP, .seq = ++first->seq}};
    ct_service_closed(b.service, 0, first[1].link, false);
    ct_service_message(b.service, 0, first->link, &leave);
    ct_service_closed(b.service, 0, first->link, false);
}

static int set(struct peer *peer, const char *key, size_t size)
{
    static const unsigned char bytes[1 << 20];
    static uint64_t request;
    const struct ct_message m = {
        .type = CT_MSG_STORE_SET,
        .store_set = {
            .request = ++request << 32, .generation = 1, .key = key, .value = {bytes, size}}};
    peer->reply = 1;
    ct_service_message(b.service, 1000, peer->link, &m);
    cr_assert_neq(peer->reply, 1, "it is answered");
    return peer->reply;
}

static void end_all(void)
{
    for (size_t i = 0; i < b.count; i++)
        ct_service_closed(b.service, 0, b.peers[i].link, false);
    cr_assert_eq(b.service->accounts.used[CT_QUOTA_LINKS], 0u);
    ct_service_free(b.service);
}

/* Who has used his share gets room for a new job of the results of his own old ones, though others
 * are free to have places; somebody else's result is kept. */
Test(quotas, own_jobs_that_are_over_give_way_to_a_new_one_first)
{
    begin(&(struct ct_quotas){.total = {[CT_QUOTA_JOBS] = 8}});
    stop(run_pair(2, "other"));
    char name[16];
    struct peer *mine[5];
    for (size_t i = 0; i < 5; i++) { /* 75 % of the 7 that the other has left */
        (void)snprintf(name, sizeof(name), "mine%zu", i);
        mine[i] = run_pair(1, name);
        cr_assert_eq(mine[i]->refused, 0, "%s", mine[i]->text);
    }
    struct peer *more = run_pair(1, "more");
    cr_assert_eq(more->refused, CT_ELIMIT);
    cr_assert_geq(more->retry_ms, 1000u, "it asks again later");
    cr_assert_not_null(strstr(more->text, "user 1 has 5 jobs, its share"), "%s", more->text);
    stop(mine[3]);
    stop(mine[1]);
    cr_assert_eq(ct_service_jobs(b.service), 6u, "their results are kept");
    more = run_pair(1, "more");
    cr_assert_eq(more->refused, 0, "%s", more->text);
    cr_assert_null(ct_service_find_job(b.service, "mine1"), "the oldest of them gave way");
    cr_assert_not_null(ct_service_find_job(b.service, "mine3"));
    cr_assert_not_null(ct_service_find_job(b.service, "other"), "another's does not");
    end_all();
}

Test(quotas, connections_are_shared_and_the_one_too_many_is_told_why)
{
    uint32_t retry_ms;
    begin(&(struct ct_quotas){.total = {[CT_QUOTA_LINKS] = 16}});
    for (int i = 0; i < 12; i++)
        cr_assert_neq(open_of(1)->link, 0u, "%d", i);
    cr_assert_eq(open_of(1)->link, 0u);
    const char *why = ct_service_refusal(b.service, 0, &retry_ms);
    cr_assert_not_null(strstr(why, "user 1 has 12 connections"), "%s", why);
    cr_assert_geq(retry_ms, 1000u);
    for (int i = 0; i < 3; i++)
        cr_assert_neq(open_of(2)->link, 0u, "the other's %d", i);
    for (int i = 0; i < 2; i++)
        ct_service_closed(b.service, 0, b.peers[i].link, false);
    cr_assert_neq(open_of(2)->link, 0u, "a place that is given back is there for all");
    end_all();
}

Test(quotas, a_store_is_charged_to_whose_job_it_is_and_the_log_says_why_it_is_full)
{
    begin(&(struct ct_quotas){.total = {[CT_QUOTA_BYTES] = 1000}});
    struct peer *greedy = run(1, "greedy"), *honest = run(2, "honest");
    cr_assert_eq(set(greedy, "k", 700), 0);
    cr_assert_eq(set(greedy, "l", 100), CT_ELIMIT, "751 are more than 75 %% of 1000");
    cr_assert_not_null(strstr(b.line, "its store is refused room: user 1 has 7"), "%s", b.line);
    cr_assert_not_null(strstr(b.line, "quota store_bytes"), "%s", b.line);
    int lines = b.lines;
    cr_assert_eq(set(greedy, "m", 100), CT_ELIMIT);
    cr_assert_eq(b.lines, lines, "it is not told of each");
    cr_assert_eq(set(honest, "k", 200), 0, "what is left is the other's");
    cr_assert_eq(set(greedy, "k", 10), 0, "and a value may become smaller");
    cr_assert_eq(b.service->accounts.used[CT_QUOTA_BYTES], 212u);
    cr_assert_eq(set(greedy, "l", 100), 0, "then there is room again");
    end(greedy);
    end(honest);
    ct_service_free(b.service); /* checks that all of it is given back */
}

Test(quotas, keys_and_those_who_wait_for_one_are_counted)
{
    begin(&(struct ct_quotas){.total = {[CT_QUOTA_KEYS] = 8}});
    struct peer *greedy = run(1, "greedy");
    char key[8];
    for (int i = 0; i < 3; i++) { /* two places each */
        const struct ct_message wait = {
            .type = CT_MSG_STORE_WAIT,
            .store_wait = {.request = (uint64_t)i + 1, .generation = 1, .key = key}};
        (void)snprintf(key, sizeof(key), "w%d", i);
        ct_service_message(b.service, 1000, greedy->link, &wait);
    }
    cr_assert_eq(b.service->accounts.used[CT_QUOTA_KEYS], 6u);
    cr_assert_eq(set(greedy, "x", 1), CT_ELIMIT);
    cr_assert_eq(set(greedy, "w0", 1), 0, "a key that is waited for is one already");
    cr_assert_eq(b.service->accounts.used[CT_QUOTA_KEYS], 5u, "who waited has gone");
    cr_assert_eq(set(greedy, "x", 1), 0);
    end_all();
}

Test(quotas, an_operator_sees_what_is_used_of_what_and_who_has_been_refused)
{
    begin(&(struct ct_quotas){.total = {[CT_QUOTA_LINKS] = 8, [CT_QUOTA_BYTES] = 2048},
                              .set_by = {[CT_QUOTA_LINKS] = "the command line"}});
    struct peer *node = run(1, "j");
    cr_assert_eq(set(node, "k", 1023), 0);
    for (int i = 0; i < 6; i++)
        (void)open_of(1);
    struct peer *operator= open_of(2);
    send_hello(operator, "j", "admin");
    struct ct_message ask = {
        .type = CT_MSG_ADMIN,
        .admin = {.verb = CT_ADMIN_STATUS, .host = "", .author = "", .reason = ""}};
    ct_service_message(b.service, 1000, operator->link, &ask);
    cr_assert_not_null(strstr(b.status, "\nquotas       jobs 1 of 1024, links 7 of 8 (the command "
                                        "line), store_bytes 1.00 KiB of 2.00 KiB, store_keys 1 of "
                                        "1048576, share 75 %\n"),
                       "%s", b.status);
    cr_assert_not_null(strstr(b.status,
                              "\n  user 1               jobs 1, links 6, store_bytes 1.00 "
                              "KiB, store_keys 1; refused 1 times\n"),
                       "%s", b.status);
    cr_assert_not_null(strstr(b.status, "\n  user 2               jobs 0, links 1,"), "%s",
                       b.status);
    ask.admin.json = 1;
    ct_service_message(b.service, 1000, operator->link, &ask);
    cr_assert_not_null(strstr(b.status, "],\"quotas\":{\"jobs\":{\"used\":1,\"total\":1024,"
                                        "\"set_by\":\"default\"},\"links\":{\"used\":7,\"total\":8,"
                                        "\"set_by\":\"the command line\"},"),
                       "%s", b.status);
    cr_assert_not_null(strstr(b.status, "{\"account\":\"user 1\",\"jobs\":1,\"links\":6,"
                                        "\"store_bytes\":1024,\"store_keys\":1,\"refused\":1}"),
                       "%s", b.status);
    end_all();
}

/* Nor does a job's end, over and over, have the log to itself. */
Test(quotas, the_lines_that_one_accounts_jobs_have_in_the_log_are_limited)
{
    begin(&(struct ct_quotas){.share = 75});
    (void)run(1, "greedy");
    (void)run(2, "honest");
    struct ct_service_job *greedy = ct_service_find_job(b.service, "greedy");
    struct ct_service_job *honest = ct_service_find_job(b.service, "honest");
    int before = b.lines;
    for (int i = 0; i < 10000; i++)
        ct_service_log(greedy, 100000, "again");
    cr_assert_leq(b.lines - before, CT_SERVICE_LINES_BURST);
    before = b.lines;
    ct_service_log(honest, 100000, "its own");
    cr_assert_eq(b.lines - before, 1, "another's are written");
    ct_service_log(greedy, 101000, "later");
    cr_assert_eq(b.lines - before, 3, "how many are missing is said");
    cr_assert_str_eq(b.line, "later");
    end_all();
}

Test(quotas, nothing_that_a_job_asks_for_keeps_its_place_for_ever)
{
    static const struct {
        size_t at;
        uint64_t ms;
        const char *text;
    } rows[] = {
        {offsetof(struct ct_msg_join, lease_ms), 700000, "a lease of 700000 ms"},
        {offsetof(struct ct_msg_join, autonomy_ms), 90000000, "an autonomy of 90000000 ms"},
        {offsetof(struct ct_msg_join, join_timeout_ms), 700000000, "a join timeout of 700000000"},
        {offsetof(struct ct_msg_join, last_call_ms), 8000000, "a last call of 8000000 ms"},
        {offsetof(struct ct_msg_join, prepare_ms), 8000000,
         "a time to stop its workers of 8000000"},
        {offsetof(struct ct_msg_join, grow_ms), UINT64_MAX, "a time to collect newcomers of 21474"},
    };
    begin(&(struct ct_quotas){.share = 75});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct peer *peer = open_of(1);
        struct ct_message join = join_of(peer);
        memcpy((char *)&join.join + rows[i].at, &rows[i].ms, sizeof(rows[i].ms));
        send_hello(peer, "j", "agent");
        ct_service_message(b.service, 0, peer->link, &join);
        cr_assert_eq(peer->refused, CT_EUSAGE, "%zu", i);
        cr_assert_eq(peer->retry_ms, 0u, "asking again is no use");
        cr_assert_not_null(strstr(peer->text, rows[i].text), "%s", peer->text);
        cr_assert_not_null(strstr(peer->text, "set a lower "), "%s", peer->text);
    }
    cr_assert_eq(ct_service_jobs(b.service), 0u);
    end_all();
}
