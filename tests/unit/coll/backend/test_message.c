/* Messages between members that leave and groups that fail, over a transport whose every delivery
 * the test decides: two ends, at first in two threads, for the handshake, then in one. */
#include "algorithm/select.h"
#include "backend/message/message.h"
#include "job/job.h"

#include "base/assert.h"
#include "base/clock.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

TestSuite(engine, .timeout = 60);

enum { COUNT = 5000, PACKETS = 64, AN_HOUR_MS = 3600000 };

/* ---- the transport -------------------------------------------------------------------------- */

struct packet {
    enum ct_engine_channel channel;
    int from, to;
    size_t bytes;
    char *data;
};

struct wire {
    pthread_mutex_t lock; /* of all here */
    struct packet packets[PACKETS];
    int count;
    bool held[CT_CHANNELS]; /* nothing of these arrives */
};

/* One rank's. */
struct end {
    struct wire *wire;
    int rank;
    struct ct_peer_message *open[PACKETS];
    int open_count;
    bool stuck;          /* long messages do not go out: */
    int waits_until_out; /* not before this end has waited so often */
    int waits, canceled; /* of those that go out */
    struct ct_message_transport transport;
    struct ct_job job;
    struct ct_control_page page;
    struct ct_engine engine;
};

static void close_at(struct end *end, int at)
{
    end->open[at] = end->open[--end->open_count];
}

static void put_packet(struct end *end, const struct ct_peer_message *message)
{
    struct wire *wire = end->wire;
    struct packet *packet = &wire->packets[wire->count++];

    CT_ASSERT(wire->count <= PACKETS);
    *packet = (struct packet){message->channel, end->rank, message->peer, message->bytes,
                              malloc(message->bytes)};
    CT_ASSERT(packet->data != NULL);
    memcpy(packet->data, message->data, message->bytes);
}

static void remove_packet(struct wire *wire, int at)
{
    free(wire->packets[at].data);
    memmove(&wire->packets[at], &wire->packets[at + 1],
            (size_t)(--wire->count - at) * sizeof wire->packets[0]);
}

static bool is_for(const struct packet *packet, const struct end *end,
                   const struct ct_peer_message *message)
{
    return packet->channel == message->channel && packet->to == end->rank &&
           (message->peer < 0 || packet->from == message->peer);
}

/* Whether it has arrived, or may go. */
static bool move(struct end *end, struct ct_peer_message *message)
{
    struct wire *wire = end->wire;

    if (message->out) {
        if (end->stuck && message->bytes > COUNT && end->waits < end->waits_until_out)
            return false;
        put_packet(end, message);
        return true;
    }
    for (int i = 0; i < wire->count && !wire->held[message->channel]; i++)
        if (is_for(&wire->packets[i], end, message)) {
            CT_ASSERT(wire->packets[i].bytes <= message->bytes);
            memcpy(message->data, wire->packets[i].data, wire->packets[i].bytes);
            remove_packet(wire, i);
            return true;
        }
    return false;
}

static void make_progress(void *context)
{
    struct end *end = context;

    (void)pthread_mutex_lock(&end->wire->lock);
    for (int i = 0; i < end->open_count;) {
        struct ct_peer_message *message = end->open[i];

        if (!move(end, message)) {
            i++;
            continue;
        }
        atomic_store(&message->state, CT_PEER_MESSAGE_DONE);
        close_at(end, i);
        i = 0; /* those of a pair in their order */
    }
    (void)pthread_mutex_unlock(&end->wire->lock);
}

static void post(void *context, struct ct_peer_message *message)
{
    struct end *end = context;

    CT_ASSERT(end->open_count < PACKETS);
    end->open[end->open_count++] = message;
}

static bool is_done(void *context, struct ct_peer_message *message)
{
    (void)context;
    return atomic_load(&message->state) == CT_PEER_MESSAGE_DONE;
}

