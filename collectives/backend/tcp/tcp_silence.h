/* A peer whose machine or path is gone ends no connection: it says nothing any more. The kernel
 * finds out, in one of two ways:
 *
 *   this rank only waits     keepalive: probes that nobody answers; recv fails with ETIMEDOUT
 *   its data is on the way   retransmitted for a quarter of an hour; so this rank asks, once a
 *                            second of waiting, whether anything was acknowledged since (TCP_INFO)
 *
 * Not by TCP_USER_TIMEOUT: it also ends the connection of a peer that is alive and has not read for
 * that long, as ranks do that compute or write a checkpoint. Their kernels answer meanwhile, which
 * is all that counts here; how long a rank may take is the call's timeout. */
#ifndef CT_COLL_TCP_SILENCE_H
#define CT_COLL_TCP_SILENCE_H

#include <stdbool.h>
#include <stddef.h>

/* Have the kernel probe the peer of an idle connection, which fails after `silence_ms`; of full
 * seconds, two at least. */
void ct_tcp_keep_alive(int fd, size_t silence_ms);

/* Has the peer's kernel acknowledged nothing for so long, of what was sent again and again? */
bool ct_tcp_is_silent(int fd, size_t silence_ms);

#endif
