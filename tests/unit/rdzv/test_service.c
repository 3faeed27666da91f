/* The service: how a link opens, who is turned away, what is forgotten when. */
#include "scene.h"

#include "rdzv_check.h"
#include "rendezvous/service/service.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(service, .timeout = 30);

enum { PEERS = 8 };

struct peer {
    uint64_t link;
    uint64_t seq;
    struct ct_id id;
    int closed; /* the code, 0: open */
    int refused;
    char text[512]; /* of the refusal or the close */
    unsigned prepares, rounds, closes, acks, releases, replies;
    bool has_key;
};

struct bench {
    struct ct_service *service;
    struct peer peers[PEERS];
    char trace[2048]; /* lines of job "j" */
    char value;       /* the first byte of the last value that was sent */
    char limit[512];  /* what was announced of it last */
    int limits_told;
};

static void io_send(void *context, void *to, const struct ct_message *message)
{
    struct peer *peer = to;
    struct bench *b = context;
    if (message->type == CT_MSG_STORE_REPLY && message->store_reply.value.size > 0)
        b->value = (char)message->store_reply.value.data[0];
    peer->replies += message->type == CT_MSG_STORE_REPLY;
    peer->prepares += message->type == CT_MSG_PREPARE;
    peer->rounds += message->type == CT_MSG_ROUND;
    peer->closes += message->type == CT_MSG_CLOSE;
    peer->acks += message->type == CT_MSG_HEARTBEAT_ACK;
    peer->releases += message->type == CT_MSG_RELEASE;
    if (message->type != CT_MSG_REFUSE)
        return;
    peer->refused = message->refuse.code;
    (void)snprintf(peer->text, sizeof(peer->text), "%s", message->refuse.text);
}

static void io_close(void *context, void *of, int code, const char *sentence)
{
    struct peer *peer = of;
    (void)context;
    peer->closed = code;
    (void)snprintf(peer->text, sizeof(peer->text), "%s", sentence);
}

static int io_may(void *context, void *of, enum ct_right right, const char *job,
                  struct ct_error *err)
{
    (void)context, (void)right, (void)job;
    return ((struct peer *)of)->has_key ? 0 : ct_error_set(err, CT_EAUTH, "no key for this job");
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    struct bench *b = context;
    if (strncmp(sentence, "up to ", 6) == 0) {
        b->limits_told++;
        cr_assert_str_eq(job, "j");
        (void)snprintf(b->limit, sizeof(b->limit), "%s", sentence);
    }
}

static void io_trace(void *context, const char *job, const char *line)
{
    struct bench *b = context;
    size_t used = strlen(b->trace);
    cr_assert_str_eq(job, "j");
    (void)snprintf(b->trace + used, sizeof(b->trace) - used, "%s\n", line);
}

static struct ct_service_io io_of(struct bench *b)
{
    return (struct ct_service_io){
        .context = b,
        .send = io_send,
        .close = io_close,
        .may = io_may,
        .announce = io_announce,
    };
}

static void begin(struct bench *b, const struct ct_service_limits *limits)
{
    const struct ct_service_io io = io_of(b);
    memset(b, 0, sizeof(*b));
    b->service = ct_service_new(limits, &io, 1);
    cr_assert_not_null(b->service);
}

static struct peer *open_peer(struct bench *b, size_t index)
{
    struct peer *peer = &b->peers[index];
    *peer = (struct peer){.id = {index + 1, 1}, .has_key = true};
    peer->link = ct_service_open(b->service, peer);
    return peer;
}

static void hello(struct bench *b, struct peer *peer, const char *job, uint32_t protocol)
{
    struct ct_message m = {.type = CT_MSG_HELLO,
                           .hello = {.protocol = protocol,
                                     .job = job,
                                     .host = "h",
                                     .incarnation = peer->id,
                                     .role = "agent"}};
    ct_service_message(b->service, 0, peer->link, &m);
}

