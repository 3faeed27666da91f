/* The journal: what is kept comes back, torn tails are cut, damage is refused. */
#include "scene.h"

#include "rendezvous/service/admin.h"
#include "rendezvous/service/journal.h"
#include "rendezvous/service/records.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "rdzv_check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(journal, .timeout = 30);

/* ---- bytes ---- */

enum { RECORDS = 40 };

struct read_back {
    size_t count;
    char text[RECORDS + 1][64];
};

static int on_record(void *context, const void *payload, size_t size, struct ct_error *err)
{
    struct read_back *back = context;
    (void)err;
    cr_assert(back->count <= RECORDS && size < 64);
    memcpy(back->text[back->count], payload, size);
    back->text[back->count++][size] = '\0';
    return 0;
}

static void write_records(struct ct_buf *bytes, size_t ends[RECORDS])
{
    struct ct_journal_tail tail = {0};
    ct_buf_init(bytes, 0);
    for (size_t i = 0; i < RECORDS; i++) {
        char text[64];
        int size = snprintf(text, sizeof(text), "record %zu %.*s", i, (int)(i % 30),
                            "abcdefghijklmnopqrstuvwxyzabcd");
        ct_journal_frame(&tail, text, (size_t)size, bytes);
        ends[i] = bytes->size;
    }
}

static int scan(const void *data, size_t size, struct read_back *back, size_t *ret_valid)
{
    struct ct_journal_tail tail;
    struct ct_error err = {0};
    memset(back, 0, sizeof(*back));
    return ct_journal_scan(data, size, on_record, back, &tail, ret_valid, &err);
}

Test(journal, a_tail_torn_at_any_byte_is_cut_and_nothing_before_it_is_lost)
{
    struct ct_buf bytes;
    size_t ends[RECORDS];
    struct read_back back;
    write_records(&bytes, ends);
    size_t whole = 0;
    for (size_t size = 0; size <= bytes.size; size++) {
        size_t valid = SIZE_MAX;
        while (whole < RECORDS && ends[whole] <= size)
            whole++;
        cr_assert_eq(scan(bytes.data, size, &back, &valid), 0, "%zu bytes", size);
        cr_assert_eq(back.count, whole, "%zu bytes", size);
        cr_assert_eq(valid, whole > 0 ? ends[whole - 1] : 0);
    }
    cr_assert_str_eq(back.text[3], "record 3 abc");
    ct_buf_deinit(&bytes);
}

/* A long journal: 1,000 records, cut at every byte. */
enum { MANY = 1000 };

static int count_record(void *context, const void *payload, size_t size, struct ct_error *err)
{
    size_t *count = context;
    (void)err;
    cr_assert(size == 8 && ct_get_le64(payload) == *count, "record %zu", *count);
    ++*count;
    return 0;
}

Test(journal, a_thousand_records_cut_at_any_byte_give_back_all_that_are_whole)
{
    struct ct_buf bytes;
    struct ct_journal_tail tail = {0};
    const size_t each = CT_JOURNAL_HEADER + 8;
    ct_buf_init(&bytes, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        unsigned char payload[8];
        ct_put_le64(payload, i);
        ct_journal_frame(&tail, payload, sizeof(payload), &bytes);
    }
    cr_assert_eq(bytes.size, MANY * each);
    /* At each byte of the first and the last records; of those between, at each offset in turn. */
    for (size_t size = 0; size <= bytes.size;
         size += size < 50 * each || size + 50 * each > bytes.size ? 1 : 11) {
        struct ct_journal_tail end;
        struct ct_error err = {0};
        size_t count = 0;
        size_t valid = SIZE_MAX;
        int rc = ct_journal_scan(bytes.data, size, count_record, &count, &end, &valid, &err);
        cr_assert(rc == 0 && count == size / each && valid == count * each && end.seq == count,
                  "cut at byte %zu: %d %s", size, rc, err.text);
    }
    ct_buf_deinit(&bytes);
}

Test(journal, a_changed_byte_before_the_last_record_is_refused)
{
    struct ct_buf bytes;
    size_t ends[RECORDS];
    struct read_back back;
    write_records(&bytes, ends);
    for (size_t at = 0; at < bytes.size; at++) {
        size_t valid = 0;
        bytes.data[at] ^= 0x10;
        int rc = scan(bytes.data, bytes.size, &back, &valid);
        if (at < ends[RECORDS - 2])
            cr_assert_eq(rc, CT_EDATA, "byte %zu", at);
        else
            cr_assert(rc == 0 && valid == ends[RECORDS - 2], "byte %zu", at);
        bytes.data[at] ^= 0x10;
    }
    ct_buf_deinit(&bytes);
}

