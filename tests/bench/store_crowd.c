/* One process that is N clients of PyTorch's store: what do a start and a barrier of thousands of
 * ranks cost the agent that serves it?
 *
 * usage: store_crowd PROGRAMS CLIENTS, where PROGRAMS is the folder of ctrun
 *
 * It starts a ctrun whose script waits, and speaks the protocol of PyTorch 2.2 and later with that
 * job's store (rendezvous/tcpstore/op.def). All clients take each step before any takes the next,
 * with sockets that block: what they take themselves is little, and is in the figures.
 *
 *   storm    from the first connect until all have had their first barrier
 *   barrier  as PyTorch builds it out of requests: each adds 1 and waits for a key that the last
 *            one sets; the median of TURNS, and the store's CPU in it
 *   value    one sets a value, each waits for it and gets it: of 128 bytes (what NCCL's unique id
 *            has) and of 64 KiB; likewise
 *   memory   of the agent a client, beyond what it had before
 */
#include "base/bytes.h"
#include "base/fs.h"
#include "base/str.h"
#include "cluster/process.h"
#include "cluster/procfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURNS = 11, CLIENTS_MAX = 16384, MAGIC = 0x3C85F7CE, VALUE_MAX = 64 << 10 };
enum { VALIDATE = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6, PING = 13 };

struct crowd {
    struct proc agent;
    uint16_t port;
    int *fds;
    uint32_t count, barriers;
    uint64_t before; /* bytes of the agent's */
    char *answer;    /* VALUE_MAX and more */
};

struct figure {
    double ms, cpu_ms; /* of the agent */
};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "store_crowd: %s: %s\n", what, strerror(errno));
    exit(1); /* the agent dies with this process */
}

/* ---- one client's words ---- */

static void put_text(struct ct_buf *to, const void *text, uint64_t size)
{
    (void)ct_buf_append(to, &size, sizeof size);
    (void)ct_buf_append(to, text, size);
}

/* A request with one key, and what follows it. */
static void put_request(struct ct_buf *to, uint8_t code, const char *key)
{
    const uint64_t one = 1;
    (void)ct_buf_append(to, &code, 1);
    if (code == WAIT)
        (void)ct_buf_append(to, &one, sizeof one);
    put_text(to, key, strlen(key));
    if (code == ADD)
        (void)ct_buf_append(to, &one, sizeof one);
}

static void say(int fd, struct ct_buf *words)
{
    if (send(fd, words->data, words->size, MSG_NOSIGNAL) != (ssize_t)words->size)
        give_up("send");
    ct_buf_clear(words);
}

static void hear(const struct crowd *crowd, int fd, size_t size)
{
    if (recv(fd, crowd->answer, size, MSG_WAITALL) != (ssize_t)size)
        give_up("recv");
}

/* ---- what all do ---- */

static double cpu_s(const struct crowd *crowd)
{
    struct procfs_stat stat = {0};
    (void)procfs_stat(crowd->agent.pid, &stat);
    return stat.cpu_s;
}

static void connect_all(struct crowd *crowd)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(crowd->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const uint8_t validate = VALIDATE, ping = PING;
    const uint32_t magic = MAGIC;
    const int on = 1;
    struct ct_buf words;
    ct_buf_init(&words, 0);
    for (uint32_t i = 0; i < crowd->count; i++) {
        crowd->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (crowd->fds[i] < 0 ||
            connect(crowd->fds[i], (const struct sockaddr *)&address, sizeof address) != 0)
            give_up("connect");
        (void)setsockopt(crowd->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)ct_buf_append(&words, &validate, 1);
        (void)ct_buf_append(&words, &magic, sizeof magic);
        (void)ct_buf_append(&words, &ping, 1);
        (void)ct_buf_append(&words, &i, sizeof i);
        say(crowd->fds[i], &words);
    }
    for (uint32_t i = 0; i < crowd->count; i++)
        hear(crowd, crowd->fds[i], sizeof i);
    ct_buf_deinit(&words);
}

static void meet(struct crowd *crowd)
{
    char number[32], last[32];
    struct ct_buf words;
    ct_buf_init(&words, 0);
    (void)snprintf(number, sizeof number, "b%u/number", crowd->barriers);
    (void)snprintf(last, sizeof last, "b%u/last", crowd->barriers++);
    for (uint32_t i = 0; i < crowd->count; i++) {
        put_request(&words, ADD, number);
        say(crowd->fds[i], &words);
    }
    for (uint32_t i = 0; i < crowd->count; i++) {
        uint64_t sum;
        hear(crowd, crowd->fds[i], sizeof sum);
        memcpy(&sum, crowd->answer, sizeof sum);
        if (sum == crowd->count) {
            put_request(&words, SET, last);
            put_text(&words, "1", 1);
        }
        put_request(&words, WAIT, last);
        say(crowd->fds[i], &words);
    }
    for (uint32_t i = 0; i < crowd->count; i++)
        hear(crowd, crowd->fds[i], 1);
    ct_buf_deinit(&words);
}

