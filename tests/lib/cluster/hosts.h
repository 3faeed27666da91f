/* Hosts on one machine: network namespaces, joined by a bridge in one of its own.
 *
 *      [ host 0 ]   [ host 1 ]  ...  [ host 63 ]     eth0 of host i has address 10.78.0.(i+1)
 *          |            |                |
 *     =====p0===========p1=====     =====p63====     the switch: ports that can be unplugged, and a
 *               bridge                  apart        second bridge, for those who are split off
 *
 * The names of the namespaces carry this process's pid; nothing outside of them is touched.
 * hosts_down deletes them, and hosts_up those that a killed process of the same name has left. Each
 * program has a host name of its own (a UTS namespace). Needs root; without, hosts_up with `here`
 * makes hosts that share this machine's loopback, whose cables are never cut.
 *
 * What changes the network is false when it could not be done. */
#ifndef TESTS_CLUSTER_HOSTS_H
#define TESTS_CLUSTER_HOSTS_H

#include "cluster/process.h"

#include <stdint.h>

enum {
    HOSTS_MAX = 64,
    HOSTS_HERE = -1, /* in place of a host: this machine, outside of all namespaces */
};

/* Which packets of a host are lost, as seen from the host. */
enum hosts_way { HOSTS_IN, HOSTS_OUT };

struct hosts {
    char name[12];
    int pid;
    int count;   /* 0: none are up */
    bool spaces; /* namespaces; false: everybody is on loopback */
};

/* May this process make namespaces? */
bool hosts_can_be_made(void);

/* Make `count` hosts in namespaces, or all on loopback (`here`). False: nothing is left of them. */
bool hosts_up(struct hosts *hosts, const char *name, int count, bool here);
void hosts_down(struct hosts *hosts);

/* Tell each host the hardware address of every other one, for good: a connection then needs no ARP.
 * The kernel keeps 1024 addresses that it has asked for, of all namespaces together, and drops what
 * is sent to further ones: 33 hosts that all talk to each other are too many. But a host that is
 * cut off is then only silent to the others, where ARP would call it unreachable. */
bool hosts_introduce(const struct hosts *hosts);

/* "10.78.0.1" of host 0, and so on; on loopback, and for HOSTS_HERE, "127.0.0.1", ... Static, each
 * host has its own. */
const char *hosts_address(const struct hosts *hosts, int host);

/* The name of its namespace, for commands that enter it (ip netns exec NAME). Static, likewise. */
const char *hosts_space(const struct hosts *hosts, int host);

/* Start a program on a host, which it sees as `host_name` (process_spawn). The pid is the program's
 * own. */
int hosts_spawn(const struct hosts *hosts, int host, const char *host_name, struct proc *proc,
                const char *const argv[], const struct process_how *how);

/* The network of the host is that of the calling thread, and of threads that it starts, until
 * hosts_return gets what this returned; -1: it cannot be entered. */
int hosts_enter(const struct hosts *hosts, int host);
void hosts_return(int home);

/* Unplug the host's cable; lose all, or `percent` of a hundred, of the packets that go one way; let
 * at most `rate` (as of tc: "256kbit") out; break each TCP connection that sends something, but for
 * those to port `but`. hosts_restore ends all of that. */
bool hosts_cut(const struct hosts *hosts, int host);
bool hosts_lose(const struct hosts *hosts, int host, enum hosts_way way, int percent);
bool hosts_slow(const struct hosts *hosts, int host, const char *rate);
bool hosts_reset(const struct hosts *hosts, int host, int but);
bool hosts_restore(const struct hosts *hosts, int host);

/* Cut the machine in two: host i is on the one side if bit i of `apart` is set, else on the other;
 * within a side all goes on. Cables stay plugged, links stay up. 0 joins all again. */
bool hosts_split(const struct hosts *hosts, uint64_t apart);

/* Give the host one more address, which no other host reaches: what they send there is lost on the
 * way, as behind a firewall, or has a route to nowhere at their own end, which connect(2) sees. */
enum hosts_hole { HOSTS_FIREWALL, HOSTS_BLACKHOLE };
bool hosts_hide(const struct hosts *hosts, int host, const char *address, enum hosts_hole hole);

/* The host loses power and comes up again: kill its processes first. No packet says goodbye. */
bool hosts_reboot(const struct hosts *hosts, int host);

#endif