static void cancel(void *context, struct ct_peer_message *message)
{
    struct end *end = context;
    int at = 0;

    while (end->open[at] != message)
        at++;
    close_at(end, at);
    end->canceled += message->out;
}

static void drain(void *context)
{
    (void)context;
}

static void wait(void *context, uint64_t timeout_ns)
{
    struct end *end = context;

    (void)timeout_ns;
    end->waits++;
    (void)sched_yield();
}

/* ---- two ends --------------------------------------------------------------------------------*/

struct pair {
    struct wire wire;
    struct end ends[2];
};

static void *handshake(void *argument)
{
    struct end *end = argument;
    static const int ranks[2] = {0, 1};
    const struct ct_setup setup = {.job = &end->job,
                                   .key = "pair/1",
                                   .rank = end->rank,
                                   .size = 2,
                                   .ranks = ranks,
                                   .deadline_ns = ct_clock_mono_ns(&ct_clock_system) +
                                                  (uint64_t)AN_HOUR_MS * UINT64_C(1000000),
                                   .tuning = ct_tuning_complete(&(struct ct_tuning){0})};
    struct ct_error err;

    CT_ASSERT(ct_engine_init(&end->engine, &setup, &end->transport, end) == 0);
    CT_ASSERT(ct_engine_handshake(&end->engine, &setup, &err) == 0);
    end->waits = 0;
    return NULL;
}

static struct pair *pair_new(void)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pthread_t thread;

    cr_assert_not_null(pair);
    (void)pthread_mutex_init(&pair->wire.lock, NULL);
    for (int i = 0; i < 2; i++) {
        struct end *end = &pair->ends[i];

        end->wire = &pair->wire;
        end->rank = i;
        end->transport =
            (struct ct_message_transport){.post = post,
                                          .progress = make_progress,
                                          .is_done = is_done,
                                          .cancel = cancel,
                                          .drain = drain,
                                          .wait = wait,
                                          .send_grace_ns = AN_HOUR_MS * UINT64_C(1000000)};
        end->job = (struct ct_job){.assignment = {.generation = 1}, .page = &end->page};
    }
    cr_assert_eq(pthread_create(&thread, NULL, handshake, &pair->ends[1]), 0);
    (void)handshake(&pair->ends[0]);
    (void)pthread_join(thread, NULL);
    return pair;
}

static void pair_free(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        ct_engine_close(&pair->ends[i].engine);
        ct_engine_deinit(&pair->ends[i].engine);
    }
    while (pair->wire.count > 0)
        remove_packet(&pair->wire, 0);
    (void)pthread_mutex_destroy(&pair->wire.lock);
    free(pair);
}

/* A message of `count` between the two, from or to `end`. */
static struct ct_task message(const struct end *end, bool out, int32_t *data, size_t count)
{
    struct ct_call call = {.kind = out ? CT_CALL_SEND : CT_CALL_RECV,
                           .dtype = CT_I32,
                           .count = count,
                           .peer = 1 - end->rank,
                           .send = out ? (const char *)data : NULL,
                           .recv = out ? NULL : (char *)data,
                           .rank = end->rank,
                           .size = 2,
                           .members = 2};

    cr_assert(ct_call_complete(&call));
    return (struct ct_task){.call = call, .signature = ct_call_signature(&call)};
}

/* Make progress a few times. */
static int progress(struct end *end, struct ct_task *task, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < 5 && code == 0; i++)
        code = ct_engine_progress(&end->engine, task, err);
    return code;
}

/* ---- leaving ---------------------------------------------------------------------------------*/