static struct ct_message join_of(struct peer *peer, uint32_t nodes)
{
    return (struct ct_message){.type = CT_MSG_JOIN,
                               .join = {.seq = ++peer->seq,
                                        .incarnation = peer->id,
                                        .slots = 1,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = nodes,
                                        .nodes_max = nodes,
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

static void join(struct bench *b, struct peer *peer, const char *job, uint32_t nodes)
{
    struct ct_message m = join_of(peer, nodes);
    hello(b, peer, job, CT_WIRE_PROTOCOL);
    ct_service_message(b->service, 0, peer->link, &m);
}

static void promise(struct bench *b, struct peer *peer, uint64_t generation)
{
    struct ct_message m = {.type = CT_MSG_PREPARED,
                           .prepared = {.generation = generation, .seq = ++peer->seq}};
    ct_service_message(b->service, 0, peer->link, &m);
}

static void finish(struct bench *b, struct peer *peer)
{
    struct ct_message m = {.type = CT_MSG_DONE, .done = {.generation = 1, .seq = ++peer->seq}};
    ct_service_message(b->service, 0, peer->link, &m);
}

static void close_peer(struct bench *b, struct peer *peer)
{
    ct_service_closed(b->service, 0, peer->link, false);
}

Test(service, who_asks_for_the_transcript_reads_events_and_actions_but_no_heartbeats)
{
    struct bench b = {0};
    struct ct_service_io io = io_of(&b);
    io.trace = io_trace;
    b.service = ct_service_new(NULL, &io, 1);
    cr_assert_not_null(b.service);
    struct peer *peer = open_peer(&b, 0);
    join(&b, peer, "j", 1);
    promise(&b, peer, 1);
    struct ct_message heartbeat = {.type = CT_MSG_HEARTBEAT,
                                   .heartbeat = {.generation = 1, .acting = 1, .seq = ++peer->seq}};
    ct_service_message(b.service, 0, peer->link, &heartbeat);
    ct_service_tick(b.service, 0);
    cr_assert_eq(peer->acks, 1);
    cr_assert_str_eq(b.trace, "> h JOIN slots=1\n"
                              "< h WELCOME\n"
                              "< PERSIST #1 RESERVE g1\n"
                              "> PERSISTED #1\n"
                              "< all PREPARE g1 (first round)\n"
                              "> h PREPARED g1 lineage=0 step=0\n"
                              "< PERSIST #2 COMMIT g1\n"
                              "> PERSISTED #2\n"
                              "< all ROUND g1 world=1 [h:0]\n");
    ct_service_free(b.service);
}

Test(service, a_peer_with_the_key_of_another_job_is_refused)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    peer->has_key = false;
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    cr_assert_eq(peer->refused, CT_EAUTH);
    ct_service_free(b.service);
}

/* ctrun does not ask for that; a stranger's program may. */
Test(service, a_node_that_names_no_job_is_refused)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    hello(&b, peer, "", CT_WIRE_PROTOCOL);
    cr_assert_eq(peer->refused, CT_EUSAGE);
    cr_assert_not_null(strstr(peer->text, "names no job"), "%s", peer->text);
    ct_service_free(b.service);
}

Test(service, a_node_that_followed_a_newer_daemon_is_not_taken)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    struct ct_message m = {
        .type = CT_MSG_HELLO,
        .hello = {
            .protocol = CT_WIRE_PROTOCOL, .job = "j", .host = "h", .role = "agent", .epoch = 2}};
    ct_service_message(b.service, 0, peer->link, &m);
    struct ct_message joins = join_of(peer, 1);
    joins.join.incarnation = (struct ct_id){0};
    ct_service_message(b.service, 0, peer->link, &joins);
    cr_assert_eq(peer->refused, CT_EFENCED);
    cr_assert_not_null(strstr(peer->text, "two daemons serve one job"), "%s", peer->text);
    ct_service_free(b.service);
}

Test(service, messages_out_of_turn_end_the_link)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    struct ct_message m = join_of(peer, 1);
    ct_service_message(b.service, 0, peer->link, &m);
    cr_assert_eq(peer->closed, CT_EPROTOCOL, "JOIN before HELLO");

    peer = open_peer(&b, 1);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    promise(&b, peer, 1);
    cr_assert_eq(peer->closed, CT_EPROTOCOL, "PREPARED before JOIN");

    peer = open_peer(&b, 2);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    cr_assert_eq(peer->closed, CT_EPROTOCOL, "HELLO twice");

    peer = open_peer(&b, 3);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    m = join_of(peer, 1);
    m.join.incarnation.low++;
    ct_service_message(b.service, 0, peer->link, &m);
    cr_assert_eq(peer->closed, CT_EPROTOCOL, "JOIN of somebody else");

    peer = open_peer(&b, 4);
    join(&b, peer, "j", 1);
    struct ct_message wrong = {.type = CT_MSG_ASSIGN};
    ct_service_message(b.service, 0, peer->link, &wrong);
    cr_assert_eq(peer->closed, CT_EPROTOCOL, "a worker's message");
    ct_service_free(b.service);
}

