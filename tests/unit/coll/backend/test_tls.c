/* Groups that asked for encryption: the same results, and nothing of the data on the wire. */
#include "backend/tcp/tcp_tls.h"
#include "base/assert.h"
#include "rig.h"
#include "thread_ranks.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(tls, .timeout = 60);

static int reduce_and_exchange(struct ct_job *job, void *context)
{
    const struct ct_assignment *me = ct_job_assignment(job);
    struct ct_group_options options = {.backend = context, .encrypt = true, .timeout_ms = 30000};
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    int32_t data[200000];
    int n = (int)CT_COUNT(data), code;

    if (ct_group_new(job, &options, &group, &err) != 0)
        return __LINE__;
    for (int i = 0; i < n; i++)
        data[i] = i + me->rank;
    code = ct_all_reduce(group, ct_inplace(data, (size_t)n, CT_I32), CT_REDUCE_SUM, NULL);
    for (int i = 0; i < n && code == 0; i++)
        code = data[i] == i * me->world + me->world * (me->world - 1) / 2 ? 0 : __LINE__;
    struct ct_transfer both[2] = {
        {.direction = CT_TO, .peer = (me->rank + 1) % me->world},
        {.direction = CT_FROM, .peer = (me->rank + me->world - 1) % me->world}};
    both[0].data = ct_inplace(data, 100000, CT_I32);
    both[1].data = ct_inplace(data + 100000, 100000, CT_I32);
    code = code == 0 ? ct_exchange(group, both, 2, NULL) : code;
    code = code == 0 && data[100000] != data[0] ? __LINE__ : code;
    code = code == 0 ? ct_barrier(group, NULL) : code;
    ct_group_free(group);
    return code;
}

static void run(const char *backend, int world, int nodes)
{
    struct ct_thread_world *ranks;

    cr_assert_eq(ct_thread_world_new_nodes(world, nodes, &ranks), 0);
    cr_assert_eq(thread_ranks_run(ranks, reduce_and_exchange, (void *)(uintptr_t)backend), 0);
    ct_thread_world_free(ranks);
}

Test(tls, encrypted_groups_compute_the_same)
{
    run("tcp", 2, 1);
    run("tcp", 5, 1);
    run("hier", 4, 2);
}

static int ask_alone(struct ct_job *job, void *context)
{
    struct ct_group_options options = {
        .backend = "tcp", .encrypt = ct_job_assignment(job)->rank == 1, .timeout_ms = 10000};
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    int code = ct_group_new(job, &options, &group, &err);

    (void)context;
    ct_group_free(group);
    return code == CT_EMISMATCH && strstr(err.text, "encrypted") != NULL ? 0 : __LINE__;
}

Test(tls, who_asks_for_encryption_alone_gets_no_group)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    cr_assert_eq(thread_ranks_run(world, ask_alone, NULL), 0);
    ct_thread_world_free(world);
}

/* ---- one connection, with a relay in the middle that keeps and may change what passes ------- */

enum { MESSAGE = 40000 };

struct link {
    struct ct_tcp_tls *ends[2];
    int outer[2], inner[2]; /* socket of end i, and the relay's side of it */
    char *seen;
    size_t seen_bytes;
};

static void link_init(struct link *link, const char *keys[2])
{
    char name[] = "run/1/world/1";
    struct ct_error err = {0};

    *link = (struct link){.seen = malloc(1 << 20)};
    cr_assert_not_null(link->seen);
    for (int i = 0; i < 2; i++) {
        unsigned char key[CT_SECRET_BYTES];
        const struct ct_tcp tcp = {.rank = i, .size = 2, .name = name, .key = key};
        int pair[2];

        memcpy(key, keys[i], sizeof key);

        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        link->outer[i] = pair[0];
        link->inner[i] = pair[1];
        cr_assert_eq(ct_tcp_tls_new(&tcp, 1 - i, CT_MESH_COLLECTIVE, &link->ends[i], &err), 0, "%s",
                     err.text);
    }
}

