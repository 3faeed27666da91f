/* Another user of the machine at the listeners of real programs: he is nobody (65534), with sockets
 * of his own. Who is not root cannot be two users: then these tests are skipped. */
#include "e2e.h"

#include "wire/wire.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOBODY = 65534, CROWD = 400, VISITS = 20000 };

static void enter(void)
{
    if (geteuid() != 0)
        cr_skip_test("only root can be somebody else");
    e2e_enter();
}

TestSuite(strangers_net, .init = enter, .fini = e2e_leave, .timeout = 120);

/* ---- nobody, in a thread whose identity alone is changed ---- */

struct visit {
    uint16_t port;
    const void *words; /* what he says */
    size_t size;
    char answer[2000];
    size_t heard;
};

static int connect_to(uint16_t port, int flags)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
        errno != EINPROGRESS) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool become_nobody(void)
{
    return syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0;
}

/* Connect, speak, listen to the end. */
static void *visit_once(void *context)
{
    struct visit *visit = context;
    const struct timeval patience = {.tv_sec = 5};
    int fd = become_nobody() ? connect_to(visit->port, 0) : -1;
    ssize_t count = 1;

    if (fd < 0)
        return NULL;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)send(fd, visit->words, visit->size, MSG_NOSIGNAL);
    while (count > 0 && visit->heard < sizeof(visit->answer)) {
        count = recv(fd, visit->answer + visit->heard, sizeof(visit->answer) - visit->heard, 0);
        visit->heard += count > 0 ? (size_t)count : 0;
    }
    (void)close(fd);
    return visit;
}

static void let_visit(struct visit *visit)
{
    pthread_t thread;
    void *done = NULL;

    cr_assert_eq(pthread_create(&thread, NULL, visit_once, visit), 0);
    cr_assert_eq(pthread_join(thread, &done), 0);
    cr_assert_not_null(done, "nobody cannot connect");
}

struct crowd {
    uint16_t port;
    atomic_bool over;
    atomic_int standing; /* connections that were made at least once */
};

/* Many silent connections, made anew when they are closed, a bounded number of times. */
static void *crowd_in(void *context)
{
    struct crowd *crowd = context;
    static struct pollfd at[CROWD];
    int visits = 0;

    if (!become_nobody())
        return NULL;
    for (int i = 0; i < CROWD; i++)
        at[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&crowd->over) && visits < VISITS) {
        for (int i = 0; i < CROWD; i++) {
            if (at[i].fd >= 0 && (at[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
                continue;
            if (at[i].fd >= 0)
                (void)close(at[i].fd);
            at[i].fd = connect_to(crowd->port, SOCK_NONBLOCK);
            at[i].revents = 0;
            visits++;
        }
        atomic_store(&crowd->standing, visits);
        (void)poll(at, CROWD, 10);
    }
    for (int i = 0; i < CROWD; i++)
        if (at[i].fd >= 0)
            (void)close(at[i].fd);
    return NULL;
}

static bool crowd_is_there(void *context)
{
    return atomic_load(&((struct crowd *)context)->standing) >= CROWD;
}

/* Two agents of a job of one worker each come to their end. */
static void run_two(const char *endpoint, const char *option, const char *value)
{
    struct proc nodes[2];

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--local_addr=127.0.0.1",
                  option, value, "--no_python", "true", NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 60), 0, "%s", ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
}

/* ---- the rendezvous ---- */

static uint16_t port_of(const char *endpoint)
{
    return (uint16_t)atoi(strrchr(endpoint, ':') + 1);
}

Test(strangers_net, without_a_key_another_user_is_no_node_and_learns_the_remedy)
{
    struct proc daemon;
    struct visit visit = {.words = "CTR", .size = 3};
    const char *endpoint = e2e_daemon(&daemon);

    visit.port = port_of(endpoint);
    let_visit(&visit);
    cr_assert(memmem(visit.answer, visit.heard, "the peer runs as user 65534", 27) != NULL,
              "heard %zu bytes", visit.heard);
    cr_assert(memmem(visit.answer, visit.heard, "pass --key_file FILE", 20) != NULL);
    run_two(endpoint, "--nproc_per_node", "1");
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 20), 0);
    e2e_said(&daemon, "the peer runs as user 65534, not as you (0)");
    proc_free(&daemon);
}

