/* Peers that say nothing any more: the network of a test of its own goes down while ranks wait. */
#include "backend/tcp/tcp_silence.h"

#include "network.h"
#include "rig.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(silence, .timeout = 60);

enum { SILENCE_MS = 600, BYTES = 8 << 20 };

/* From now on the kernel lets no packet in: connections are half open, nobody is told. False where
 * there is no nft. */
static bool drop_packets(void)
{
    return system("nft 'add table inet fault; "
                  "add chain inet fault input { type filter hook input priority 0; }; "
                  "add rule inet fault input meta l4proto tcp counter drop' 2>/dev/null") == 0;
}

/* 0 when it cannot be found out. */
static long packets_dropped(void)
{
    FILE *list = popen("nft list chain inet fault input | grep -oE 'packets [0-9]+'", "r");
    char line[64] = "";

    if (list == NULL)
        return 0;
    bool found = fgets(line, sizeof line, list) != NULL;
    (void)pclose(list);
    return found ? strtol(line + strlen("packets "), NULL, 10) : 0;
}

enum loss { LINK_DOWN, PACKETS_DROPPED };

struct scene {
    enum loss loss;
    int peer;   /* of rank 0: the one that is lost */
    bool sends; /* rank 0 has data on the way; else it only waits */
    bool lost;  /* as asked for */
    long dropped;
    char *data;
    pthread_barrier_t cut, left;
    int code;
    struct ct_error failure;
};

static int lose_peer(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    struct ct_data data = ct_inplace(scene->data, BYTES, CT_U8);

    int met = ct_barrier(group, NULL);
    (void)pthread_barrier_wait(&scene->cut); /* all have what the barrier sent */
    if (ct_group_rank(group) == scene->peer && scene->loss == LINK_DOWN)
        network_set_up("lo", false);
    if (ct_group_rank(group) == scene->peer)
        scene->lost = scene->loss == LINK_DOWN || drop_packets();
    (void)pthread_barrier_wait(&scene->cut);
    if (ct_group_rank(group) == 0 && scene->lost) {
        scene->code = scene->sends ? ct_send(group, data, scene->peer, NULL)
                                   : ct_recv(group, data, scene->peer, NULL);
        scene->failure = *ct_group_failure(group);
        scene->dropped = scene->loss == PACKETS_DROPPED ? packets_dropped() : 0;
    }
    (void)pthread_barrier_wait(&scene->left);
    return met == 0 ? 0 : __LINE__;
}

static void lose_one_of(int world, enum loss loss, bool sends)
{
    struct scene scene = {.loss = loss, .sends = sends, .peer = world / 2};
    struct rig rig = {.backend = "tcp",
                      .world = world,
                      .tuning = {.tcp_silence_ms = SILENCE_MS, .tcp_direct_world = 1},
                      .shared = &scene};
    char expected[64];

    int before = network_make();
    if (before < 0)
        return;
    scene.data = calloc(1, BYTES);
    cr_assert_not_null(scene.data);
    (void)pthread_barrier_init(&scene.cut, NULL, (unsigned)world);
    (void)pthread_barrier_init(&scene.left, NULL, (unsigned)world);
    cr_assert_eq(rig_run(&rig, lose_peer), 0);
    network_leave(before);
    free(scene.data);
    if (!scene.lost) {
        fprintf(stderr, "skipped: there is no nft here\n");
        return;
    }
    cr_assert_eq(scene.code, CT_ECLOSED, "%d: %s", scene.code, scene.failure.text);
    (void)snprintf(expected, sizeof expected, "the connection with rank %d is lost", scene.peer);
    cr_assert_not_null(strstr(scene.failure.text, expected), "%s", scene.failure.text);
    cr_assert(loss == LINK_DOWN || scene.dropped > 0);
}

static void lose(enum loss loss, bool sends)
{
    lose_one_of(2, loss, sends);
}

/* Rank 0 has no connection for messages with it yet: it is no neighbour. */
Test(silence, a_peer_that_vanished_before_it_was_first_called_ends_the_call)
{
    lose_one_of(4, LINK_DOWN, true);
}

Test(silence, a_peer_whose_packets_are_dropped_before_it_was_first_called_ends_the_call)
{
    lose_one_of(4, PACKETS_DROPPED, false);
}

Test(silence, a_peer_that_vanishes_while_it_is_waited_for_ends_the_call)
{
    lose(LINK_DOWN, false);
}

Test(silence, a_peer_that_vanishes_with_data_on_the_way_ends_the_call)
{
    lose(LINK_DOWN, true);
}

Test(silence, a_peer_whose_packets_are_dropped_while_it_is_waited_for_ends_the_call)
{
    lose(PACKETS_DROPPED, false);
}

Test(silence, a_peer_whose_packets_are_dropped_with_data_on_the_way_ends_the_call)
{
    lose(PACKETS_DROPPED, true);
}

/* It computes for longer than that, data waiting for it: its kernel answers for it. */
static int come_late(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    struct ct_data data = ct_inplace(scene->data + ct_group_rank(group) * BYTES, BYTES, CT_U8);

    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    if (ct_group_rank(group) == 0)
        return ct_send(group, data, 1, NULL) == 0 ? 0 : __LINE__;
    (void)poll(NULL, 0, 4 * SILENCE_MS);
    return ct_recv(group, data, 0, NULL) == 0 ? 0 : __LINE__;
}

Test(silence, a_peer_that_is_alive_may_be_late)
{
    struct scene scene = {.data = calloc(2, BYTES)};
    struct rig rig = {
        .backend = "tcp", .world = 2, .tuning = {.tcp_silence_ms = SILENCE_MS}, .shared = &scene};

    cr_assert_not_null(scene.data);
    cr_assert_eq(rig_run(&rig, come_late), 0);
    free(scene.data);
}
