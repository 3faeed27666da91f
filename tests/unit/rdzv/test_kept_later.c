/* Records that are kept later, as a majority of replicas keeps them: nobody hears of what a record
 * holds before it is kept. */
#include "rendezvous/service/records.h"
#include "rendezvous/service/service.h"

#include "base/arena.h"
#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(kept_later, .timeout = 30);

enum { RECORDS = 16 };

/* Who keeps the records of one node's job, and what the node has heard. */
struct keeper {
    struct ct_service *service;
    uint64_t link, seq;
    uint64_t tickets[RECORDS]; /* that were given out, in order */
    enum ct_record_kind kinds[RECORDS];
    size_t count;
    unsigned prepares, rounds, closes, published;
    int32_t published_code;
};

static void on_send(void *context, void *peer, const struct ct_message *message)
{
    struct keeper *k = context;
    (void)peer;
    k->prepares += message->type == CT_MSG_PREPARE;
    k->rounds += message->type == CT_MSG_ROUND;
    k->closes += message->type == CT_MSG_CLOSE;
    if (message->type != CT_MSG_PUBLISHED)
        return;
    k->published++;
    k->published_code = message->published.code;
}

static void on_close(void *context, void *peer, int code, const char *sentence)
{
    (void)context;
    (void)peer;
    cr_assert_fail("closed with %d: %s", code, sentence);
}

static void on_announce(void *context, const char *job, const char *sentence)
{
    (void)context;
    (void)job;
    (void)sentence;
}

static int on_persist(void *context, uint64_t ticket, const void *record, size_t size,
                      bool may_compact)
{
    struct keeper *k = context;
    struct ct_record content;
    struct ct_arena arena;
    struct ct_error err = {0};
    (void)may_compact;
    ct_arena_init(&arena, 1 << 20);
    cr_assert_eq(ct_record_read(record, size, &arena, &content, &err), 0, "%s", err.text);
    cr_assert_lt(k->count, (size_t)RECORDS);
    k->kinds[k->count] = content.kind;
    k->tickets[k->count++] = ticket;
    ct_arena_deinit(&arena);
    return CT_SERVICE_LATER;
}

static void say(struct keeper *k, uint64_t now_ms, struct ct_message message)
{
    ct_service_message(k->service, now_ms, k->link, &message);
}

static void begin(struct keeper *k)
{
    const struct ct_service_io io = {.context = k,
                                     .send = on_send,
                                     .close = on_close,
                                     .persist = on_persist,
                                     .announce = on_announce};
    const struct ct_id id = {1, 2};
    memset(k, 0, sizeof(*k));
    k->service = ct_service_new(NULL, &io, 1);
    k->link = ct_service_open(k->service, k);
    say(k, 0,
        (struct ct_message){.type = CT_MSG_HELLO,
                            .hello = {.protocol = CT_WIRE_PROTOCOL,
                                      .job = "j",
                                      .host = "h",
                                      .incarnation = id,
                                      .role = "agent"}});
    say(k, 0,
        (struct ct_message){.type = CT_MSG_JOIN,
                            .join = {.seq = ++k->seq,
                                     .incarnation = id,
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
                                     .lease_ms = 60000,
                                     .prepare_ms = 60000,
                                     .grow_ms = 100,
                                     .autonomy_ms = 6000000}});
}

static void promise(struct keeper *k)
{
    say(k, 0,
        (struct ct_message){.type = CT_MSG_PREPARED,
                            .prepared = {.generation = 1, .seq = ++k->seq}});
}

static void publish(struct keeper *k, uint64_t step)
{
    say(k, 0,
        (struct ct_message){.type = CT_MSG_PUBLISH,
                            .publish = {.generation = 1, .seq = ++k->seq, .step = step}});
}

static void finish(struct keeper *k)
{
    say(k, 0, (struct ct_message){.type = CT_MSG_DONE, .done = {.generation = 1, .seq = ++k->seq}});
}

