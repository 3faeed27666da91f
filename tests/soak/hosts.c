/* Network namespaces as hosts, their cables plugged into a bridge in one of its own. See soak.h. */
#include "soak.h"

#include "base/assert.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SWITCH = SOAK_ALL_HOSTS };

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

/* The name carries this process's pid: hosts of a soak that was killed are known by it. */
static const char *space(int host)
{
    static char names[SWITCH + 1][32];

    CT_ASSERT(host >= 0 && host <= SWITCH);
    (void)snprintf(names[host], sizeof names[host], "soak%d-%d", (int)getpid(), host);
    return names[host];
}

const char *hosts_address(const struct hosts *hosts, int host)
{
    static char texts[SOAK_ALL_HOSTS][24];

    (void)snprintf(texts[host], sizeof texts[host], "%s.%d", hosts->spaces ? "10.79.0" : "127.0.0",
                   host + 1);
    return texts[host];
}

/* Delete the namespaces of soaks whose process is gone. */
static void sweep(void)
{
    DIR *folder = opendir("/run/netns");

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int pid, host;
        if (sscanf(entry->d_name, "soak%d-%d", &pid, &host) == 2 && kill(pid, 0) != 0)
            (void)run("ip netns del %s", entry->d_name);
    }
    if (folder != NULL)
        (void)closedir(folder);
}

static bool plug_in(const struct hosts *hosts, int host)
{
    const char *own = space(host);

    return run("ip netns add %s && ip -n %s link set lo up && "
               "ip link add eth0 address 02:00:0a:4f:00:%02x netns %s type veth peer name p%d "
               "netns %s && ip -n %s addr add %s/24 dev eth0 && ip -n %s link set eth0 up && "
               "ip -n %s link set p%d master bridge up",
               own, own, host + 1, own, host, space(SWITCH), own, hosts_address(hosts, host), own,
               space(SWITCH), host);
}

void hosts_up(struct hosts *hosts)
{
    hosts->spaces = geteuid() == 0 && run("ip netns list >/dev/null 2>&1");
    if (!hosts->spaces)
        return;
    sweep();
    hosts->up = true;
    bool made = run("ip netns add %s 2>/dev/null && ip -n %s link add bridge type bridge && "
                    "ip -n %s link set bridge up",
                    space(SWITCH), space(SWITCH), space(SWITCH));
    for (int i = 0; made && i < SOAK_ALL_HOSTS; i++)
        made = plug_in(hosts, i);
    if (!made) {
        hosts_down(hosts);
        hosts->spaces = false;
    }
}

void hosts_down(struct hosts *hosts)
{
    for (int i = 0; hosts->up && i <= SWITCH; i++)
        (void)run("ip netns del %s 2>/dev/null", space(i));
    hosts->up = false;
}

void hosts_command(const struct hosts *hosts, int host, const char *name, const char *const argv[],
                   const char **words, size_t room)
{
    const char *const prefix[] = {"ip",        "netns",   "exec",
                                  space(host), "unshare", "--uts",
                                  "sh",        "-c",      "hostname \"$0\" && exec \"$@\"",
                                  name};
    size_t count = 0;

    for (size_t i = 0; hosts->spaces && i < CT_COUNT(prefix); i++)
        words[count++] = prefix[i];
    for (size_t i = 0; argv[i] != NULL; i++) {
        CT_ASSERT(count + 1 < room);
        words[count++] = argv[i];
    }
    words[count] = NULL;
}

void hosts_unplug(int host)
{
    (void)run("ip -n %s link set p%d down", space(SWITCH), host);
}

void hosts_plug(int host)
{
    (void)run("ip -n %s link set p%d up", space(SWITCH), host);
}

void hosts_lose(int host, int percent)
{
    (void)run("ip netns exec %s nft 'add table inet fault; add chain inet fault input { type "
              "filter hook input priority 0; }; add rule inet fault input iif eth0 numgen random "
              "mod 100 < %d drop'",
              space(host), percent);
}

void hosts_lose_nothing(int host)
{
    (void)run("ip netns exec %s nft delete table inet fault 2>/dev/null", space(host));
}
