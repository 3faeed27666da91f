/* Messages between members that leave and groups that fail, over a transport whose every delivery
 * the test decides: two ends, at first in two threads, for they meet, then in one. */
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

TestSuite(post, .timeout = 60);

enum { COUNT = 5000, LETTERS = 64, AN_HOUR_MS = 3600000 };

/* ---- the transport -------------------------------------------------------------------------- */

struct letter {
    enum ct_post_lane lane;
    int from, to;
    size_t bytes;
    char *data;
};

struct wire {
    pthread_mutex_t lock; /* of all here */
    struct letter letters[LETTERS];
    int count;
    bool held[CT_POST_LANES]; /* nothing of these arrives */
};

/* One rank's. */
struct end {
    struct wire *wire;
    int rank;
    struct ct_peer_message *open[LETTERS];
    int open_count;
    bool stuck;          /* long messages do not go out: */
    int rests_until_out; /* not before this end has rested so often */
    int rests, dropped;  /* of those that go out */
    struct ct_message_transport transport;
    struct ct_job job;
    struct ct_control_page page;
    struct ct_post post;
};

static void forget(struct end *end, int at)
{
    end->open[at] = end->open[--end->open_count];
}

static void put_letter(struct end *end, const struct ct_peer_message *message)
{
    struct wire *wire = end->wire;
    struct letter *letter = &wire->letters[wire->count++];

    CT_ASSERT(wire->count <= LETTERS);
    *letter = (struct letter){message->lane, end->rank, message->peer, message->bytes,
                              malloc(message->bytes)};
    CT_ASSERT(letter->data != NULL);
    memcpy(letter->data, message->data, message->bytes);
}

static void take_letter(struct wire *wire, int at)
{
    free(wire->letters[at].data);
    memmove(&wire->letters[at], &wire->letters[at + 1],
            (size_t)(--wire->count - at) * sizeof wire->letters[0]);
}

static bool is_for(const struct letter *letter, const struct end *end,
                   const struct ct_peer_message *message)
{
    return letter->lane == message->lane && letter->to == end->rank &&
           (message->peer < 0 || letter->from == message->peer);
}

/* Has it come, or may it go? */
static bool move(struct end *end, struct ct_peer_message *message)
{
    struct wire *wire = end->wire;

    if (message->out) {
        if (end->stuck && message->bytes > COUNT && end->rests < end->rests_until_out)
            return false;
        put_letter(end, message);
        return true;
    }
    for (int i = 0; i < wire->count && !wire->held[message->lane]; i++)
        if (is_for(&wire->letters[i], end, message)) {
            CT_ASSERT(wire->letters[i].bytes <= message->bytes);
            memcpy(message->data, wire->letters[i].data, wire->letters[i].bytes);
            take_letter(wire, i);
            return true;
        }
    return false;
}

static void turn(void *context)
{
    struct end *end = context;

    (void)pthread_mutex_lock(&end->wire->lock);
    for (int i = 0; i < end->open_count;) {
        struct ct_peer_message *message = end->open[i];

        if (!move(end, message)) {
            i++;
            continue;
        }
        atomic_store(&message->state, CT_PEER_MESSAGE_OVER);
        forget(end, i);
        i = 0; /* those of a pair in their order */
    }
    (void)pthread_mutex_unlock(&end->wire->lock);
}

static void post(void *context, struct ct_peer_message *message)
{
    struct end *end = context;

    CT_ASSERT(end->open_count < LETTERS);
    end->open[end->open_count++] = message;
}

static bool over(void *context, struct ct_peer_message *message)
{
    (void)context;
    return atomic_load(&message->state) == CT_PEER_MESSAGE_OVER;
}

static void drop(void *context, struct ct_peer_message *message)
{
    struct end *end = context;
    int at = 0;

    while (end->open[at] != message)
        at++;
    forget(end, at);
    end->dropped += message->out;
}

static void drain(void *context)
{
    (void)context;
}

static void rest(void *context, uint64_t timeout_ns)
{
    struct end *end = context;

    (void)timeout_ns;
    end->rests++;
    (void)sched_yield();
}

/* ---- two ends --------------------------------------------------------------------------------*/

struct pair {
    struct wire wire;
    struct end ends[2];
};

