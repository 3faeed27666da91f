/* The calls of the parameter server as structs, and as the bodies of remote calls (rpc/rpc_uv.h).
 *
 *   body   +------+------+-- ... --+----------+
 *          | u64  | f64  |         | data     |   little-endian; a head has its fields, no more
 *          +------+------+-- ... --+----------+
 *
 * Pure: no clock, no I/O. */
#ifndef CT_PS_PROTOCOL_H
#define CT_PS_PROTOCOL_H

#include "base/error.h"
#include "wire/wire.h"

enum {
    CT_PS_VERSION = 1,
    CT_PS_TOKEN_WORDS = 4,
    CT_PS_BLOCK_MAX = 4 << 20, /* data of one call */
    CT_PS_NOTE_MAX = 1024,     /* what worker 0 gets back after a failure */
    CT_PS_HEAD_BYTES = 16 * 8, /* no head is longer */
};

enum ct_ps_method {
#define METHOD(NAME, name, number) CT_PS_##NAME = number,
#include "collectives/ps/protocol.def"
};

/* The reason for which a worker leaves; of several workers the largest counts. */
enum ct_ps_end { CT_PS_COMPLETE, CT_PS_LEAVING, CT_PS_STOPPED };

/* struct ct_ps_hello, ... and CT_PS_HEAD_hello, ... */
#define U64(name) uint64_t name;
#define F64(name) double name;
#define HEAD(name, fields) \
    struct ct_ps_##name {  \
        fields             \
    };
#include "collectives/ps/protocol.def"
#undef U64
#undef F64

enum ct_ps_head {
#define HEAD(name, fields) CT_PS_HEAD_##name,
#include "collectives/ps/protocol.def"
    CT_PS_HEAD_COUNT
};

/* Write the struct of `kind` to `at`. Return the number of bytes. */
size_t ct_ps_put(enum ct_ps_head kind, const void *head, unsigned char at[CT_PS_HEAD_BYTES]);

/* Read the struct of `kind` from the front of a body; `*ret_data` is the rest, a view. 0, or
 * CT_EPROTOCOL when the body is too short. */
int ct_ps_get(enum ct_ps_head kind, struct ct_bytes body, void *ret_head, struct ct_bytes *ret_data,
              struct ct_error *err);

/* Return the name of a method: "push"; "?" for an unknown number. */
const char *ct_ps_method_name(unsigned method);

#endif