Test(journal, a_missing_record_is_refused)
{
    struct ct_buf bytes;
    size_t ends[RECORDS];
    size_t valid;
    struct read_back back;
    write_records(&bytes, ends);
    memmove(bytes.data + ends[4], bytes.data + ends[5], bytes.size - ends[5]);
    cr_assert_eq(scan(bytes.data, bytes.size - (ends[5] - ends[4]), &back, &valid), CT_EDATA);
    ct_buf_deinit(&bytes);
}

/* ---- records ---- */

Test(journal, random_bytes_are_never_taken_for_a_record_that_breaks_something)
{
    struct ct_rng rng;
    ct_rng_init(&rng, 5);
    for (int i = 0; i < 20000; i++) {
        unsigned char bytes[96];
        size_t size = ct_rng_below(&rng, sizeof(bytes));
        for (size_t k = 0; k < size; k++)
            bytes[k] = (unsigned char)ct_rng_next(&rng);
        static const unsigned char kinds[] = {1, 2, 3, 16, 17};
        bytes[0] = kinds[ct_rng_below(&rng, sizeof(kinds))];
        bytes[1] = bytes[2] = 0; /* an empty name, so that the body is reached */
        struct ct_arena arena;
        struct ct_record record;
        struct ct_error err = {0};
        ct_arena_init(&arena, 1 << 20);
        (void)ct_record_read(bytes, size, &arena, &record, &err);
        ct_arena_deinit(&arena);
    }
}

/* ---- a service and its successor ---- */

struct world {
    struct ct_service *service;
    struct ct_buf journal;
    struct ct_journal_tail tail;
    struct ct_message last; /* sent: only its numbers count */
    uint64_t prepares, rounds, closes;
    struct ct_id id;
    uint32_t nodes; /* of the job; 0: one */
};

static void on_send(void *context, void *peer, const struct ct_message *message)
{
    struct world *world = context;
    (void)peer;
    world->last = *message;
    world->prepares += message->type == CT_MSG_PREPARE;
    world->rounds += message->type == CT_MSG_ROUND;
    world->closes += message->type == CT_MSG_CLOSE;
}

static void on_close(void *context, void *peer, int code, const char *sentence)
{
    (void)context;
    (void)peer;
    (void)code;
    (void)sentence;
}

static int on_persist(void *context, uint64_t ticket, const void *record, size_t size,
                      bool may_compact)
{
    struct world *world = context;
    (void)ticket;
    (void)may_compact;
    ct_journal_frame(&world->tail, record, size, &world->journal);
    return 0;
}

static void on_announce(void *context, const char *job, const char *sentence)
{
    (void)context;
    (void)job;
    (void)sentence;
}

static int on_replay(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct world *world = context;
    return ct_service_restore(world->service, 5000000, record, size, err);
}

/* The daemon starts, with what the journal holds. */
static void start(struct world *world)
{
    const struct ct_service_io io = {
        .context = world,
        .send = on_send,
        .close = on_close,
        .persist = on_persist,
        .announce = on_announce,
    };
    struct ct_error err = {0};
    size_t valid;
    world->service = ct_service_new(NULL, &io, 0);
    cr_assert_eq(ct_journal_scan(world->journal.data, world->journal.size, on_replay, world,
                                 &world->tail, &valid, &err),
                 0, "%s", err.text);
    ct_service_restored(world->service, world->service->epoch + 1);
    world->prepares = world->rounds = world->closes = 0;
}

