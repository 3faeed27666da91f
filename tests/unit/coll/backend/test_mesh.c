/* The mesh of backend tcp: who is let in. */
#include "backend/tcp/tcp_mesh.h"

#include "base/clock.h"
#include "base/number/hash.h"
#include "job/thread_world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(mesh, .timeout = 30);

enum { RANKS = 2, LANES = 3, HELLO = CT_HELLO_BYTES };

/* Two members whose halves of the handshake run in this process. */
struct pair {
    struct ct_thread_world *world;
    struct ct_setup setups[RANKS];
    struct ct_blob blobs[RANKS];
    int listeners[RANKS];
    int fds[RANKS][LANES * RANKS];
    int codes[RANKS];
    struct ct_error errs[RANKS];
};

static const int both[] = {0, 1};

static void pair_init(struct pair *pair, uint64_t timeout_ms)
{
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);

    memset(pair, 0, sizeof *pair);
    cr_assert_eq(ct_thread_world_new(RANKS, &pair->world), 0);
    for (int i = 0; i < RANKS; i++) {
        struct ct_mesh_address address = {0};

        pair->setups[i] = (struct ct_setup){
            .job = ct_thread_world_job(pair->world, i),
            .key = "world/1",
            .rank = i,
            .size = RANKS,
            .ranks = both,
            .deadline_ns = now + timeout_ms * 1000000u,
            .tuning = {.tcp_rails = LANES - 1, .tcp_direct_world = RANKS, .tcp_silence_ms = 10000}};
        memset(pair->fds[i], -1, sizeof pair->fds[i]);
        cr_assert_eq(
            ct_mesh_listen(&pair->setups[i], &address, &pair->listeners[i], &pair->errs[i]), 0);
        memcpy(pair->blobs[i].data, &address, sizeof address);
    }
}

static void pair_deinit(struct pair *pair)
{
    for (int i = 0; i < RANKS; i++) {
        for (int k = 0; k < LANES * RANKS; k++)
            if (pair->fds[i][k] >= 0)
                (void)close(pair->fds[i][k]);
        (void)close(pair->listeners[i]);
    }
    ct_thread_world_free(pair->world);
}

static void connect_rank(struct pair *pair, int rank)
{
    int listener = fcntl(pair->listeners[rank], F_DUPFD_CLOEXEC, 0);
    struct ct_mesh *mesh = NULL;

    pair->codes[rank] = ct_mesh_new(&pair->setups[rank], listener, pair->blobs, pair->fds[rank],
                                    &mesh, &pair->errs[rank]);
    if (pair->codes[rank] == 0)
        pair->codes[rank] = ct_mesh_form(mesh, &pair->setups[rank], &pair->errs[rank]);
    ct_mesh_free(mesh);
}

static void *connect_rank_0(void *pair)
{
    connect_rank(pair, 0);
    return NULL;
}

static int dial_rank_0(const struct pair *pair)
{
    struct ct_mesh_address address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(&address, pair->blobs[0].data, sizeof address);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address.socket, address.socket_bytes), 0);
    return fd;
}

/* 0 when the other end hung pending. */
static ssize_t answer_on(int fd)
{
    char answer[64];
    ssize_t got = recv(fd, answer, sizeof answer, 0);

    return got < 0 ? 0 : got;
}

/* What member `from` of group `key` would say to rank 0. */
static void write_hello(const struct pair *pair, unsigned char *hello, uint32_t from,
                        const char *key)
{
    const struct ct_assignment *a = ct_job_assignment(pair->setups[0].job);
    static const unsigned char nonce[CT_NONCE_BYTES] = {1};
    struct ct_mesh_address address;

    memcpy(&address, pair->blobs[0].data, sizeof address);
    const struct ct_handshake group = {.secret = address.secret,
                                       .run = ct_hash_str(a->run_id),
                                       .generation = a->generation,
                                       .group = ct_hash_str(key)};
    ct_hello_write(&group, (struct ct_connection_id){.from = from}, nonce, hello);
}

