/* Wire: the messages of wire.def as structs, and as bytes.
 *
 *   frame   +-------+--------+------+-------+----------+---------------------+
 *           | magic | length | type | flags | sequence | payload: the fields |
 *           |  u32  |  u32   | u16  |  u16  |   u32    | `length` bytes      |
 *           +-------+--------+------+-------+----------+---------------------+
 *
 * All numbers are little-endian. `flags` is 0. `sequence` counts the frames of one direction of one
 * connection from 0. A field is its number; a string is u16 length, bytes, NUL; bytes are u32
 * length, bytes; a list is u32 count, records; one record is its fields. There is one encoding of a
 * message, and no bytes may follow the last field; but a peer of a newer release may send fields
 * that are unknown here (README.md, Versions).
 *
 * The codec walks descriptors made from wire.def, so no code belongs to one message. It is pure:
 * no clock, no I/O. Nothing is allocated by a length that was not checked. */
#ifndef CT_WIRE_WIRE_H
#define CT_WIRE_WIRE_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_WIRE_PROTOCOL = 12,      /* the newest that is spoken here: HELLO and WELCOME agree on one */
    CT_WIRE_OLDEST = 12,        /* the oldest that is understood here */
    CT_WIRE_MAGIC = 0x01525443, /* "CTR\x01": ctrun, frame format 1 */
    CT_WIRE_HEADER = 16,        /* bytes before the payload */

    CT_WIRE_NODES = 100000,          /* nodes of a round */
    CT_WIRE_PART = 128,              /* nodes in one part of a ROUND */
    CT_WIRE_KEY_BYTES = 512,         /* a store key */
    CT_WIRE_VALUE_BYTES = 8 << 20,   /* a store value */
    CT_WIRE_TUNNEL_BYTES = 60 << 10, /* in one piece of a tunnelled connection */
    CT_WIRE_WAITS_BYTES = 16000,     /* who waits in PyTorch's store */
    CT_WIRE_ENTRY_BYTES = 4 << 20,   /* an entry of a replica's log */

    CT_WIRE_LINE_BYTES = 32 << 10,        /* of a worker's line, without its newline */
    CT_WIRE_LINES_COUNT = 1024,           /* lines in one message */
    CT_WIRE_FLIGHT_REPLY_BYTES = 1 << 20, /* what a node tells of its ranks' recorders, twice */

    /* Frame limits: payload bytes of a message, whatever its fields. */
    CT_WIRE_CONTROL = 64 << 10,
    CT_WIRE_ROSTER = 8 << 20,
    CT_WIRE_LINES = 256 << 10,
    CT_WIRE_FLIGHT_REPLY = 2 * CT_WIRE_FLIGHT_REPLY_BYTES + 1024,
    CT_WIRE_VALUE = CT_WIRE_VALUE_BYTES + 1024,
};

/* The sender: each link has two directions, and a message belongs to one or more of the nine. */
enum ct_from {
    CT_FROM_NODE = 1,   /* agent to rendezvous server */
    CT_FROM_SERVER = 2, /* rendezvous server to agent */
    CT_FROM_AGENT = 4,  /* agent to worker */
    CT_FROM_WORKER = 8, /* worker to agent */
    CT_FROM_RELAY = 16, /* an agent to node 0's: its workers' connections to PyTorch's store */
    CT_FROM_HUB = 32,   /* node 0's agent to it */
    CT_FROM_CALLER = 64,
    CT_FROM_CALLEE = 128,
    CT_FROM_REPLICA = 256, /* one holder of a job's record to another */
};

/* A 128-bit identity (the incarnation of an agent). */
struct ct_id {
    uint64_t high, low;
};

static inline bool ct_id_equal(struct ct_id a, struct ct_id b)
{
    return a.high == b.high && a.low == b.low;
}

/* The same in 64 bits: the replica of an agent (rendezvous/replica). */
static inline uint64_t ct_id_fold(struct ct_id id)
{
    return id.high ^ id.low;
}

struct ct_bytes {
    const unsigned char *data;
    size_t size;
};

#define CT_WIRE_C_u8 uint8_t
#define CT_WIRE_C_u16 uint16_t
#define CT_WIRE_C_u32 uint32_t
#define CT_WIRE_C_u64 uint64_t
#define CT_WIRE_C_i32 int32_t
#define CT_WIRE_C_i64 int64_t
#define CT_WIRE_C_f64 double
#define CT_WIRE_C_id struct ct_id