static void *meet(void *argument)
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

    CT_ASSERT(ct_post_init(&end->post, &setup, &end->transport, end) == 0);
    CT_ASSERT(ct_post_meet(&end->post, &setup, &err) == 0);
    end->rests = 0;
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
        end->transport = (struct ct_message_transport){.post = post,
                                                       .turn = turn,
                                                       .over = over,
                                                       .drop = drop,
                                                       .drain = drain,
                                                       .rest = rest,
                                                       .lent_ns = AN_HOUR_MS * UINT64_C(1000000)};
        end->job = (struct ct_job){.assignment = {.generation = 1}, .page = &end->page};
    }
    cr_assert_eq(pthread_create(&thread, NULL, meet, &pair->ends[1]), 0);
    (void)meet(&pair->ends[0]);
    (void)pthread_join(thread, NULL);
    return pair;
}

static void pair_free(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        ct_post_drop(&pair->ends[i].post);
        ct_post_deinit(&pair->ends[i].post);
    }
    while (pair->wire.count > 0)
        take_letter(&pair->wire, 0);
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

/* What comes of some looks at it. */
static int progress(struct end *end, struct ct_task *task, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < 5 && code == 0; i++)
        code = ct_post_progress(&end->post, task, err);
    return code;
}

/* ---- who leaves ------------------------------------------------------------------------------*/

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
    ct_post_drop(&pair->ends[1].post);
    pair->wire.held[CT_POST_TRANSFER] = true;
    cr_assert_eq(progress(&pair->ends[0], &in, &err), 0, "%s", err.text);
    cr_assert(pair->ends[0].post.left[1].left, "the word has come before the message");
    pair->wire.held[CT_POST_TRANSFER] = false;
    cr_assert_eq(progress(&pair->ends[0], &in, &err), 1, "%s", err.text);
    cr_assert_arr_eq(got, sent, count * sizeof *sent);
    free(sent);
    free(got);
    pair_free(pair);
}

Test(post, what_was_sent_before_leaving_is_waited_for_however_late_it_is)
{
    expect_what_was_sent(10);
    expect_what_was_sent(COUNT);
}

Test(post, who_waits_for_more_than_was_sent_is_told_at_once)
{
    struct pair *pair = pair_new();
    int32_t data[2][10] = {{0}};
    struct ct_task out = message(&pair->ends[1], true, data[1], 10);
    struct ct_task first = message(&pair->ends[0], false, data[0], 10), second = first;
    struct ct_error err = {0};

    cr_assert_eq(progress(&pair->ends[1], &out, &err), 1);
    ct_post_drop(&pair->ends[1].post);
    cr_assert_eq(progress(&pair->ends[0], &first, &err), 1);
    cr_assert_eq(progress(&pair->ends[0], &second, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "rank 1 has left the group");
    pair_free(pair);
}

Test(post, who_sends_what_was_not_taken_is_told_at_once)
{
    struct pair *pair = pair_new();
    int32_t *data = calloc(COUNT, sizeof *data);
    struct ct_task out = message(&pair->ends[0], true, data, COUNT);
    struct ct_error err = {0};

    pair->ends[0].stuck = true;
    pair->ends[0].rests_until_out = 10;
    cr_assert_eq(progress(&pair->ends[0], &out, &err), 0);
    ct_post_drop(&pair->ends[1].post);
    cr_assert_eq(progress(&pair->ends[0], &out, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "rank 1 has left the group");
    ct_post_fail(&pair->ends[0].post, CT_ECLOSED);
    free(data);
    pair_free(pair);
}

/* ---- who fails -------------------------------------------------------------------------------*/

/* A group fails while a long message goes out, which its peer takes after three rests. Returns
 * whether it was dropped. */
static bool fail_with_a_message_out(uint64_t lent_ns, bool revoked, int rests_until_out)
{
    struct pair *pair = pair_new();
    struct end *end = &pair->ends[0];
    int32_t *data = calloc(COUNT, sizeof *data);
    struct ct_task out = message(end, true, data, COUNT);
    struct ct_error err = {0};

    end->stuck = true;
    end->rests_until_out = rests_until_out;
    end->transport.lent_ns = lent_ns;
    cr_assert_eq(progress(end, &out, &err), 0);
    if (revoked)
        ct_control_page_revoke(&end->page, 1);
    ct_post_fail(&end->post, CT_ETIMEOUT);
    bool dropped = end->dropped > 0;
    free(data);
    pair_free(pair);
    return dropped;
}

Test(post, a_group_that_fails_waits_for_what_it_lent)
{
    cr_assert_not(fail_with_a_message_out(AN_HOUR_MS * UINT64_C(1000000), false, 3));
}

Test(post, what_is_not_taken_in_time_is_taken_back)
{
    cr_assert(fail_with_a_message_out(1, false, INT32_MAX));
}

/* However much time there would be for it. */
Test(post, when_the_round_is_over_nobody_waits_for_long)
{
    cr_assert(fail_with_a_message_out(AN_HOUR_MS * UINT64_C(1000000), true, INT32_MAX));
}