static void share(struct crowd *crowd, uint64_t size)
{
    char key[32], *value = calloc(1, size);
    struct ct_buf words;
    ct_buf_init(&words, 0);
    if (value == NULL)
        give_up("memory");
    (void)snprintf(key, sizeof key, "value%u", crowd->barriers++);
    put_request(&words, SET, key);
    put_text(&words, value, size);
    say(crowd->fds[0], &words);
    for (uint32_t i = 0; i < crowd->count; i++) {
        put_request(&words, WAIT, key);
        put_request(&words, GET, key);
        say(crowd->fds[i], &words);
    }
    for (uint32_t i = 0; i < crowd->count; i++)
        hear(crowd, crowd->fds[i], 1 + sizeof size + size);
    ct_buf_deinit(&words);
    free(value);
}

/* ---- figures ---- */

static int by_ms(const void *a, const void *b)
{
    double x = ((const struct figure *)a)->ms, y = ((const struct figure *)b)->ms;
    return (x > y) - (x < y);
}

/* The median of TURNS barriers, or (size > 0) shared values; CPU is their mean, for it is counted
 * in hundredths of a second. */
static struct figure repeat(struct crowd *crowd, uint64_t size)
{
    struct figure turns[TURNS];
    double cpu = cpu_s(crowd);
    for (int i = 0; i < TURNS; i++) {
        double begun = process_now_s();
        if (size > 0)
            share(crowd, size);
        else
            meet(crowd);
        turns[i].ms = (process_now_s() - begun) * 1e3;
    }
    qsort(turns, TURNS, sizeof turns[0], by_ms);
    return (struct figure){turns[TURNS / 2].ms, (cpu_s(crowd) - cpu) * 1e3 / TURNS};
}

static void show(const char *name, struct figure figure, const char *what)
{
    (void)printf("%-12s%8.1f ms   %8.1f ms of the agent's CPU; %s\n", name, figure.ms,
                 figure.cpu_ms, what);
}

static void measure(struct crowd *crowd)
{
    crowd->before = procfs_resident_bytes(crowd->agent.pid, true);
    double begun = process_now_s(), cpu = cpu_s(crowd);
    connect_all(crowd);
    meet(crowd);
    show("storm", (struct figure){(process_now_s() - begun) * 1e3, (cpu_s(crowd) - cpu) * 1e3},
         "first connect to the end of the first barrier");
    (void)printf("memory      %8.1f KiB  of the agent a client\n",
                 (double)(procfs_resident_bytes(crowd->agent.pid, true) - crowd->before) /
                     crowd->count / 1024);
    show("barrier", repeat(crowd, 0), "add, wait; the last one sets");
    show("value", repeat(crowd, 128), "128 B set by one, waited for and read by all");
    show("value", repeat(crowd, VALUE_MAX), "64 KiB likewise");
}

/* ---- the agent ---- */

static void start_agent(struct crowd *crowd, const char *programs, const char *folder)
{
    char ctrun[512], script[600], port[16] = "";
    (void)snprintf(ctrun, sizeof ctrun, "%s/ctrun", programs);
    (void)snprintf(script, sizeof script, "echo PORT $MASTER_PORT.; exec sleep 3600");
    const char *const argv[] = {ctrun, "--torch_store", "agent", "--no_python", "sh",
                                "-c",  script,          NULL};
    const struct process_how how = {.cwd = folder};
    if (process_spawn(&crowd->agent, argv, &how) != 0)
        give_up(ctrun);
    const char *said = process_await_text(&crowd->agent, "PORT ", 20);
    if (said != NULL && process_await_text(&crowd->agent, ".", 20) != NULL)
        (void)sscanf(said, "PORT %15[0-9]", port);
    crowd->port = (uint16_t)atoi(port);
    if (crowd->port == 0) {
        (void)fprintf(stderr, "store_crowd: ctrun told no port; it said:\n%s",
                      ct_buf_str(&crowd->agent.text));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct crowd crowd = {.count = 0};
    struct rlimit limit;
    uint64_t count;
    char folder[] = "/tmp/ctrun-store-XXXXXX";
    char *programs = argc == 3 ? realpath(argv[1], NULL) : NULL;
    if (programs == NULL || ct_parse_u64(argv[2], &count) != 0 || count < 2 ||
        count > CLIENTS_MAX) {
        (void)fprintf(stderr, "usage: store_crowd PROGRAMS CLIENTS (2 to %d)\n", CLIENTS_MAX);
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    crowd.count = (uint32_t)count;
    crowd.fds = calloc(count, sizeof crowd.fds[0]);
    crowd.answer = malloc(VALUE_MAX + 64);
    if (crowd.fds == NULL || crowd.answer == NULL || mkdtemp(folder) == NULL)
        give_up("begin");
    start_agent(&crowd, programs, folder);
    (void)printf("-- %u clients of PyTorch's store in one agent\n", crowd.count);
    measure(&crowd);
    (void)kill(crowd.agent.pid, SIGTERM);
    (void)process_await_end(&crowd.agent, 20);
    process_free(&crowd.agent);
    (void)ct_fs_remove_tree(folder);
    free(crowd.answer);
    free(crowd.fds);
    free(programs);
    return 0;
}