static void link_deinit(struct link *link)
{
    for (int i = 0; i < 2; i++) {
        ct_tcp_tls_free(link->ends[i]);
        (void)close(link->outer[i]);
        (void)close(link->inner[i]);
    }
    free(link->seen);
}

/* Pass on what has come; from `spoil` bytes on, one of them is changed. */
static void relay(struct link *link, size_t spoil)
{
    for (int i = 0; i < 2; i++) {
        char bytes[4096];
        ssize_t got = recv(link->inner[i], bytes, sizeof bytes, MSG_DONTWAIT);

        if (got <= 0)
            continue;
        cr_assert_lt(link->seen_bytes + (size_t)got, 1u << 20);
        memcpy(link->seen + link->seen_bytes, bytes, (size_t)got);
        if (spoil >= link->seen_bytes && spoil < link->seen_bytes + (size_t)got)
            bytes[spoil - link->seen_bytes] ^= 1;
        link->seen_bytes += (size_t)got;
        cr_assert_eq(send(link->inner[1 - i], bytes, (size_t)got, MSG_DONTWAIT), got);
    }
}

/* A message from end 0 to end 1: 1, or the first error. */
static int pass(struct link *link, char *from, char *to, size_t spoil)
{
    struct ct_tcp_move moves[2] = {
        {.out = true,
         .peer = 1,
         .header_left = CT_CALL_HEADER_BYTES,
         .left = MESSAGE,
         .data = from},
        {.peer = 0, .header_left = CT_CALL_HEADER_BYTES, .left = MESSAGE, .data = to}};
    int codes[2] = {0, 0};

    memcpy(moves[0].header, from, CT_CALL_HEADER_BYTES);
    for (int turn = 0; turn < 10000 && (codes[0] == 0 || codes[1] == 0); turn++) {
        for (int i = 0; i < 2; i++) {
            struct ct_error err = {0};
            short wanted = 0;

            if (codes[i] == 0)
                codes[i] =
                    ct_tcp_tls_attempt(link->ends[i], link->outer[i], &moves[i], &wanted, &err);
            if (codes[i] < 0)
                return codes[i];
        }
        relay(link, spoil);
    }
    return codes[0] == 1 && codes[1] == 1 ? 1 : 0;
}

static const char *const secret = "thirty-two bytes of nothing else";

Test(tls, nothing_of_a_message_is_seen_on_the_wire)
{
    const char *keys[2] = {secret, secret};
    char *from = malloc(MESSAGE), *to = calloc(1, MESSAGE);
    struct link link;

    link_init(&link, keys);
    for (int i = 0; i < MESSAGE; i++)
        from[i] = "gradients of a model "[i % 21];
    cr_assert_eq(pass(&link, from, to, SIZE_MAX), 1);
    cr_assert_eq(memcmp(from, to, MESSAGE), 0);
    cr_assert_gt(link.seen_bytes, (size_t)MESSAGE);
    cr_assert_null(memmem(link.seen, link.seen_bytes, "gradients", 9));
    cr_assert_null(memmem(link.seen, link.seen_bytes, secret, 16));
    link_deinit(&link);
    free(from);
    free(to);
}

Test(tls, a_changed_byte_is_an_error_and_never_data)
{
    const char *keys[2] = {secret, secret};
    char *from = calloc(1, MESSAGE), *to = calloc(1, MESSAGE);

    for (size_t spoil = 20; spoil < 20000; spoil += 1999) {
        struct link link;

        link_init(&link, keys);
        cr_assert_lt(pass(&link, from, to, spoil), 0, "byte %zu", spoil);
        link_deinit(&link);
    }
    free(from);
    free(to);
}

Test(tls, another_key_is_refused)
{
    const char *keys[2] = {secret, "thirty-two bytes of another key."};
    char *from = calloc(1, MESSAGE), *to = calloc(1, MESSAGE);
    struct link link;

    link_init(&link, keys);
    cr_assert_lt(pass(&link, from, to, SIZE_MAX), 0);
    link_deinit(&link);
    free(from);
    free(to);
}
