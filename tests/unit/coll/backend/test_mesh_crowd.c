/* The mesh of backend tcp when many want to come in: members, strangers, and members that were cut
 * off. Ranks are threads. */
#include "backend/tcp/tcp_mesh.h"

#include "base/clock.h"
#include "job/thread_world.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(mesh_crowd, .timeout = 60);

enum { MOST = 32, LANES = 2, DEADLINE_MS = 40000, STRANGERS = 64, TURNS = 2 };

struct crowd;

struct seat {
    struct crowd *crowd;
    struct ct_setup setup;
    struct ct_blob blobs[MOST]; /* what it takes the members to be */
    int listener, code;
    int copies[TURNS], turns; /* of the listener: each mesh takes one */
    int fds[LANES * MOST];
    struct ct_error err;
    pthread_t thread;
};

struct crowd {
    struct ct_thread_world *world;
    int size;
    struct seat seats[MOST];
};

static const int RANK_OF[MOST] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
static struct crowd crowd;

static void crowd_init(int size)
{
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);
    struct ct_blob blobs[MOST];

    crowd.size = size;
    cr_assert_eq(ct_thread_world_new(size, &crowd.world), 0);
    for (int i = 0; i < size; i++) {
        struct seat *seat = &crowd.seats[i];
        struct ct_mesh_address address = {0};

        seat->setup = (struct ct_setup){
            .job = ct_thread_world_job(crowd.world, i),
            .key = "world/1",
            .rank = i,
            .size = size,
            .ranks = RANK_OF,
            .deadline_ns = now + DEADLINE_MS * UINT64_C(1000000),
            .tuning = {.tcp_rails = LANES - 1, .tcp_direct_world = MOST, .tcp_silence_ms = 10000}};
        memset(seat->fds, -1, sizeof seat->fds);
        cr_assert_eq(ct_mesh_listen(&seat->setup, &address, &seat->listener, &seat->err), 0, "%s",
                     seat->err.text);
        memcpy(blobs[i].data, &address, sizeof address);
        seat->turns = 0;
        for (int k = 0; k < TURNS; k++)
            seat->copies[k] = fcntl(seat->listener, F_DUPFD_CLOEXEC, 0);
    }
    for (int i = 0; i < size; i++)
        memcpy(crowd.seats[i].blobs, blobs, sizeof blobs);
}

static void crowd_deinit(void)
{
    for (int i = 0; i < crowd.size; i++) {
        for (int k = 0; k < LANES * MOST; k++)
            if (crowd.seats[i].fds[k] >= 0)
                (void)close(crowd.seats[i].fds[k]);
        (void)close(crowd.seats[i].listener);
        while (crowd.seats[i].turns < TURNS)
            (void)close(crowd.seats[i].copies[crowd.seats[i].turns++]);
    }
    ct_thread_world_free(crowd.world);
}

static void *connect_seat(void *argument)
{
    struct seat *seat = argument;

    struct ct_mesh *mesh = NULL;

    seat->code = ct_mesh_new(&seat->setup, seat->copies[seat->turns++], seat->blobs, seat->fds,
                             &mesh, &seat->err);
    if (seat->code == 0)
        seat->code = ct_mesh_form(mesh, &seat->setup, &seat->err);
    ct_mesh_free(mesh);
    return NULL;
}

static void start(int rank)
{
    cr_assert_eq(pthread_create(&crowd.seats[rank].thread, NULL, connect_seat, &crowd.seats[rank]),
                 0);
}

static void expect_connected(int rank)
{
    const struct seat *seat = &crowd.seats[rank];

    (void)pthread_join(seat->thread, NULL);
    cr_assert_eq(seat->code, 0, "rank %d: %s", rank, seat->err.text);
}

static const struct ct_mesh_address *address_of(int rank)
{
    static struct ct_mesh_address address;

    memcpy(&address, crowd.seats[rank].blobs[rank].data, sizeof address);
    return &address;
}

static int dial(const struct ct_mesh_address *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address->socket, address->socket_bytes), 0);
    return fd;
}

Test(mesh_crowd, thirty_two_ranks_come_together)
{
    crowd_init(32);
    for (int i = 0; i < crowd.size; i++)
        start(i);
    for (int i = 0; i < crowd.size; i++)
        expect_connected(i);
    crowd_deinit();
}

/* ---- strangers -------------------------------------------------------------------------------*/

static atomic_bool over;

/* Keep STRANGERS connections open at a listener, half of which say something, and come again when
 * hung up on, ten thousand times at most. */
static void *be_strange(void *argument)
{
    const struct ct_mesh_address address = *(const struct ct_mesh_address *)argument;
    struct pollfd entries[STRANGERS];
    int left = 10000;
    char byte;

    for (int i = 0; i < STRANGERS; i++)
        entries[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&over)) {
        for (int i = 0; i < STRANGERS && left > 0; i++) {
            if (entries[i].fd >= 0 &&
                (entries[i].revents == 0 || recv(entries[i].fd, &byte, 1, MSG_DONTWAIT) > 0))
                continue;
            if (entries[i].fd >= 0)
                (void)close(entries[i].fd);
            entries[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            (void)connect(entries[i].fd, (const struct sockaddr *)&address.socket,
                          address.socket_bytes);
            if (i % 2 == 0)
                (void)send(entries[i].fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL | MSG_DONTWAIT);
            left--;
        }
        (void)poll(entries, STRANGERS, 1);
    }
    for (int i = 0; i < STRANGERS; i++)
        if (entries[i].fd >= 0)
            (void)close(entries[i].fd);
    return NULL;
}

