/* Frames from a byte stream in fragments of any size.
 *
 * Push the received bytes, then call next until it returns 0. The magic is checked as soon as its 4
 * bytes have arrived, the header with its 16: flags, type, direction, length and sequence, in this
 * order. A type that is unknown is refused, or passed over where the peer is of a newer release: it
 * has said so in its HELLO. The buffer grows with the bytes that arrived, never by an announced
 * length, and is freed after a large frame. */
#ifndef CT_WIRE_FRAME_H
#define CT_WIRE_FRAME_H

#include "base/bytes.h"
#include "base/error.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_frame_reader {
    struct ct_buf buf;
    size_t start;           /* bytes of buf already handed out */
    unsigned from;          /* CT_FROM_...: which messages the peer may send */
    uint32_t limit;         /* payload bytes, below the message's own limit; changed at will */
    uint32_t next_sequence; /* of the next frame */
    uint32_t protocol;      /* for what is sent to the peer; CT_WIRE_OLDEST where none says HELLO */
    bool agreed;            /* the peer speaks it too: it has said HELLO, or WELCOME */
    bool newer;             /* the peer knows more than wire.def */
    uint16_t skipped;       /* the first type that was passed over for that; 0: none */
    int failed;             /* the error that ended the stream: every later call repeats it */
};

/* Initialise a reader of messages from `from` (one or more CT_FROM_...) with payloads up to `limit`
 * bytes. */
void ct_frame_reader_init(struct ct_frame_reader *reader, unsigned from, uint32_t limit);
void ct_frame_reader_deinit(struct ct_frame_reader *reader);

/* Append bytes; invalidates the last frame. 0, CT_ENOMEM, or CT_ELIMIT when frames pile up unread.
 */
int ct_frame_reader_push(struct ct_frame_reader *reader, const void *data, size_t size);

/* Read the next frame. 1 with a view that lives until the next call on the reader; 0 when more
 * bytes are needed; CT_EPROTOCOL, CT_ELIMIT or (the peer uses TLS) CT_EAUTH: the stream is broken,
 * close it. */
int ct_frame_reader_next(struct ct_frame_reader *reader, struct ct_frame *ret_frame,
                         struct ct_error *err);

/* Note what a HELLO that was sent to the peer, or its own, or its WELCOME says of the protocol that
 * is spoken from then on; other messages say nothing. What is sent to it is encoded in
 * `reader->protocol`, at first in the one that was offered. */
void ct_frame_reader_note_sent(struct ct_frame_reader *reader, const struct ct_message *message);
void ct_frame_reader_note_received(struct ct_frame_reader *reader,
                                   const struct ct_message *message);

/* Return whether the stream is inside a frame, so that its end now is an error. */
bool ct_frame_reader_inside(const struct ct_frame_reader *reader);

#endif
