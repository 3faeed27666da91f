/* The harness itself (tests/lib/cluster): who reaches whom, what is done later, what stays. */
#include "cluster.h"
#include "e2e.h"

#include "cluster/job.h"
#include "cluster/procfs.h"
#include "cluster/timeline.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(cluster, .init = e2e_enter, .fini = leave, .timeout = 120);

/* What is expected to come is waited for, on however busy a machine. */
enum { PORT = 29400, PATIENCE_MS = 300, LONG_MS = 20000 };

static struct sockaddr_in address_of(int host)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};

    cr_assert_eq(inet_pton(AF_INET, cluster_address(host), &address.sin_addr), 1);
    return address;
}

/* A socket of the host, which datagrams to it reach. */
static int socket_on(int host)
{
    struct sockaddr_in own = address_of(host);
    int home = hosts_enter(cluster_hosts(), host);

    cr_assert_geq(home, 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (const struct sockaddr *)&own, sizeof own) == 0);
    hosts_return(home);
    return fd;
}

static bool reaches(const int *sockets, int from, int to, int patience_ms)
{
    struct sockaddr_in address = address_of(to);
    struct pollfd poller = {sockets[to], POLLIN, 0};
    char byte = 0;

    if (sendto(sockets[from], &byte, 1, 0, (const struct sockaddr *)&address, sizeof address) != 1)
        return false;
    return poll(&poller, 1, patience_ms) == 1 && recv(sockets[to], &byte, 1, 0) == 1;
}

static void expect_sides(const int *sockets, int count, unsigned apart)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (i != j) {
                bool together = (apart >> i & 1) == (apart >> j & 1);

                cr_assert_eq(reaches(sockets, i, j, together ? LONG_MS : PATIENCE_MS), together,
                             "%d to %d with sides %x", i, j, apart);
            }
}

Test(cluster, hosts_that_are_split_reach_their_own_side_alone)
{
    enum { HOSTS = 4 };
    static const unsigned sides[] = {0x0, 0x3, 0x4, 0x0};
    int sockets[HOSTS];

    cluster_up(HOSTS);
    for (int i = 0; i < HOSTS; i++)
        sockets[i] = socket_on(i);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        cr_assert(hosts_split(cluster_hosts(), sides[i]));
        expect_sides(sockets, HOSTS, sides[i]);
    }
    for (int i = 0; i < HOSTS; i++)
        (void)close(sockets[i]);
}

Test(cluster, sixty_four_hosts_can_be_made_and_none_of_them_stays)
{
    int sockets[HOSTS_MAX];
    char path[128];

    cluster_up(HOSTS_MAX);
    sockets[0] = socket_on(0);
    sockets[HOSTS_MAX - 1] = socket_on(HOSTS_MAX - 1);
    cr_assert(reaches(sockets, 0, HOSTS_MAX - 1, LONG_MS) &&
              reaches(sockets, HOSTS_MAX - 1, 0, LONG_MS));
    (void)snprintf(path, sizeof path, "/run/netns/%s", hosts_space(cluster_hosts(), 63));
    cr_assert(e2e_exists(path));
    cluster_down();
    cr_assert_not(e2e_exists(path));
    (void)close(sockets[0]);
    (void)close(sockets[HOSTS_MAX - 1]);
}

/* ---- an agent that is stopped, goes on, is killed, and comes back --------------------------- */

static struct job job;
static struct hosts here;
static const struct job_agent agent = {.nodes = "1:2",
                                       .lease = "2s",
                                       .restarts = 3,
                                       .workers = 2,
                                       .options = (const char *const[]){"--grace=1s", NULL},
                                       .program = "/bin/cat"};

static void start_again(void *context, int slot)
{
    struct job_agent how = agent;

    (void)context;
    how.endpoints = job.seats[0].endpoint;
    cr_assert_eq(job_start_agent(&job, slot, HOSTS_HERE, NULL, &how), 0);
}

static bool has_come_back(void *context)
{
    timeline_run(context, NULL);
    return process_runs(&job.agents[1]);
}

static bool goes_on(void *context)
{
    return !procfs_is_stopped(context);
}

Test(cluster, an_agent_is_stopped_continued_killed_and_started_again_when_it_was_planned)
{
    static struct timeline timeline;
    double started_s;

    cr_assert(hosts_up(&here, "ct", 1, true));
    job_init(&job, &here, getenv("TEST_PROGRAMS"), e2e_in_folder("."));
    cr_assert_eq(job_start_daemon(&job, 0, HOSTS_HERE, NULL, NULL), 0);
    cr_assert(job_await_daemon(&job, 0, 10));
    start_again(NULL, 1);
    pid_t pid = job.agents[1].pid;
    cr_assert_eq(kill(pid, SIGSTOP), 0);
    proc_until(procfs_is_stopped, &pid, 5, "a stopped agent");
    cr_assert_eq(kill(pid, SIGCONT), 0);
    proc_until(goes_on, &pid, 5, "an agent that goes on");
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert(process_await_end(&job.agents[1], 5));
    cr_assert_not(process_runs(&job.agents[1]));
    started_s = process_now_s();
    timeline_add(&timeline, 0.2, start_again, 1);
    cr_assert(timeline_concerns(&timeline, 1));
    proc_until(has_come_back, &timeline, 5, "an agent in the slot again");
    cr_assert_geq(process_now_s() - started_s, 0.2);
    cr_assert_neq(job.agents[1].pid, pid);
    pid_t last = job.agents[1].pid;
    job_end(&job);
    cr_assert_not(proc_alive(last));
    hosts_down(&here);
}