/* struct ct_wire_node, struct ct_wire_run; struct ct_msg_hello, struct ct_msg_welcome, ... The
 * ct_wire_of_... are for LIST and ONE, whose record may be a layout, which has another's struct. */
#define SINCE(protocol)
#define FIELD(kind, name) CT_WIRE_C_##kind name;
#define STR(name, limit) const char *name;
#define NAME(name, limit) const char *name;
#define BYTES(name, limit) struct ct_bytes name;
#define LIST(record, name, limit)        \
    struct {                             \
        const ct_wire_of_##record *data; \
        uint32_t count;                  \
    } name;
#define ONE(record, name) ct_wire_of_##record name;
#define RECORD(name, fields) \
    struct ct_wire_##name {  \
        fields               \
    };                       \
    typedef struct ct_wire_##name ct_wire_of_##name;
#define LAYOUT(name, record, fields) typedef struct ct_wire_##record ct_wire_of_##name;
#define MESSAGE(NAME, name, number, limit, from, fields) \
    struct ct_msg_##name {                               \
        fields                                           \
    };
#include "wire/wire.def"
#undef MESSAGE
#undef LAYOUT
#undef RECORD
#undef ONE
#undef LIST
#undef BYTES
#undef NAME
#undef STR
#undef FIELD
#undef SINCE

#define RECORD(name, fields)
#define LAYOUT(name, record, fields)
enum ct_message_type { /* CT_MSG_HELLO, ... */
#define MESSAGE(NAME, name, number, limit, from, fields) CT_MSG_##NAME = number,
#include "wire/wire.def"
#undef MESSAGE
};

/* A message: `type` selects the member (message.hello.job). Strings, bytes and lists are views that
 * the message does not own; a NULL string is sent as "". */
struct ct_message {
    enum ct_message_type type;
    union {
#define MESSAGE(NAME, name, number, limit, from, fields) struct ct_msg_##name name;
#include "wire/wire.def"
#undef MESSAGE
    };
};
#undef LAYOUT
#undef RECORD

/* A frame whose payload has not been decoded: a view into a reader's buffer. */
struct ct_frame {
    uint16_t type;
    uint32_t sequence;
    bool agreed; /* both ends know what they speak: `protocol`. Else the sender may speak an
                        * older one, and the message may end before any SINCE */
    bool newer;  /* its sender knows more fields than wire.def: they are passed over */
    uint32_t protocol;
    const unsigned char *payload;
    size_t size;
};

/* The answer of ct_wire_encode_as for a message that the protocol lacks. */
enum { CT_WIRE_NOT_THERE = 1 };

/* Append `message` to `out` as a whole frame, as a peer understands it with whom nothing is agreed:
 * in CT_WIRE_OLDEST. 0; CT_ELIMIT when a field, a list or the frame is above its limit (the
 * sentence names it); CT_ENOMEM. `out` is as it was on failure. */
int ct_wire_encode(const struct ct_message *message, uint32_t sequence, struct ct_buf *out,
                   struct ct_error *err);

/* The same in `protocol` (CT_WIRE_OLDEST to CT_WIRE_PROTOCOL): without the fields that came later.
 * CT_WIRE_NOT_THERE when the message itself did: nothing is appended. */
int ct_wire_encode_as(const struct ct_message *message, uint32_t protocol, uint32_t sequence,
                      struct ct_buf *out, struct ct_error *err);

/* Read `frame` into `ret_message`. Strings and bytes point into the frame's payload, lists lie in
 * `arena`: both must outlive the message. What the sender's protocol lacks is 0 or empty. 0;
 * CT_EPROTOCOL for a payload that wire.def does not describe (the sentence names message and
 * field); CT_ENOMEM when the arena is full. */
int ct_wire_decode(const struct ct_frame *frame, struct ct_arena *arena,
                   struct ct_message *ret_message, struct ct_error *err);

/* Return the protocol to try after a peer has refused `protocol`: the next older one, and after the
 * oldest the newest again. */
uint32_t ct_wire_next_older(uint32_t protocol);

/* Return the name of a message type, "HELLO"; "?" for an unknown one. */
const char *ct_wire_name(unsigned type);

#endif