/* A daemon with a new key in the test's folder; the endpoint is static. */
static const char *daemon_with_key(struct proc *daemon)
{
    static char endpoint[64];
    struct proc keys;

    cr_assert_eq(e2e_run(&keys, "key", "new", e2e_in_folder("key"), NULL), 0);
    proc_free(&keys);
    const char *const argv[] = {proc_program("ctrund"), "--listen",           "127.0.0.1:0",
                                "--key_file",           e2e_in_folder("key"), NULL};
    proc_start(daemon, argv, NULL);
    const char *said = proc_wait_text(daemon, "listens on 127.0.0.1:", 20);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(strrchr(said, ':') + 1));
    return endpoint;
}

static void end_daemon(struct proc *daemon)
{
    (void)kill(daemon->pid, SIGTERM);
    cr_assert_eq(proc_finish(daemon, 20), 0);
    proc_free(daemon);
}

Test(strangers_net, a_crowd_that_comes_again_and_again_keeps_no_node_out)
{
    struct proc daemon;
    const char *endpoint = daemon_with_key(&daemon);
    struct crowd crowd = {.port = port_of(endpoint)};
    pthread_t thread;

    cr_assert_neq(crowd.port, 0);
    cr_assert_eq(pthread_create(&thread, NULL, crowd_in, &crowd), 0);
    proc_until(crowd_is_there, &crowd, 20, "the crowd");
    run_two(endpoint, "--key_file", e2e_in_folder("key"));
    atomic_store(&crowd.over, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    end_daemon(&daemon);
}

/* ---- PyTorch's store ---- */

/* What a client of PyTorch 2 says first: VALIDATE with its magic number, then PING with a nonce,
 * which any store answers. */
static const unsigned char greeting[] = {0, 0xce, 0xf7, 0x85, 0x3c, 13, 1, 2, 3, 4};

/* Nobody greets the store that the script has written down in the test's folder. */
static void greet(const char *file)
{
    struct visit visit = {.words = greeting, .size = sizeof greeting};

    visit.port = (uint16_t)atoi(e2e_wait_file(e2e_in_folder(file), 30));
    cr_assert_neq(visit.port, 0);
    let_visit(&visit);
    cr_assert_eq(visit.heard, 0, "the store of user 0 has answered user 65534");
}

static const char *store_script(void)
{
    return e2e_script("wait", "#!/bin/sh\n"
                              "echo $MASTER_PORT > port.$GROUP_RANK.new\n"
                              "mv port.$GROUP_RANK.new port.$GROUP_RANK\n"
                              "while [ ! -e go ]; do sleep 0.1; done\n");
}

Test(strangers_net, the_store_of_a_script_is_no_other_users)
{
    struct proc run;

    e2e_start(&run, "--nproc_per_node=1", "--no_python", store_script(), NULL);
    greet("port.0");
    (void)e2e_write("go", "1");
    cr_assert_eq(proc_finish(&run, 30), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(strangers_net, a_relay_carries_no_other_user_through_its_tunnel)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon), *script = store_script();

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--torch_store=local",
                  "--no_python", script, NULL);
    greet("port.0");
    greet("port.1");
    (void)e2e_write("go", "1");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 20), 0);
    proc_free(&daemon);
}

Test(strangers_net, nodes_with_a_key_have_the_store_behind_it_without_being_told)
{
    struct proc daemon, nodes[2];
    const char *endpoint = daemon_with_key(&daemon), *script = store_script();
    int ports[2];

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--key_file",
                  e2e_in_folder("key"), "--no_python", script, NULL);
    ports[0] = atoi(e2e_wait_file(e2e_in_folder("port.0"), 30));
    ports[1] = atoi(e2e_wait_file(e2e_in_folder("port.1"), 30));
    cr_assert_neq(ports[0], ports[1], "the second node has a relay, with a port of its own");
    (void)e2e_write("go", "1");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
    end_daemon(&daemon);
}

