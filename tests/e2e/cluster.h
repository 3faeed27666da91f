/* A cluster on one machine: network namespaces as hosts, joined by a bridge in one of its own.
 *
 *      [ host 0 ]   [ host 1 ]  ...          eth0 of host i has address 10.78.0.(i+1)
 *          |            |
 *     =====p0===========p1=====              the switch: ports that can be unplugged
 *
 * The names of the namespaces carry this process's pid; nothing outside of them is touched, and
 * cluster_down deletes them. Each host has a host name of its own (a UTS namespace a program).
 * Needs root: cluster_up skips the test, with a sentence, without. */
#ifndef TESTS_CLUSTER_H
#define TESTS_CLUSTER_H

#include "proc.h"

enum { CLUSTER_HOSTS = 8 };

/* Which packets of a host are lost, as seen from the host. */
enum cluster_way { CLUSTER_IN, CLUSTER_OUT };

/* Make `hosts` hosts, or skip the test. */
void cluster_up(int hosts);
void cluster_down(void);

/* "10.78.0.1" of host 0, and so on; static storage, eight stay valid. */
const char *cluster_address(int host);

/* Start `argv` (NULL-terminated, at most 48 words) on a host. The pid is the program's own. */
void cluster_start(struct proc *proc, int host, const char *const argv[]);

/* The network of the host is that of the calling thread, and of threads that it starts, until
 * cluster_return gets what this returned. */
int cluster_enter(int host);
void cluster_return(int home);

/* Unplug the host's cable; lose all, or `percent` of a hundred, of the packets that go one way; let
 * at most `rate` (as of tc: "256kbit") out; break each TCP connection that sends something, but for
 * those to port `but`. cluster_heal ends all of that. */
void cluster_cut(int host);
void cluster_lose(int host, enum cluster_way way, int percent);
void cluster_slow(int host, const char *rate);
void cluster_reset(int host, int but);
void cluster_heal(int host);

/* The host loses power and comes up again: kill its processes first. No packet says goodbye. */
void cluster_reboot(int host);

#endif