Test(service, parameters_that_cannot_work_are_refused)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    struct ct_message m = join_of(peer, 1);
    m.join.nodes_min = 2;
    ct_service_message(b.service, 0, peer->link, &m);
    cr_assert_eq(peer->refused, CT_EUSAGE);
    cr_assert_eq(ct_service_jobs(b.service), 0);
    ct_service_free(b.service);
}

Test(service, a_job_is_forgotten_when_it_is_over_and_all_have_gone)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *a = open_peer(&b, 0);
    struct peer *c = open_peer(&b, 1);
    join(&b, a, "j", 2);
    join(&b, c, "j", 2);
    cr_assert_eq(a->prepares, 1);
    promise(&b, a, 1);
    promise(&b, c, 1);
    cr_assert_eq(c->rounds, 1);
    finish(&b, a);
    finish(&b, c);
    cr_assert_eq(a->closes, 1);
    cr_assert_eq(c->closes, 1);
    close_peer(&b, a);
    cr_assert_eq(ct_service_jobs(b.service), 1);
    close_peer(&b, c);
    cr_assert_eq(ct_service_jobs(b.service), 0);
    cr_assert_eq(ct_service_links(b.service), 0);
    ct_service_free(b.service);
}

Test(service, a_job_that_nobody_waits_for_is_forgotten)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *a = open_peer(&b, 0);
    join(&b, a, "j", 2);
    cr_assert_eq(ct_service_jobs(b.service), 1);
    close_peer(&b, a);
    scene_pass(b.service, 0, 21);
    cr_assert_eq(ct_service_jobs(b.service), 0);
    ct_service_free(b.service);
}

/* One node ran the job, ended it, and was cut off before it knew. */
static void end_untold(struct bench *b)
{
    struct peer *a = open_peer(b, 0);
    join(b, a, "j", 1);
    promise(b, a, 1);
    close_peer(b, a);
    scene_pass(b->service, 0, 21);
    cr_assert_eq(ct_rdzv_phase(rdzv_job(b->service, 0)), CT_RDZV_CLOSED);
}

Test(service, the_name_of_an_ended_job_can_be_used_again_after_a_while)
{
    struct bench b;
    begin(&b, NULL);
    end_untold(&b);
    struct peer *next = open_peer(&b, 1);
    hello(&b, next, "j", CT_WIRE_PROTOCOL);
    struct ct_message m = join_of(next, 1);
    ct_service_message(b.service, 3000, next->link, &m);
    cr_assert_eq(next->refused, CT_EUNAVAILABLE, "its nodes may still ask");
    close_peer(&b, next);
    next = open_peer(&b, 1);
    hello(&b, next, "j", CT_WIRE_PROTOCOL);
    m = join_of(next, 1);
    ct_service_message(b.service, 20000, next->link, &m);
    cr_assert_eq(next->refused, 0);
    cr_assert_eq(next->prepares, 1);
    ct_service_free(b.service);
}

Test(service, a_new_job_is_worth_more_than_an_old_result)
{
    struct bench b;
    struct ct_service_limits limits = {.jobs = 1};
    begin(&b, &limits);
    struct peer *a = open_peer(&b, 1);
    end_untold(&b);
    join(&b, a, "other", 1);
    cr_assert_eq(a->prepares, 1);
    struct peer *c = open_peer(&b, 2);
    join(&b, c, "third", 1);
    cr_assert_eq(c->refused, CT_ELIMIT, "but a job that lives stays");
    ct_service_free(b.service);
}

/* Places are for jobs that somebody waits for: one whose nodes have all gone before its first round
 * keeps none from beginning, however long its lease lets them come back. */
Test(service, a_job_that_all_have_left_before_its_first_round_gives_its_place_to_another)
{
    const struct ct_service_limits limits = {.jobs = 2};
    struct bench b;
    begin(&b, &limits);
    const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 2; i++) {
        join(&b, open_peer(&b, i), names[i], 2);
        cr_assert_eq(b.peers[i].refused, 0);
    }
    struct peer *c = open_peer(&b, 2);
    join(&b, c, "c", 2);
    cr_assert_eq(c->refused, CT_ELIMIT);
    cr_assert_not_null(strstr(c->text, "has 2 jobs, of 2 at most"), "%s", c->text);
    close_peer(&b, &b.peers[0]);
    close_peer(&b, c);
    cr_assert_eq(ct_service_jobs(b.service), 2, "its node may come back");
    struct peer *d = open_peer(&b, 3);
    join(&b, d, "d", 2);
    cr_assert_eq(d->refused, 0, "%s", d->text);
    cr_assert_eq(ct_service_jobs(b.service), 2);
    ct_service_free(b.service);
}