static uint64_t join(struct world *world, uint64_t now_ms, uint64_t seq, uint64_t acting)
{
    uint64_t link = ct_service_open(world->service, world);
    struct ct_message hello = {.type = CT_MSG_HELLO,
                               .hello = {.protocol = CT_WIRE_PROTOCOL,
                                         .job = "j",
                                         .host = "h",
                                         .incarnation = world->id,
                                         .role = "agent"}};
    struct ct_message message = {.type = CT_MSG_JOIN,
                                 .join = {.generation = acting,
                                          .seq = seq,
                                          .acting = acting,
                                          .incarnation = world->id,
                                          .slots = 2,
                                          .node_rank = -1,
                                          .slurm_node = -1,
                                          .nodes_min = CT_MAX(world->nodes, 1u),
                                          .nodes_max = CT_MAX(world->nodes, 1u),
                                          .host = "h",
                                          .address = "",
                                          .role = "default",
                                          .settings = "",
                                          .join_timeout_ms = 1000,
                                          .last_call_ms = 1,
                                          .lease_ms = 1000,
                                          .prepare_ms = 1000,
                                          .grow_ms = 100,
                                          .autonomy_ms = 600000}};
    ct_service_message(world->service, now_ms, link, &hello);
    ct_service_message(world->service, now_ms, link, &message);
    return link;
}

static void form(struct world *world)
{
    memset(world, 0, sizeof(*world));
    ct_buf_init(&world->journal, 0);
    world->id = (struct ct_id){7, 8};
    start(world);
    uint64_t link = join(world, 1000, 1, 0);
    struct ct_message prepared = {.type = CT_MSG_PREPARED,
                                  .prepared = {.generation = 1, .seq = 2, .port = 99}};
    ct_service_message(world->service, 1001, link, &prepared);
    cr_assert_eq(world->rounds, 1);
}

Test(journal, a_daemon_that_comes_back_knows_the_round_and_disturbs_nobody)
{
    struct world world;
    form(&world);
    ct_service_free(world.service);
    start(&world);
    const struct ct_rdzv *job = rdzv_job(world.service, 0);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_RECOVER);
    cr_assert_str_eq(ct_rdzv_roster(job)->places[0].host, "h");
    cr_assert_eq(ct_rdzv_roster(job)->places[0].port, 99);
    uint64_t link = join(&world, 5000100, 3, 1);
    cr_assert_eq(world.last.type, CT_MSG_WELCOME);
    cr_assert_eq(world.last.welcome.generation, 1);
    cr_assert_eq(world.last.welcome.epoch, 1);
    struct ct_message heartbeat = {
        .type = CT_MSG_HEARTBEAT,
        .heartbeat = {.generation = 1, .seq = 4, .acting = 1, .recovered = 1}};
    ct_service_message(world.service, 5000200, link, &heartbeat);
    ct_service_tick(world.service, 5000900);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_RUNNING);
    cr_assert_eq(world.prepares + world.rounds + world.closes, 0);
    ct_service_free(world.service);
    ct_buf_deinit(&world.journal);
}

Test(journal, who_was_still_on_its_way_into_the_round_begins_another_at_nobodys_charge)
{
    struct world world;
    form(&world);
    ct_service_free(world.service);
    start(&world);
    const struct ct_rdzv *job = rdzv_job(world.service, 0);
    uint64_t link = join(&world, 5000100, 3, 1);
    struct ct_message heartbeat = {.type = CT_MSG_HEARTBEAT,
                                   .heartbeat = {.generation = 1, .seq = 4, .acting = 1}};
    ct_service_message(world.service, 5000200, link, &heartbeat);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_PREPARE);
    cr_assert_eq(ct_rdzv_generation(job), 2);
    cr_assert_eq(ct_rdzv_restarts(job), 0);
    ct_service_free(world.service);
    ct_buf_deinit(&world.journal);
}

Test(journal, a_node_that_does_not_come_back_is_lost_after_its_lease_and_the_grace)
{
    struct world world;
    form(&world);
    ct_service_free(world.service);
    start(&world);
    const struct ct_rdzv *job = rdzv_job(world.service, 0);
    scene_pass(world.service, 5000100, 5005900);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_RECOVER);
    scene_pass(world.service, 5005900, 5006001);
    cr_assert_eq(ct_rdzv_phase(job), CT_RDZV_CLOSED);
    cr_assert_eq(ct_rdzv_result(job)->code, CT_ENODE_LOST);
    ct_service_free(world.service);
    start(&world);
    cr_assert_eq(ct_rdzv_phase(rdzv_job(world.service, 0)), CT_RDZV_CLOSED);
    (void)join(&world, 5000001, 3, 1);
    cr_assert_eq(world.closes, 1, "who comes late is told the result");
    ct_service_free(world.service);
    ct_buf_deinit(&world.journal);
}

static int emit_record(void *context, const void *record, size_t size)
{
    return on_persist(context, 0, record, size, true);
}