/* Say `hello` to rank 0, which must hang pending. */
static void be_refused(const struct pair *pair, const unsigned char *hello)
{
    int fd = dial_rank_0(pair);

    cr_assert_eq(send(fd, hello, HELLO, MSG_NOSIGNAL), HELLO);
    cr_assert_eq(answer_on(fd), 0);
    (void)close(fd);
}

Test(mesh, strangers_are_hung_up_on_and_members_get_through)
{
    struct pair pair;
    pthread_t thread;
    unsigned char hello[HELLO];

    pair_init(&pair, 20000);
    cr_assert_eq(pthread_create(&thread, NULL, connect_rank_0, &pair), 0);
    int silent = dial_rank_0(&pair);
    memset(hello, 'x', sizeof hello);
    be_refused(&pair, hello);
    write_hello(&pair, hello, 1, "world/2"); /* of another group */
    be_refused(&pair, hello);
    write_hello(&pair, hello, 0, "world/1"); /* rank 0 itself */
    be_refused(&pair, hello);
    write_hello(&pair, hello, 2, "world/1"); /* there is none */
    be_refused(&pair, hello);
    write_hello(&pair, hello, 1, "world/1");
    hello[HELLO - 1] ^= 1; /* a wrong secret */
    be_refused(&pair, hello);
    write_hello(&pair, hello, 1, "world/1"); /* seen on the network: it is answered ... */
    int echo = dial_rank_0(&pair);
    cr_assert_eq(send(echo, hello, HELLO, MSG_NOSIGNAL), HELLO);
    cr_assert_eq(answer_on(echo), CT_ANSWER_BYTES);
    cr_assert_eq(send(echo, hello, CT_CONFIRM_BYTES, MSG_NOSIGNAL), CT_CONFIRM_BYTES);
    cr_assert_eq(answer_on(echo), 0); /* ... and that is all */
    (void)close(echo);
    connect_rank(&pair, 1);
    (void)pthread_join(thread, NULL);
    cr_assert_eq(pair.codes[0], 0, "%s", pair.errs[0].text);
    cr_assert_eq(pair.codes[1], 0, "%s", pair.errs[1].text);
    cr_assert_eq(answer_on(silent), 0);
    (void)close(silent);
    pair_deinit(&pair);
}

Test(mesh, many_silent_guests_do_not_keep_members_out)
{
    enum { GUESTS = 100 };
    struct pair pair;
    pthread_t thread;
    int accepted[GUESTS];

    pair_init(&pair, 20000);
    for (int i = 0; i < GUESTS; i++)
        accepted[i] = dial_rank_0(&pair);
    cr_assert_eq(pthread_create(&thread, NULL, connect_rank_0, &pair), 0);
    connect_rank(&pair, 1);
    (void)pthread_join(thread, NULL);
    cr_assert_eq(pair.codes[0] | pair.codes[1], 0, "%s %s", pair.errs[0].text, pair.errs[1].text);
    for (int i = 0; i < GUESTS; i++)
        (void)close(accepted[i]);
    pair_deinit(&pair);
}

/* Something that took over the port: it answers, but cannot know what. */
static void *answer_with_junk(void *argument)
{
    const struct pair *pair = argument;
    struct pollfd entry = {.fd = pair->listeners[0], .events = POLLIN};
    unsigned char junk[HELLO] = {0};

    (void)poll(&entry, 1, 10000);
    int fd = accept4(pair->listeners[0], NULL, NULL, SOCK_CLOEXEC);
    (void)recv(fd, junk, HELLO, MSG_WAITALL);
    (void)send(fd, junk, CT_ANSWER_BYTES, MSG_NOSIGNAL);
    (void)recv(fd, junk, 1, 0);
    (void)close(fd);
    return NULL;
}

