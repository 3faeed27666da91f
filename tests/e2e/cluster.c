/* See cluster.h. */
#include "cluster.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int hosts_up;

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    cr_assert_lt((size_t)vsnprintf(command, sizeof command, format, args), sizeof command);
    va_end(args);
    return system(command);
}

/* The namespace of a host; the switch is number CLUSTER_HOSTS. */
static const char *space(int host)
{
    static char names[CLUSTER_HOSTS + 1][32];

    cr_assert(host >= 0 && host <= CLUSTER_HOSTS);
    (void)snprintf(names[host], sizeof names[host], "ct%d-%s%d", (int)getpid(),
                   host == CLUSTER_HOSTS ? "switch" : "host", host);
    return names[host];
}

static const char *switch_space(void)
{
    return space(CLUSTER_HOSTS);
}

const char *cluster_address(int host)
{
    static char texts[CLUSTER_HOSTS][24];

    (void)snprintf(texts[host], sizeof texts[host], "10.78.0.%d", host + 1);
    return texts[host];
}

static void plug_in(int host)
{
    const char *own = space(host);

    cr_assert_eq(run("ip netns add %s && ip -n %s link set lo up && "
                     "ip link add eth0 address 02:00:0a:4e:00:%02x netns %s type veth peer name "
                     "p%d netns %s && "
                     "ip -n %s addr add %s/24 dev eth0 && ip -n %s link set eth0 up && "
                     "ip -n %s link set p%d master bridge up",
                     own, own, host + 1, own, host, switch_space(), own, cluster_address(host), own,
                     switch_space(), host),
                 0, "host %d cannot be made", host);
}

void cluster_up(int hosts)
{
    if (geteuid() != 0)
        cr_skip_test("skipped: network namespaces need root");
    cr_assert(hosts > 0 && hosts <= CLUSTER_HOSTS && hosts_up == 0);
    hosts_up = hosts;
    cr_assert_eq(run("ip netns add %s && ip -n %s link add bridge type bridge && "
                     "ip -n %s link set bridge up",
                     switch_space(), switch_space(), switch_space()),
                 0, "the switch cannot be made");
    for (int i = 0; i < hosts; i++)
        plug_in(i);
}

void cluster_down(void)
{
    for (int i = 0; i < hosts_up; i++)
        (void)run("ip netns del %s", space(i));
    if (hosts_up > 0)
        (void)run("ip netns del %s", switch_space());
    hosts_up = 0;
}

void cluster_start(struct proc *proc, int host, const char *const argv[])
{
    char name[16];
    const char *words[60] = {"ip",        "netns",   "exec",
                             space(host), "unshare", "--uts",
                             "sh",        "-c",      "hostname \"$0\" && exec \"$@\"",
                             name};
    size_t count = 10;

    (void)snprintf(name, sizeof name, "host%d", host);
    for (size_t i = 0; argv[i] != NULL; i++) {
        cr_assert_lt(count + 1, CT_COUNT(words));
        words[count++] = argv[i];
    }
    proc_start(proc, words, NULL);
}

int cluster_enter(int host)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/run/netns/%s", space(host));
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int away = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(home >= 0 && away >= 0, "%s cannot be entered", path);
    cr_assert_eq(setns(away, CLONE_NEWNET), 0);
    (void)close(away);
    return home;
}

void cluster_return(int home)
{
    cr_assert_eq(setns(home, CLONE_NEWNET), 0);
    (void)close(home);
}

void cluster_cut(int host)
{
    cr_assert_eq(run("ip -n %s link set p%d down", switch_space(), host), 0);
}

void cluster_lose(int host, enum cluster_way way, int percent)
{
    const char *hook = way == CLUSTER_IN ? "input" : "output";
    const char *side = way == CLUSTER_IN ? "iif" : "oif";
    char luck[48] = "";

    if (percent < 100)
        (void)snprintf(luck, sizeof luck, "numgen random mod 100 < %d", percent);
    cr_assert_eq(run("ip netns exec %s nft 'add table inet fault; add chain inet fault %s { type "
                     "filter hook %s priority 0; }; add rule inet fault %s %s eth0 %s drop'",
                     space(host), hook, hook, hook, side, luck),
                 0);
}

void cluster_reset(int host, int but)
{
    cr_assert_eq(run("ip netns exec %s nft 'add table inet fault; add chain inet fault output { "
                     "type filter hook output priority 0; }; add rule inet fault output oif eth0 "
                     "meta l4proto tcp tcp dport != %d reject with tcp reset'",
                     space(host), but),
                 0);
}

void cluster_slow(int host, const char *rate)
{
    cr_assert_eq(run("tc -n %s qdisc replace dev eth0 root tbf rate %s burst 4kb latency 400ms",
                     space(host), rate),
                 0);
}

void cluster_heal(int host)
{
    cr_assert_eq(run("ip -n %s link set p%d up", switch_space(), host), 0);
    (void)run("ip netns exec %s nft delete table inet fault 2>/dev/null", space(host));
    (void)run("tc -n %s qdisc del dev eth0 root 2>/dev/null", space(host));
}

void cluster_reboot(int host)
{
    /* The port goes first: it would hand over the goodbyes of the host's sockets. */
    cr_assert_eq(run("ip -n %s link del p%d && ip netns del %s", switch_space(), host, space(host)),
                 0);
    plug_in(host);
}