static void expect_what_was_sent(size_t count)
{
    struct pair *pair = pair_new();
    int32_t *sent = calloc(count, sizeof *sent), *got = calloc(count, sizeof *got);
    struct ct_task out = message(&pair->ends[1], true, sent, count);
    struct ct_task in = message(&pair->ends[0], false, got, count);
    struct ct_error err = {0};

    for (size_t i = 0; i < count; i++)
        sent[i] = (int32_t)i;
    cr_assert_eq(progress(&pair->ends[1], &out, &err), 1, "%s", err.text);
    ct_engine_close(&pair->ends[1].engine);
    pair->wire.held[CT_CHANNEL_TRANSFER] = true;
    cr_assert_eq(progress(&pair->ends[0], &in, &err), 0, "%s", err.text);
    cr_assert(pair->ends[0].engine.departures[1].left,
              "the control message has come before the message");
    pair->wire.held[CT_CHANNEL_TRANSFER] = false;
    cr_assert_eq(progress(&pair->ends[0], &in, &err), 1, "%s", err.text);
    cr_assert_arr_eq(got, sent, count * sizeof *sent);
    free(sent);
    free(got);
    pair_free(pair);
}

Test(engine, messages_sent_before_leaving_are_waited_for_however_late)
{
    expect_what_was_sent(10);
    expect_what_was_sent(COUNT);
}

Test(engine, a_receive_that_a_departed_member_did_not_send_fails_at_once)
{
    struct pair *pair = pair_new();
    int32_t data[2][10] = {{0}};
    struct ct_task out = message(&pair->ends[1], true, data[1], 10);
    struct ct_task first = message(&pair->ends[0], false, data[0], 10), second = first;
    struct ct_error err = {0};

    cr_assert_eq(progress(&pair->ends[1], &out, &err), 1);
    ct_engine_close(&pair->ends[1].engine);
    cr_assert_eq(progress(&pair->ends[0], &first, &err), 1);
    cr_assert_eq(progress(&pair->ends[0], &second, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "rank 1 has left the group");
    pair_free(pair);
}

Test(engine, a_send_that_a_departed_member_did_not_receive_fails_at_once)
{
    struct pair *pair = pair_new();
    int32_t *data = calloc(COUNT, sizeof *data);
    struct ct_task out = message(&pair->ends[0], true, data, COUNT);
    struct ct_error err = {0};

    pair->ends[0].stuck = true;
    pair->ends[0].waits_until_out = 10;
    cr_assert_eq(progress(&pair->ends[0], &out, &err), 0);
    ct_engine_close(&pair->ends[1].engine);
    cr_assert_eq(progress(&pair->ends[0], &out, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "rank 1 has left the group");
    ct_engine_fail(&pair->ends[0].engine, CT_ECLOSED);
    free(data);
    pair_free(pair);
}

/* ---- failing --------------------------------------------------------------------------------*/

/* A group fails while a long message goes out, which its peer receives after three waits. Returns
 * whether it was cancelled. */
static bool fail_with_a_message_out(uint64_t send_grace_ns, bool revoked, int waits_until_out)
{
    struct pair *pair = pair_new();
    struct end *end = &pair->ends[0];
    int32_t *data = calloc(COUNT, sizeof *data);
    struct ct_task out = message(end, true, data, COUNT);
    struct ct_error err = {0};

    end->stuck = true;
    end->waits_until_out = waits_until_out;
    end->transport.send_grace_ns = send_grace_ns;
    cr_assert_eq(progress(end, &out, &err), 0);
    if (revoked)
        ct_control_page_revoke(&end->page, 1);
    ct_engine_fail(&end->engine, CT_ETIMEOUT);
    bool canceled = end->canceled > 0;
    free(data);
    pair_free(pair);
    return canceled;
}

Test(engine, a_group_that_fails_waits_for_its_long_sends)
{
    cr_assert_not(fail_with_a_message_out(AN_HOUR_MS * UINT64_C(1000000), false, 3));
}

Test(engine, sends_that_are_not_received_in_time_are_cancelled)
{
    cr_assert(fail_with_a_message_out(1, false, INT32_MAX));
}

/* However much time there would be for it. */
Test(engine, when_the_round_is_over_no_member_waits_for_long)
{
    cr_assert(fail_with_a_message_out(AN_HOUR_MS * UINT64_C(1000000), true, INT32_MAX));
}