/* ---- a daemon of somebody else ---- */

struct impostor {
    uint16_t port;
    int callers; /* to be welcomed */
    size_t heard;
    bool listened;
};

/* Take the port, and welcome whoever calls to an epoch that no daemon will ever reach. */
static void *impersonate(void *context)
{
    struct impostor *impostor = context;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(impostor->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct ct_message welcome = {
        .type = CT_MSG_WELCOME,
        .welcome = {.generation = 1, .epoch = UINT64_C(1) << 63, .version = ""}};
    const struct timeval patience = {.tv_sec = 5};
    int yes = 1, at = become_nobody() ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    struct ct_buf frame = {0};

    if (at < 0 || setsockopt(at, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(at, (const struct sockaddr *)&address, sizeof address) != 0 || listen(at, 16) != 0 ||
        ct_wire_encode(&welcome, 0, &frame, NULL) != 0)
        return NULL;
    impostor->listened = true;
    for (int i = 0; i < impostor->callers; i++) {
        char text[4096];
        ssize_t count = 1;
        int caller = accept(at, NULL, NULL);
        (void)setsockopt(caller, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        (void)send(caller, frame.data, frame.size, MSG_NOSIGNAL);
        while (count > 0) {
            count = recv(caller, text, sizeof text, 0);
            impostor->heard += count > 0 ? (size_t)count : 0;
        }
        (void)close(caller);
    }
    (void)close(at);
    ct_buf_deinit(&frame);
    return impostor;
}

static void let_impersonate(struct impostor *impostor)
{
    pthread_t thread;
    void *done = NULL;

    cr_assert_eq(pthread_create(&thread, NULL, impersonate, impostor), 0);
    cr_assert_eq(pthread_join(thread, &done), 0);
    cr_assert_not_null(done, "nobody cannot listen");
}

static void start_with_journal(struct proc *daemon, int port, const char *port_file)
{
    char listen_on[32];
    const char *const argv[] = {proc_program("ctrund"),   "--listen",    listen_on, "--journal",
                                e2e_in_folder("journal"), "--port_file", port_file, NULL};

    (void)snprintf(listen_on, sizeof listen_on, "127.0.0.1:%d", port);
    (void)unlink(port_file);
    proc_start(daemon, argv, NULL);
}

/* Without a key the epoch of a daemon counts for as much as its user: nothing is said to another's,
 * and the true one is obeyed as before. */
Test(strangers_net, a_daemon_of_another_user_welcomes_nobody_and_its_epoch_is_not_followed)
{
    enum { NODES = 2 };
    struct proc daemon, nodes[NODES];
    char endpoint[32], port_file[512];
    const char *wait = e2e_script("wait.sh", "#!/bin/sh\necho $$ > pid.$RANK\n"
                                             "while [ ! -e go ]; do sleep 0.05; done\n");

    (void)snprintf(port_file, sizeof port_file, "%s", e2e_in_folder("port"));
    start_with_journal(&daemon, 0, port_file);
    struct impostor impostor = {.port = (uint16_t)atoi(e2e_wait_file(port_file, 10)),
                                .callers = 2 * NODES};
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", impostor.port);
    for (int i = 0; i < NODES; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--nproc_per_node=1",
                  "--lease=1s", wait, NULL);
    (void)e2e_wait_file("pid.0", 20);
    (void)e2e_wait_file("pid.1", 20);
    cr_assert_eq(kill(daemon.pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 128 + SIGKILL);
    proc_free(&daemon);
    let_impersonate(&impostor);
    cr_assert_eq(impostor.heard, 0, "nothing is said to him");
    start_with_journal(&daemon, impostor.port, port_file);
    (void)e2e_wait_file(port_file, 10);
    (void)e2e_write("go", "1");
    for (int i = 0; i < NODES; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        e2e_said(&nodes[i], "the peer runs as user 65534, not as you (0)");
        e2e_said(&nodes[i], "the rendezvous is back");
        proc_free(&nodes[i]);
    }
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 20), 0, "%s", ct_buf_str(&daemon.text));
    proc_free(&daemon);
}

/* ---- the port of --torch_store rank0 ---- */

struct taker {
    uint16_t port;
    bool reuse; /* he knows what he does */
    int error;
};

static void *take_port(void *context)
{
    struct taker *taker = context;
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(taker->port)};
    int on = taker->reuse,
        fd = become_nobody() ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        return NULL;
    bool taken =
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    taker->error = taken ? 0 : errno;
    (void)close(fd);
    return taker;
}

static int error_of_taking(uint16_t port, bool reuse)
{
    struct taker taker = {.port = port, .reuse = reuse};
    pthread_t thread;
    void *done = NULL;

    cr_assert_eq(pthread_create(&thread, NULL, take_port, &taker), 0);
    cr_assert_eq(pthread_join(thread, &done), 0);
    cr_assert_not_null(done);
    return taker.error;
}

/* The agent's socket keeps the port from whoever asks for it in the ordinary way. Another user can
 * have it with SO_REUSEADDR, as rank 0 itself must take it: until rank 0 listens, as under
 * torchrun, which keeps nothing. */
Test(strangers_net, the_port_of_rank0s_own_store_is_kept_until_rank_0_listens)
{
    struct proc job;
    const char *wait =
        e2e_script("wait.sh", "#!/bin/sh\necho $MASTER_PORT > port.new; mv port.new port\n"
                              "while [ ! -e go ]; do sleep 0.05; done\n"
                              "exec python3 listen.py\n");

    (void)e2e_write("listen.py", "import os, socket\ns = socket.socket()\n"
                                 "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                                 "s.bind(('', int(os.environ['MASTER_PORT'])))\ns.listen(8)\n"
                                 "open('listens', 'w').write('1')\n"
                                 "s.accept()\n");
    e2e_start(&job, "--nproc_per_node=1", "--torch_store=rank0", wait, NULL);
    uint16_t port = (uint16_t)atoi(e2e_wait_file("port", 20));
    cr_assert_eq(error_of_taking(port, false), EADDRINUSE);
    cr_assert_eq(error_of_taking(port, true), 0, "what the README says of this mode");
    (void)e2e_write("go", "1");
    (void)e2e_wait_file("listens", 20);
    cr_assert_eq(error_of_taking(port, false), EADDRINUSE);
    cr_assert_eq(error_of_taking(port, true), EADDRINUSE);
    int caller = connect_to(port, 0); /* for whom rank 0 waits */
    cr_assert_geq(caller, 0);
    cr_assert_eq(proc_finish(&job, 20), 0, "%s", ct_buf_str(&job.text));
    (void)close(caller);
    proc_free(&job);
}

/* ---- the folder of sockets ---- */

Test(strangers_net, somebody_who_takes_the_socket_folder_locks_nobody_out)
{
    struct proc run;
    char command[1000];

    // The programs may lie below /tmp themselves, as those of a gate's clone do: /mnt holds them
    // meanwhile.
    (void)snprintf(command, sizeof command,
                   "mount --bind \"$(dirname %s)\" /mnt && "
                   "mount -t tmpfs -o mode=1777 none /tmp && mkdir /tmp/ctrun-0 && "
                   "chown 65534 /tmp/ctrun-0 && cd / && unset XDG_RUNTIME_DIR TMPDIR && "
                   "/mnt/ctrun --nproc_per_node=1 --no_python sh -c '/mnt/ctrun status'",
                   proc_program("ctrun"));
    const char *const argv[] = {"unshare", "-m", "sh", "-c", command, NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 60), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "job none");
    proc_free(&run);
}
