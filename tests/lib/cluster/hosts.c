/* See hosts.h. */
#include "cluster/hosts.h"

#include "base/assert.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool run(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    CT_ASSERT((size_t)vsnprintf(command, sizeof command, format, args) < sizeof command);
    va_end(args);
    return system(command) == 0;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* The namespace of a host; the switch is number HOSTS_MAX. */
const char *hosts_space(const struct hosts *hosts, int host)
{
    static char names[HOSTS_MAX + 1][40];

    CT_ASSERT(host >= 0 && (host < hosts->count || host == HOSTS_MAX));
    (void)snprintf(names[host], sizeof names[host], "%s%d-%d", hosts->name, hosts->pid, host);
    return names[host];
}

static const char *switch_space(const struct hosts *hosts)
{
    return hosts_space(hosts, HOSTS_MAX);
}

const char *hosts_address(const struct hosts *hosts, int host)
{
    static char texts[HOSTS_MAX][24];

    if (host == HOSTS_HERE)
        return "127.0.0.1";
    CT_ASSERT(host >= 0 && host < HOSTS_MAX);
    (void)snprintf(texts[host], sizeof texts[host], "%s.%d", hosts->spaces ? "10.78.0" : "127.0.0",
                   host + 1);
    return texts[host];
}

/* ---- up and down ---------------------------------------------------------------------------- */

bool hosts_can_be_made(void)
{
    return geteuid() == 0 && run("ip netns list >/dev/null 2>&1");
}

/* Delete the namespaces of this name whose process is gone. */
static void sweep(const char *name)
{
    DIR *folder = opendir("/run/netns");
    size_t length = strlen(name);
    int pid, host;

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, name, length) == 0 &&
            sscanf(entry->d_name + length, "%d-%d", &pid, &host) == 2 && kill(pid, 0) != 0 &&
            errno == ESRCH)
            (void)run("ip netns del %s 2>/dev/null", entry->d_name);
    if (folder != NULL)
        (void)closedir(folder);
}

static bool plug_in(const struct hosts *hosts, int host)
{
    const char *own = hosts_space(hosts, host);

    return run("ip netns add %s && ip -n %s link set lo up && "
               "ip link add eth0 address 02:00:0a:4e:00:%02x netns %s type veth peer name "
               "p%d netns %s && "
               "ip -n %s addr add %s/24 dev eth0 && ip -n %s link set eth0 up && "
               "ip -n %s link set p%d master bridge up",
               own, own, host + 1, own, host, switch_space(hosts), own, hosts_address(hosts, host),
               own, switch_space(hosts), host);
}

bool hosts_up(struct hosts *hosts, const char *name, int count, bool here)
{
    CT_ASSERT(count > 0 && count <= HOSTS_MAX);
    *hosts = (struct hosts){.pid = (int)getpid(), .count = count, .spaces = !here};
    (void)ct_str_copy(hosts->name, sizeof hosts->name, name);
    if (here)
        return true;
    sweep(name);
    const char *middle = switch_space(hosts);
    bool made = run("ip netns add %s && ip -n %s link add bridge type bridge && "
                    "ip -n %s link add apart type bridge && "
                    "ip -n %s link set bridge up && ip -n %s link set apart up",
                    middle, middle, middle, middle, middle);
    for (int i = 0; made && i < count; i++)
        made = plug_in(hosts, i);
    if (!made)
        hosts_down(hosts);
    return made;
}

bool hosts_introduce(const struct hosts *hosts)
{
    bool good = hosts->spaces;

    for (int i = 0; i < hosts->count && good; i++) {
        char command[96];
        (void)snprintf(command, sizeof command, "ip -n %s -batch -", hosts_space(hosts, i));
        FILE *batch = popen(command, "we");
        for (int k = 0; batch != NULL && k < hosts->count; k++)
            if (k != i)
                (void)fprintf(
                    batch, "neigh replace %s lladdr 02:00:0a:4e:00:%02x dev eth0 nud permanent\n",
                    hosts_address(hosts, k), k + 1);
        good = batch != NULL && pclose(batch) == 0;
    }
    return good;
}

void hosts_down(struct hosts *hosts)
{
    for (int i = 0; hosts->spaces && i < hosts->count; i++)
        (void)run("ip netns del %s 2>/dev/null", hosts_space(hosts, i));
    if (hosts->spaces && hosts->count > 0)
        (void)run("ip netns del %s 2>/dev/null", switch_space(hosts));
    *hosts = (struct hosts){0};
}

/* ---- programs and threads there ------------------------------------------------------------- */

