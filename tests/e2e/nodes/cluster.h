/* The hosts of a test (tests/lib/cluster/hosts.h), where what cannot be done fails it.
 *
 * Each program has the host name "host<i>". cluster_up skips the test, with a sentence, without
 * root. */
#ifndef TESTS_CLUSTER_H
#define TESTS_CLUSTER_H

#include "cluster/hosts.h"

/* Make `count` hosts, or skip the test; the end of a test must reach cluster_down. */
void cluster_up(int count);
void cluster_down(void);

/* For what takes the hosts themselves; they stay where they are. */
const struct hosts *cluster_hosts(void);

/* As hosts_address, hosts_spawn, and so on, of these hosts. */
const char *cluster_address(int host);
void cluster_start(struct proc *proc, int host, const char *const argv[]);
void cluster_cut(int host);
void cluster_lose(int host, enum hosts_way way, int percent);
void cluster_slow(int host, const char *rate);
void cluster_reset(int host, int but);
void cluster_restore(int host);
void cluster_reboot(int host);

#endif