Test(service, a_lease_above_what_the_daemon_gives_is_refused_with_the_limit)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *peer = open_peer(&b, 0);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    struct ct_message m = join_of(peer, 1);
    m.join.lease_ms = 600001;
    m.join.autonomy_ms = 2000000;
    ct_service_message(b.service, 0, peer->link, &m);
    cr_assert_eq(peer->refused, CT_EUSAGE);
    cr_assert_not_null(strstr(peer->text, "a lease of 600001 ms, this rendezvous gives 600000 ms"),
                       "%s", peer->text);
    cr_assert_eq(ct_service_jobs(b.service), 0);
    cr_assert_not(ct_service_has_joined(b.service, peer->link));
    peer = open_peer(&b, 1);
    hello(&b, peer, "j", CT_WIRE_PROTOCOL);
    m = join_of(peer, 1);
    m.join.lease_ms = 600000;
    m.join.autonomy_ms = 2000000;
    m.join.prepare_ms = 200000;
    ct_service_message(b.service, 0, peer->link, &m);
    cr_assert_eq(peer->refused, 0, "%s", peer->text);
    cr_assert(ct_service_has_joined(b.service, peer->link));
    cr_assert_leq(ct_rdzv_reattach_ms(600000), 5000u,
                  "a closed connection is not waited for longer");
    ct_service_free(b.service);
}

Test(service, links_beyond_the_limit_are_not_opened_and_numbers_are_never_used_again)
{
    struct bench b;
    struct ct_service_limits limits = {.links = 2};
    begin(&b, &limits);
    uint64_t first = open_peer(&b, 0)->link;
    struct peer *second = open_peer(&b, 1);
    cr_assert_eq(ct_service_open(b.service, &b.peers[2]), 0);
    close_peer(&b, second);
    uint64_t again = ct_service_open(b.service, &b.peers[2]);
    cr_assert_neq(again, 0);
    cr_assert_neq(again, second->link);
    cr_assert_neq(again, first);
    ct_service_free(b.service);
}

Test(service, a_job_that_may_grow_beyond_the_links_is_told_of_once_at_its_start)
{
    static const char *const words =
        "up to 3 nodes may join, but this rendezvous has room for 2 connections: nodes beyond them "
        "are told to retry; raise the hard limit of descriptors where it runs (`ulimit -Hn`)";
    struct bench b;
    struct ct_service_limits limits = {.links = 2};
    begin(&b, &limits);
    join(&b, open_peer(&b, 0), "fits", 2);
    close_peer(&b, &b.peers[0]);
    cr_assert_eq(b.limits_told, 0);
    for (size_t i = 1; i < 3; i++)
        join(&b, open_peer(&b, i), "j", 3);
    cr_assert_eq(b.limits_told, 1);
    cr_assert_str_eq(b.limit, words);
    ct_service_free(b.service);
}

Test(service, too_many_open_store_requests_end_the_link)
{
    struct bench b;
    struct ct_service_limits limits = {.open_requests = 3};
    begin(&b, &limits);
    struct peer *a = open_peer(&b, 0);
    join(&b, a, "j", 1);
    promise(&b, a, 1);
    for (uint64_t i = 0; i < 4; i++) {
        struct ct_message m = {.type = CT_MSG_STORE_WAIT,
                               .store_wait = {.request = i, .generation = 1, .key = "never"}};
        cr_assert_eq(a->closed, 0);
        ct_service_message(b.service, 0, a->link, &m);
    }
    cr_assert_eq(a->closed, CT_EPROTOCOL);
    ct_service_free(b.service);
}

static void set(struct bench *b, const struct peer *peer, uint64_t request, const char *value)
{
    struct ct_message m = {.type = CT_MSG_STORE_SET,
                           .store_set = {.request = request << 32,
                                         .generation = 1,
                                         .key = "k",
                                         .value = {(const unsigned char *)value, 1}}};
    ct_service_message(b->service, 0, peer->link, &m);
}

static char value_of(struct bench *b, const struct peer *peer)
{
    struct ct_message m = {.type = CT_MSG_STORE_GET,
                           .store_get = {.request = 99, .generation = 1, .key = "k"}};
    ct_service_message(b->service, 0, peer->link, &m);
    return b->value;
}