int hosts_spawn(const struct hosts *hosts, int host, const char *host_name, struct proc *proc,
                const char *const argv[], const struct process_how *how)
{
    static const char *const there[] = {"ip", "netns", "exec", NULL};
    static const char *const named[] = {
        "unshare", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", NULL};
    struct words words = {0};

    if (host != HOSTS_HERE && hosts->spaces) {
        words_append(&words, there);
        words_add(&words, hosts_space(hosts, host));
        words_append(&words, named);
        words_add(&words, host_name);
    }
    words_append(&words, argv);
    return process_spawn(proc, words.list, how);
}

int hosts_enter(const struct hosts *hosts, int host)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/run/netns/%s", hosts_space(hosts, host));
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int away = open(path, O_RDONLY | O_CLOEXEC);
    bool inside = home >= 0 && away >= 0 && setns(away, CLONE_NEWNET) == 0;
    if (away >= 0)
        (void)close(away);
    if (inside || home < 0)
        return home;
    (void)close(home);
    return -1;
}

void hosts_return(int home)
{
    CT_ASSERT(setns(home, CLONE_NEWNET) == 0);
    (void)close(home);
}

/* ---- faults --------------------------------------------------------------------------------- */

bool hosts_cut(const struct hosts *hosts, int host)
{
    return hosts->spaces && run("ip -n %s link set p%d down", switch_space(hosts), host);
}

bool hosts_lose(const struct hosts *hosts, int host, enum hosts_way way, int percent)
{
    const char *hook = way == HOSTS_IN ? "input" : "output";
    const char *side = way == HOSTS_IN ? "iif" : "oif";
    char luck[48] = "";

    if (percent < 100)
        (void)snprintf(luck, sizeof luck, "numgen random mod 100 < %d", percent);
    return hosts->spaces &&
           run("ip netns exec %s nft 'add table inet fault; add chain inet fault %s { type "
               "filter hook %s priority 0; }; add rule inet fault %s %s eth0 %s drop'",
               hosts_space(hosts, host), hook, hook, hook, side, luck);
}

bool hosts_reset(const struct hosts *hosts, int host, int but)
{
    return hosts->spaces &&
           run("ip netns exec %s nft 'add table inet fault; add chain inet fault output { "
               "type filter hook output priority 0; }; add rule inet fault output oif eth0 "
               "meta l4proto tcp tcp dport != %d reject with tcp reset'",
               hosts_space(hosts, host), but);
}

bool hosts_slow(const struct hosts *hosts, int host, const char *rate)
{
    return hosts->spaces &&
           run("tc -n %s qdisc replace dev eth0 root tbf rate %s burst 4kb latency 400ms",
               hosts_space(hosts, host), rate);
}

bool hosts_restore(const struct hosts *hosts, int host)
{
    if (!hosts->spaces)
        return false;
    bool plugged = run("ip -n %s link set p%d up", switch_space(hosts), host);
    (void)run("ip netns exec %s nft delete table inet fault 2>/dev/null", hosts_space(hosts, host));
    (void)run("tc -n %s qdisc del dev eth0 root 2>/dev/null", hosts_space(hosts, host));
    return plugged;
}

bool hosts_split(const struct hosts *hosts, uint64_t apart)
{
    char command[96];

    if (!hosts->spaces)
        return false;
    (void)snprintf(command, sizeof command, "ip -n %s -batch -", switch_space(hosts));
    FILE *batch = popen(command, "we"); /* all ports at once, as far as a machine can */
    if (batch == NULL)
        return false;
    for (int i = 0; i < hosts->count; i++)
        (void)fprintf(batch, "link set p%d master %s\n", i,
                      (apart >> i & 1) != 0 ? "apart" : "bridge");
    return pclose(batch) == 0;
}

bool hosts_hide(const struct hosts *hosts, int host, const char *address, enum hosts_hole hole)
{
    bool good = hosts->spaces &&
                run("ip -n %s addr add %s/32 dev lo && ip netns exec %s nft 'add table inet fault; "
                    "add chain inet fault hidden { type filter hook input priority 0; }; "
                    "add rule inet fault hidden iif eth0 ip daddr %s drop'",
                    hosts_space(hosts, host), address, hosts_space(hosts, host), address);

    for (int i = 0; i < hosts->count && good; i++)
        if (i != host && hole == HOSTS_FIREWALL)
            good = run("ip -n %s route add %s/32 via %s", hosts_space(hosts, i), address,
                       hosts_address(hosts, host));
        else if (i != host)
            good = run("ip -n %s route add blackhole %s/32", hosts_space(hosts, i), address);
    return good;
}

bool hosts_reboot(const struct hosts *hosts, int host)
{
    /* The port goes first: it would hand over the goodbyes of the host's sockets. */
    return hosts->spaces &&
           run("ip -n %s link del p%d && ip netns del %s", switch_space(hosts), host,
               hosts_space(hosts, host)) &&
           plug_in(hosts, host);
}
