/* Detection of silent peers: one whose machine or path has failed closes no connection. The kernel
 * detects it, in one of two ways:
 *
 *   this rank only waits     keepalive: unanswered probes; recv fails with ETIMEDOUT
 *   its data is in flight    retransmitted for a quarter of an hour; so this rank checks, once a
 *                            second of waiting, whether anything was acknowledged since (TCP_INFO)
 *
 * Not by TCP_USER_TIMEOUT: it also ends the connection of a live peer that has not read for that
 * long, because it computes or writes a checkpoint. Its kernel answers meanwhile, which is enough
 * here; the call's timeout limits how long a rank may take. */
#ifndef CT_COLL_TCP_SILENCE_H
#define CT_COLL_TCP_SILENCE_H

#include <stdbool.h>
#include <stddef.h>

/* Let the kernel probe the peer of an idle connection, which then fails after `silence_ms`, rounded
 * up to full seconds, two at least. */
void ct_tcp_keep_alive(int fd, size_t silence_ms);

/* Return whether the peer's kernel has acknowledged none of the retransmitted data for so long. */
bool ct_tcp_is_silent(int fd, size_t silence_ms);

#endif