Test(journal, publications_and_cordons_are_known_to_the_next_daemon)
{
    struct world world;
    form(&world);
    uint64_t node = join(&world, 1002, 3, 1);
    uint64_t desk = ct_service_open(world.service, &world);
    struct ct_message hello = {
        .type = CT_MSG_HELLO,
        .hello = {.protocol = CT_WIRE_PROTOCOL, .job = "j", .host = "desk", .role = "admin"}};
    struct ct_message cordon = {.type = CT_MSG_ADMIN,
                                .admin = {.verb = CT_ADMIN_CORDON,
                                          .host = "bad",
                                          .author = "me",
                                          .reason = "a fan",
                                          .for_ms = 60000}};
    struct ct_message publish = {.type = CT_MSG_PUBLISH,
                                 .publish = {.generation = 1, .seq = 4, .step = 40, .digest = 5}};
    ct_service_message(world.service, 1002, desk, &hello);
    ct_service_message(world.service, 1002, desk, &cordon);
    cr_assert(world.last.type == CT_MSG_ADMIN_REPLY && world.last.admin_reply.code == 0);
    ct_service_message(world.service, 1003, node, &publish);
    cr_assert(world.last.type == CT_MSG_PUBLISHED && world.last.published.code == 0);
    for (int i = 0; i < 2; i++) { /* from the records, then from a snapshot of them */
        ct_service_free(world.service);
        start(&world);
        const struct ct_rdzv *job = rdzv_job(world.service, 0);
        cr_assert_eq(ct_rdzv_published(job)->step, 40);
        cr_assert_eq(ct_rdzv_published(job)->digest, 5);
        cr_assert_str_eq(ct_rdzv_cordon(job, 0)->host, "bad");
        cr_assert_str_eq(ct_rdzv_cordon(job, 0)->reason, "by me: a fan");
        cr_assert_eq(ct_rdzv_cordon(job, 0)->until_ms, 5060000, "what is left runs from now on");
        cr_assert_null(ct_rdzv_cordon(job, 1));
        struct world copy = {.id = {7, 8}};
        ct_buf_init(&copy.journal, 0);
        cr_assert_eq(ct_service_snapshot(world.service, emit_record, &copy), 0);
        ct_buf_deinit(&world.journal);
        world.journal = copy.journal;
        world.tail = copy.tail;
    }
    ct_service_free(world.service);
    ct_buf_deinit(&world.journal);
}

Test(journal, a_job_that_ends_before_its_first_round_leaves_nothing_to_replay)
{
    struct world world = {.id = {7, 8}, .nodes = 2};
    ct_buf_init(&world.journal, 0);
    start(&world);
    uint64_t link = join(&world, 1000, 1, 0);
    struct ct_message stop = {.type = CT_MSG_LEAVE,
                              .leave = {.seq = 2, .how = CT_RDZV_LEAVE_STOP, .reason = ""}};
    ct_service_message(world.service, 1000, link, &stop);
    cr_assert_eq(world.closes, 1);
    struct world copy = {.id = {7, 8}};
    ct_buf_init(&copy.journal, 0);
    cr_assert_eq(ct_service_snapshot(world.service, emit_record, &copy), 0);
    ct_service_free(world.service);
    start(&world); /* asserts that all records can be replayed */
    ct_service_free(world.service);
    start(&copy);
    ct_service_free(copy.service);
    ct_buf_deinit(&world.journal);
    ct_buf_deinit(&copy.journal);
}

Test(journal, a_snapshot_says_the_same_as_all_records)
{
    struct world world;
    form(&world);
    struct world copy = {.id = {7, 8}};
    ct_buf_init(&copy.journal, 0);
    struct ct_buf line;
    struct ct_buf same;
    ct_buf_init(&line, 0);
    ct_buf_init(&same, 0);
    ct_service_describe(world.service, NULL, &line);
    cr_assert_eq(ct_service_snapshot(world.service, emit_record, &copy), 0);
    ct_service_free(world.service);
    start(&copy);
    ct_service_describe(copy.service, NULL, &same);
    cr_assert_str_eq(ct_buf_str(&line), ct_buf_str(&same));
    ct_service_free(copy.service);
    ct_buf_deinit(&copy.journal);
    ct_buf_deinit(&world.journal);
    ct_buf_deinit(&line);
    ct_buf_deinit(&same);
}
