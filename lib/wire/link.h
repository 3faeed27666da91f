/* Messages over a socket without an event loop: the worker's end of the worker link.
 *
 * The descriptor may be blocking or not; waits are polls with a deadline. One thread may send while
 * another receives; two threads must not do the same at once. */
#ifndef CT_WIRE_LINK_H
#define CT_WIRE_LINK_H

#include "wire/frame.h"
#include "wire/wire.h"

struct ct_link {
    int fd; /* a stream socket; not owned */
    struct ct_frame_reader reader;
    struct ct_buf out;
    uint32_t next_sequence; /* of the next frame sent */
};

/* Initialise a link on `fd` with a peer that sends as `from` (CT_FROM_AGENT for a worker). */
void ct_link_init(struct ct_link *link, int fd, unsigned from);
void ct_link_deinit(struct ct_link *link);

/* Send one message. 0; CT_ETIMEOUT when the peer took not all of it within `timeout_ms` (-1: no
 * limit), after which the link is of no use; CT_ECLOSED when the peer is gone; CT_ELIMIT,
 * CT_ENOMEM; a negative errno. */
int ct_link_send(struct ct_link *link, const struct ct_message *message, int timeout_ms,
                 struct ct_error *err);

/* Receive one message. `ret_message` points into the link until the next receive, and into `arena`
 * for its lists. 0; CT_ETIMEOUT when none was complete within `timeout_ms` (0: only poll, -1: no
 * limit; a partial message is kept, call again); CT_ECLOSED at the end of the stream; or the errors
 * of ct_wire_decode. */
int ct_link_receive(struct ct_link *link, int timeout_ms, struct ct_arena *arena,
                    struct ct_message *ret_message, struct ct_error *err);

#endif
