/* Peers that say nothing any more: the network of a test of its own goes down while ranks wait. */
#include "backend/tcp_silence.h"

#include "base/clock.h"
#include "rig.h"

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(silence, .timeout = 60);

enum { SILENCE_MS = 600, BYTES = 8 << 20, LATEST_MS = 20000 };

static void set_loopback(bool up)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};

    cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    (void)close(fd);
}

/* The threads that this one makes get its network. The one before, to be given back; -1: this user
 * may not make one. */
static int make_network(void)
{
    int before = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    if (before < 0 || unshare(CLONE_NEWNET) != 0) {
        fprintf(stderr, "skipped: a network of one's own needs root\n");
        if (before >= 0)
            (void)close(before);
        return -1;
    }
    set_loopback(true);
    return before;
}

static void leave_network(int before)
{
    cr_assert_eq(setns(before, CLONE_NEWNET), 0);
    (void)close(before);
}

struct scene {
    bool sends; /* rank 0 has data on the way; else it only waits */
    char *data;
    pthread_barrier_t cut, left;
    int code;
    struct ct_error failure;
    uint64_t elapsed_ms;
};

static int lose_rank_1(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    struct ct_data data = ct_inplace(scene->data, BYTES, CT_U8);

    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    if (ct_group_rank(group) == 1)
        set_loopback(false);
    (void)pthread_barrier_wait(&scene->cut);
    if (ct_group_rank(group) == 0) {
        uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

        scene->code = scene->sends ? ct_send(group, data, 1, NULL) : ct_recv(group, data, 1, NULL);
        scene->elapsed_ms = ct_clock_mono_ms(&ct_clock_system) - start_ms;
        scene->failure = *ct_group_failure(group);
    }
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

static void lose(bool sends)
{
    struct scene scene = {.sends = sends};
    struct rig rig = {
        .backend = "tcp", .world = 2, .tuning = {.tcp_silence_ms = SILENCE_MS}, .shared = &scene};

    int before = make_network();
    if (before < 0)
        return;
    scene.data = calloc(1, BYTES);
    cr_assert_not_null(scene.data);
    (void)pthread_barrier_init(&scene.cut, NULL, 2);
    (void)pthread_barrier_init(&scene.left, NULL, 2);
    cr_assert_eq(rig_run(&rig, lose_rank_1), 0);
    leave_network(before);
    cr_assert_eq(scene.code, CT_ECLOSED, "%d: %s", scene.code, scene.failure.text);
    cr_assert_not_null(strstr(scene.failure.text, "the connection with rank 1 is lost"), "%s",
                       scene.failure.text);
    cr_assert_lt(scene.elapsed_ms, LATEST_MS);
    free(scene.data);
}

Test(silence, a_peer_that_vanishes_while_it_is_waited_for_ends_the_call)
{
    lose(false);
}

Test(silence, a_peer_that_vanishes_with_data_on_the_way_ends_the_call)
{
    lose(true);
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