Test(mesh_crowd, strangers_who_come_again_and_again_keep_nobody_out)
{
    enum { RANKS = 8 };
    struct ct_mesh_address addresses[RANKS];
    pthread_t strangers[RANKS];

    crowd_init(RANKS);
    for (int i = 0; i < RANKS; i++) {
        addresses[i] = *address_of(i);
        cr_assert_eq(pthread_create(&strangers[i], NULL, be_strange, &addresses[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        start(i);
    for (int i = 0; i < RANKS; i++)
        expect_connected(i);
    atomic_store(&over, true);
    for (int i = 0; i < RANKS; i++)
        (void)pthread_join(strangers[i], NULL);
    crowd_deinit();
}

/* ---- members that were cut off ---------------------------------------------------------------*/

Test(mesh_crowd, a_member_that_is_cut_off_before_the_answer_dials_again)
{
    enum { CUTS = 5 };
    unsigned char hello[CT_HELLO_BYTES];

    crowd_init(2);
    start(1);
    for (int i = 0; i < CUTS; i++) {
        struct pollfd entry = {.fd = crowd.seats[0].listener, .events = POLLIN};

        cr_assert_eq(poll(&entry, 1, 20000), 1);
        int fd = accept4(crowd.seats[0].listener, NULL, NULL, SOCK_CLOEXEC);
        cr_assert_geq(fd, 0);
        if (i % 2 == 0) /* closed in order; else reset, for there is something unread */
            cr_assert_eq(recv(fd, hello, sizeof hello, MSG_WAITALL), CT_HELLO_BYTES);
        (void)close(fd);
    }
    start(0);
    expect_connected(0);
    expect_connected(1);
    crowd_deinit();
}

/* ---- no descriptors --------------------------------------------------------------------------*/

static double cpu_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Lower the limit to what is open, so that nothing more can be. */
static void want_descriptors(struct rlimit *ret_before)
{
    int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, ret_before), 0);
    cr_assert_geq(lowest, 0);
    (void)close(lowest);
    struct rlimit none = {.rlim_cur = (rlim_t)lowest, .rlim_max = ret_before->rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

Test(mesh_crowd, want_of_descriptors_is_waited_for_without_spinning)
{
    struct rlimit before;

    crowd_init(2);
    int stranger = dial(address_of(0)); /* waits to be accepted */
    want_descriptors(&before);
    crowd.seats[0].setup.deadline_ns = ct_clock_mono_ns(&ct_clock_system) + UINT64_C(1500000000);
    double cpu_s = cpu_seconds();
    (void)connect_seat(&crowd.seats[0]);
    cpu_s = cpu_seconds() - cpu_s;
    cr_assert_eq(crowd.seats[0].code, CT_ETIMEOUT);
    cr_assert_not_null(strstr(crowd.seats[0].err.text, "Too many open files"), "%s",
                       crowd.seats[0].err.text);
    cr_assert_lt(cpu_s, 0.1, "%.3f s of CPU time in 1.5 s", cpu_s);

    crowd.seats[0].setup.deadline_ns = ct_clock_mono_ns(&ct_clock_system) + UINT64_C(40000000000);
    start(0);
    start(1); /* cannot dial yet */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect_connected(0);
    expect_connected(1);
    (void)close(stranger);
    crowd_deinit();
}

/* ---- who listens on the network ------------------------------------------------------------- */

static struct seat *const tapped = &crowd.seats[2];

/* Rank 2 dials a tap instead of rank 0; what it says there is changed to be rank 1's. */
Test(mesh_crowd, what_one_member_says_lets_nobody_in_as_another)
{
    struct ct_mesh_address tap = {0}, real;
    unsigned char hello[CT_HELLO_BYTES], byte;
    struct seat listener = {0};

    crowd_init(3);
    real = *address_of(0);
    listener.setup = tapped->setup;
    cr_assert_eq(ct_mesh_listen(&listener.setup, &tap, &listener.listener, NULL), 0);
    memcpy(tap.secret, real.secret, sizeof tap.secret);
    tap.rails = real.rails;
    memcpy(tapped->blobs[0].data, &tap, sizeof tap);
    start(0);
    start(2);
    struct pollfd entry = {.fd = listener.listener, .events = POLLIN};
    cr_assert_eq(poll(&entry, 1, 20000), 1);
    int heard = accept4(listener.listener, NULL, NULL, SOCK_CLOEXEC);
    cr_assert_eq(recv(heard, hello, sizeof hello, MSG_WAITALL), CT_HELLO_BYTES);
    hello[32] = 1; /* from */
    int fd = dial(&real);
    cr_assert_eq(send(fd, hello, sizeof hello, MSG_NOSIGNAL), CT_HELLO_BYTES);
    cr_assert_leq(recv(fd, &byte, 1, 0), 0, "it was answered");
    (void)close(fd);
    (void)close(heard);
    ct_thread_world_revoke(crowd.world);
    (void)pthread_join(crowd.seats[0].thread, NULL);
    (void)pthread_join(tapped->thread, NULL);
    (void)close(listener.listener);
    crowd_deinit();
}
