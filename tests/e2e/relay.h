/* A long way to a daemon, where the kernel has no netem: a TCP relay on a host of the cluster that
 * holds back whatever passes, in either direction, for the same time.
 *
 *      [ agents ] --- host of the relay : 29400 --- host of the daemon : 29400
 *                      <----- delay ----->
 *
 * It is a thread of the test with its sockets in the network of that host. A side that ends ends
 * the other one as much later. One relay a test; drill_leave stops it. */
#ifndef TESTS_RELAY_H
#define TESTS_RELAY_H

/* Relay port 29400 of `host` to that of `to`; the endpoint to dial, static. */
const char *relay_start(int host, int to, int delay_ms);
void relay_stop(void);

#endif
