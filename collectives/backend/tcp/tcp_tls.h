/* One connection of backend tcp under TLS 1.3 (net/tls.h), for groups that asked for it: the key is
 * a secret of the group that is sent through the store only, fresh for each connection by an
 * ephemeral exchange, and bound to the pair of ranks and the number of their connection.
 *
 * The TLS handshake needs no time of its own: it runs with the first messages, whichever end has
 * something to send or to receive. */
#ifndef CT_COLL_TCP_TLS_H
#define CT_COLL_TCP_TLS_H

#include "backend/tcp/tcp.h"
#include "backend/tcp/tcp_mesh.h"

struct ct_tcp_tls;

/* Make this rank's end of connection number `connection` with `peer`. 0, CT_EUNSUPPORTED when
 * libssl is missing, CT_ENOMEM. */
int ct_tcp_tls_new(const struct ct_tcp *tcp, int peer, int connection, struct ct_tcp_tls **ret_end,
                   struct ct_error *err);
void ct_tcp_tls_free(struct ct_tcp_tls *end);

/* Do as ct_tcp_attempt on this connection: 1 only when all that was encrypted has been sent. Add
 * the poll events to wait for to `*wanted`. */
int ct_tcp_tls_attempt(struct ct_tcp_tls *end, int fd, struct ct_tcp_move *move, short *wanted,
                       struct ct_error *err);

/* Return the poll events that the handshake waits for, of either side. */
short ct_tcp_tls_wanted(const struct ct_tcp_tls *end);

/* Send a final header if the connection takes it at once. */
void ct_tcp_tls_goodbye(struct ct_tcp_tls *end, int fd, const unsigned char *header);

#endif