static void form(struct keeper *k)
{
    begin(k);
    ct_service_kept(k->service, 0, k->tickets[0], 0);
    promise(k);
    ct_service_kept(k->service, 0, k->tickets[1], 0);
    cr_assert_eq(k->rounds, 1);
}

Test(kept_later, a_round_is_told_once_its_record_is_kept)
{
    struct keeper k;
    begin(&k);
    cr_assert_eq(k.count, 1);
    cr_assert_eq(k.kinds[0], CT_RECORD_RESERVE);
    cr_assert_eq(k.prepares, 0, "the generation is not kept yet");
    ct_service_kept(k.service, 0, k.tickets[0], 0);
    cr_assert_eq(k.prepares, 1);
    promise(&k);
    cr_assert_eq(k.kinds[1], CT_RECORD_COMMIT);
    cr_assert_gt(k.tickets[1], k.tickets[0]);
    cr_assert_eq(k.rounds, 0, "the roster is not kept yet");
    ct_service_kept(k.service, 0, k.tickets[1], 0);
    cr_assert_eq(k.rounds, 1);
    ct_service_free(k.service);
}

Test(kept_later, several_records_are_open_at_a_time_and_each_answer_finds_its_own)
{
    struct keeper k;
    form(&k);
    publish(&k, 7);
    finish(&k);
    cr_assert_eq(k.count, 4);
    cr_assert_eq(k.kinds[2], CT_RECORD_MANIFEST);
    cr_assert_eq(k.kinds[3], CT_RECORD_CLOSE);
    ct_service_kept(k.service, 0, k.tickets[3], 0);
    cr_assert_eq(k.closes, 1);
    cr_assert_eq(k.published, 0);
    ct_service_kept(k.service, 0, k.tickets[2], 0);
    cr_assert_eq(k.published, 1);
    cr_assert_eq(k.published_code, 0);
    ct_service_free(k.service);
}

Test(kept_later, an_answer_counts_once_and_a_strange_one_not_at_all)
{
    struct keeper k;
    begin(&k);
    ct_service_kept(k.service, 0, k.tickets[0] + 77, 0);
    cr_assert_eq(k.prepares, 0);
    ct_service_kept(k.service, 0, k.tickets[0], 0);
    ct_service_kept(k.service, 0, k.tickets[0], 0);
    cr_assert_eq(k.prepares, 1);
    ct_service_free(k.service);
}

Test(kept_later, a_record_that_cannot_be_kept_is_given_again_and_nobody_hears_of_it)
{
    struct keeper k;
    begin(&k);
    ct_service_kept(k.service, 0, k.tickets[0], CT_EFENCED);
    cr_assert_eq(k.prepares, 0);
    for (uint64_t now_ms = 1; k.count < 2; now_ms += 10) {
        cr_assert_lt(now_ms, 10000u);
        ct_service_tick(k.service, now_ms);
    }
    cr_assert_eq(k.kinds[1], CT_RECORD_RESERVE);
    ct_service_kept(k.service, 10000, k.tickets[1], 0);
    cr_assert_eq(k.prepares, 1);
    ct_service_free(k.service);
}

Test(kept_later, the_answer_for_a_job_that_is_gone_changes_nothing)
{
    struct keeper k;
    form(&k);
    publish(&k, 7);
    finish(&k);
    ct_service_kept(k.service, 0, k.tickets[3], 0);
    ct_service_closed(k.service, 0, k.link, false);
    cr_assert_eq(ct_service_jobs(k.service), 0);
    cr_assert_eq(k.kinds[k.count - 1], CT_RECORD_FORGET);
    cr_assert_eq(k.tickets[k.count - 1], 0, "nobody asks how that ends");
    ct_service_kept(k.service, 0, k.tickets[2], 0);
    cr_assert_eq(k.published, 0);
    ct_service_free(k.service);
}
