/* A long way to a daemon, where the kernel has no netem: a TCP relay on one of the hosts that
 * holds back whatever passes, in either direction, for the same time.
 *
 *      [ agents ] --- host of the relay : 29400 --- host of the daemon : 29400
 *                      <----- delay ----->
 *
 * It is a thread of this process with its sockets in the network of that host. A side that ends
 * ends the other one as much later. One relay at a time. */
#ifndef TESTS_CLUSTER_RELAY_H
#define TESTS_CLUSTER_RELAY_H

#include "cluster/hosts.h"

/* Relay port 29400 of `host` to that of `to`; the endpoint to dial, static; NULL: it cannot be. */
const char *relay_start(const struct hosts *hosts, int host, int to, int delay_ms);
void relay_stop(void);

#endif