Test(mesh, a_listener_without_the_secret_is_not_believed)
{
    struct pair pair;
    pthread_t thread;

    pair_init(&pair, 20000);
    cr_assert_eq(pthread_create(&thread, NULL, answer_with_junk, &pair), 0);
    connect_rank(&pair, 1);
    (void)pthread_join(thread, NULL);
    cr_assert_eq(pair.codes[1], CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(pair.errs[1].text, "is not that rank"), "%s", pair.errs[1].text);
    pair_deinit(&pair);
}

Test(mesh, a_member_that_does_not_come_is_a_timeout_with_its_name)
{
    struct pair pair;

    pair_init(&pair, 50);
    connect_rank(&pair, 0);
    cr_assert_eq(pair.codes[0], CT_ETIMEOUT);
    cr_assert_not_null(strstr(pair.errs[0].text, "rank 1"));
    pair_deinit(&pair);
}

/* The kernel took the connection for a process that hangs, or for a stranger who says nothing. */
Test(mesh, a_listener_that_never_answers_is_a_timeout_with_its_name)
{
    struct pair pair;

    pair_init(&pair, 50);
    connect_rank(&pair, 1);
    cr_assert_eq(pair.codes[1], CT_ETIMEOUT);
    cr_assert_not_null(strstr(pair.errs[1].text, "rank 0"));
    pair_deinit(&pair);
}

Test(mesh, nobody_listening_is_said_with_the_address)
{
    struct pair pair;

    pair_init(&pair, 5000);
    (void)close(pair.listeners[0]);
    pair.listeners[0] = -1;
    connect_rank(&pair, 1);
    cr_assert_eq(pair.codes[1], CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(pair.errs[1].text, "rank 0 at 127.0.0.1 port"));
    pair_deinit(&pair);
}

/* ---- a network that refuses for the moment ---------------------------------------------------*/

enum { FILLERS = 8 };

/* Rank 0 listens where there is no room for one more: a dial is told to try again. */
static void listen_without_room(struct pair *pair, int fillers[FILLERS])
{
    struct ct_mesh_address address = {0};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name.sun_family; /* the kernel chooses an abstract name */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&name, size), 0);
    cr_assert_eq(listen(fd, 0), 0);
    size = sizeof name;
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    memcpy(&address, pair->blobs[0].data, sizeof address);
    memcpy(&address.socket, &name, size);
    address.socket_bytes = (uint8_t)size;
    memcpy(pair->blobs[0].data, &address, sizeof address);
    (void)close(pair->listeners[0]);
    pair->listeners[0] = fd;
    int refused = 0;
    for (int i = 0; i < FILLERS; i++) {
        fillers[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        refused += connect(fillers[i], (struct sockaddr *)&name, size) != 0 && errno == EAGAIN;
    }
    cr_assert_gt(refused, 0);
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        (void)close(fds[i]);
}

Test(mesh, a_dial_is_tried_again_while_the_network_may_change_its_mind)
{
    struct pair pair;
    pthread_t thread;
    int fillers[FILLERS];

    pair_init(&pair, 500);
    listen_without_room(&pair, fillers);
    connect_rank(&pair, 1);
    cr_assert_eq(pair.codes[1], CT_ETIMEOUT, "%s", pair.errs[1].text);
    cr_assert_not_null(strstr(pair.errs[1].text, "rank 0"));
    for (int i = 0; i < RANKS; i++)
        pair.setups[i].deadline_ns += UINT64_C(20000000000);
    cr_assert_eq(pthread_create(&thread, NULL, connect_rank_0, &pair), 0);
    connect_rank(&pair, 1);
    (void)pthread_join(thread, NULL);
    cr_assert_eq(pair.codes[0] | pair.codes[1], 0, "%s %s", pair.errs[0].text, pair.errs[1].text);
    close_all(fillers, FILLERS);
    pair_deinit(&pair);
}
