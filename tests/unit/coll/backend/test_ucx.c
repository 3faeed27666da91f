/* The UCX worker below the groups: messages posted by hand between two workers of one thread, so
 * that nothing is taken up before the test turns the other worker. */
#include "backend/ucx/ucx_worker.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

TestSuite(ucx, .timeout = 120);

enum { GROUPS = 2, MESSAGE = 1000, MESSAGES_MAX = 1000000 };

/* One process's end: a worker, and its part in each group; they share the endpoint. */
struct end {
    struct ct_ucx *ucx;
    struct ct_ucx_port ports[GROUPS];
    struct ct_ucx_peer *peers[GROUPS][2];
};

static void open_end(struct end *end)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_ucx_open(&end->ucx, &err), 0, "%s", err.text);
}

static void join(struct end *end, const struct end *other, int rank)
{
    struct ct_error err = {0};
    size_t bytes;
    const void *address = ct_ucx_address(other->ucx, &bytes);

    for (int i = 0; i < GROUPS; i++) {
        struct ct_ucx_peer **peers = end->peers[i];

        cr_assert_eq(ct_ucx_peer_get(end->ucx, address, bytes, &peers[1 - rank], &err), 0);
        end->ports[i] = (struct ct_ucx_port){.ucx = end->ucx,
                                             .group = 1 + (uint64_t)i,
                                             .rank = rank,
                                             .size = 2,
                                             .peers = peers,
                                             .wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    }
}

static void part(struct end *end, int rank)
{
    for (int i = 0; i < GROUPS; i++) {
        ct_ucx_peer_put(end->ucx, end->peers[i][1 - rank]);
        (void)close(end->ports[i].wakeup);
    }
    ct_ucx_close(end->ucx);
}

static void send_off(struct end *end, int group, struct ct_peer_message *message)
{
    atomic_store(&message->state, CT_PEER_MESSAGE_OPEN);
    ct_ucx_transport.post(&end->ports[group], message);
}

static bool is_over(struct end *end, int group, struct ct_peer_message *message)
{
    return ct_ucx_transport.is_done(&end->ports[group], message);
}

/* Both ends turn until it is. */
static void await(struct end ends[2], int group, struct ct_peer_message *out,
                  struct ct_peer_message *in)
{
    while (!is_over(&ends[0], group, out) || !is_over(&ends[1], group, in))
        for (int i = 0; i < 2; i++)
            ct_ucx_transport.progress(&ends[i].ports[group]);
}

/* A message from end 0 to end 1 in `group` comes as it was sent. */
static void expect_message(struct end ends[2], int group, size_t bytes)
{
    char *from = malloc(bytes), *to = calloc(1, bytes);
    struct ct_peer_message out = {.peer = 1, .out = true, .data = from, .bytes = bytes};
    struct ct_peer_message in = {.peer = 0, .data = to, .bytes = bytes};

    memset(from, 'm', bytes);
    send_off(&ends[1], group, &in);
    send_off(&ends[0], group, &out);
    await(ends, group, &out, &in);
    cr_assert_eq(out.code, 0, "the endpoint was cut off");
    cr_assert_eq(in.code, 0);
    cr_assert_eq(memcmp(from, to, bytes), 0);
    free(from);
    free(to);
}

static void need_ucx(void)
{
    if (rig_backend_count() < RIG_BACKENDS)
        cr_skip_test("skipped: there is no UCX here");
}

/* A rank that does not listen for a while makes what is sent to it wait. */
Test(ucx, what_is_dropped_on_its_way_out_disturbs_no_other_group)
{
    struct end ends[2] = {0};
    struct ct_peer_message out;
    char *data = calloc(1, MESSAGE);
    int sent = 0;

    need_ucx();
    for (int i = 0; i < 2; i++)
        open_end(&ends[i]);
    for (int i = 0; i < 2; i++)
        join(&ends[i], &ends[1 - i], i);
    expect_message(ends, 0, MESSAGE);
    expect_message(ends, 1, 1 << 20);
    do {
        out = (struct ct_peer_message){.peer = 1, .out = true, .data = data, .bytes = MESSAGE};
        send_off(&ends[0], 0, &out);
    } while (is_over(&ends[0], 0, &out) && ++sent < MESSAGES_MAX);
    cr_assert_lt(sent, MESSAGES_MAX);
    ct_ucx_transport.cancel(&ends[0].ports[0], &out);
    free(data); /* it may be read no more */
    expect_message(ends, 1, MESSAGE);
    expect_message(ends, 1, 1 << 20);
    for (int i = 0; i < 2; i++)
        part(&ends[i], i);
}