/* Its answer was lost; another client has read the value, and set its own. */
Test(service, a_set_that_is_repeated_on_the_next_connection_is_answered_and_done_once)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *a = open_peer(&b, 0), *c = open_peer(&b, 1);
    join(&b, a, "j", 2);
    join(&b, c, "j", 2);
    promise(&b, a, 1);
    promise(&b, c, 1);
    set(&b, a, 1, "a");
    close_peer(&b, a);
    set(&b, c, 1, "c");
    a->link = ct_service_open(b.service, a);
    struct ct_message again = join_of(a, 2);
    again.join.generation = again.join.acting = 1;
    hello(&b, a, "j", CT_WIRE_PROTOCOL);
    ct_service_message(b.service, 0, a->link, &again);
    unsigned replies = a->replies;
    set(&b, a, 1, "a");
    cr_assert_eq(a->replies, replies + 1);
    cr_assert_eq(value_of(&b, c), 'c');
    set(&b, a, 2, "b");
    cr_assert_eq(value_of(&b, c), 'b');
    ct_service_free(b.service);
}

Test(service, a_member_that_was_given_up_is_told_so_at_its_next_word)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *a = open_peer(&b, 0);
    join(&b, a, "j", 2);
    scene_pass(b.service, 0, 1001);
    struct ct_message m = {.type = CT_MSG_HEARTBEAT, .heartbeat = {.seq = ++a->seq}};
    ct_service_message(b.service, 1001, a->link, &m);
    cr_assert_eq(a->closed, CT_EFENCED);
    ct_service_free(b.service);
}

Test(service, a_heartbeat_that_crosses_the_answer_to_leaving_is_no_offence)
{
    struct bench b;
    begin(&b, NULL);
    struct peer *a = open_peer(&b, 0);
    join(&b, a, "j", 2);
    struct ct_message leave = {
        .type = CT_MSG_LEAVE,
        .leave = {.seq = ++a->seq, .how = CT_RDZV_LEAVE_DRAIN, .reason = "over"}};
    ct_service_message(b.service, 0, a->link, &leave);
    cr_assert_eq(a->releases, 1);
    struct ct_message m = {.type = CT_MSG_HEARTBEAT, .heartbeat = {.seq = ++a->seq}};
    ct_service_message(b.service, 1, a->link, &m);
    cr_assert_eq(a->closed, 0, "%s", a->text);
    cr_assert_eq(a->releases, 2, "it is told once more that it may go");
    ct_service_free(b.service);
}

Test(service, the_node_of_the_services_own_process_has_no_lease_to_lose_but_its_link)
{
    struct bench b;
    struct peer probe;
    begin(&b, NULL);
    probe = *open_peer(&b, 0);
    const struct ct_message known = join_of(&probe, 1);
    struct ct_service_limits limits = {.own = known.join.incarnation};
    ct_service_free(b.service);

    begin(&b, &limits);
    struct peer *a = open_peer(&b, 0);
    join(&b, a, "j", 1);
    promise(&b, a, 1);
    const struct ct_rdzv *job = rdzv_job(b.service, 0);
    scene_pass(b.service, 0, 100000); /* its lease is 1 s */
    cr_assert_eq(a->closes, 0);
    cr_assert_neq(ct_rdzv_phase(job), CT_RDZV_CLOSED);
    ct_service_closed(b.service, 100001, a->link, false);
    scene_pass(b.service, 100001, 101000);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(job)->code, CT_ENODE_LOST);
    ct_service_free(b.service);
}

Test(service, status_and_metrics_name_every_job)
{
    struct bench b;
    struct ct_buf text;
    begin(&b, NULL);
    join(&b, open_peer(&b, 0), "one", 2);
    join(&b, open_peer(&b, 1), "two \"quoted\"", 2);
    ct_buf_init(&text, 0);
    ct_service_describe(b.service, NULL, &text);
    cr_assert_not_null(
        strstr(ct_buf_str(&text), "job one: waiting for 1 more node (1 of 2 joined: h)"));
    ct_buf_clear(&text);
    ct_service_metrics(b.service, 0, NULL, &text);
    cr_assert_not_null(
        strstr(ct_buf_str(&text), "ctrun_members{job_id=\"two \\\"quoted\\\"\"} 1\n"));
    ct_buf_deinit(&text);
    ct_service_free(b.service);
}
