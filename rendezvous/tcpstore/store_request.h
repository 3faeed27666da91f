/* Requests of PyTorch's TCPStore from a byte stream in fragments of any size.
 *
 *      00 CE F7 85 3C | 0D pid | 03 u64 "key" | ...       PyTorch 2.2 and later: code 0 and a magic
 *      03 05 00 .. "init/" 01 .. | ...                    PyTorch 1.9 to 2.0: no handshake
 *
 * The first bytes decide which numbering (dialect) the rest has. A length or a count is checked as
 * soon as it has arrived, and never allocated by: memory grows with the bytes that arrived. A field
 * is parsed once however the stream is fragmented, so the work is linear in the bytes.
 *
 * The reader borrows the bytes that are pushed until ct_tcpstore_reader_hold; whole requests in
 * them are never copied. */
#ifndef CT_RENDEZVOUS_TCPSTORE_STORE_REQUEST_H
#define CT_RENDEZVOUS_TCPSTORE_STORE_REQUEST_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_tcpstore_op {
#define TCPSTORE_OP(name, code, old_code, fields) CT_TCPSTORE_##name,
#include "rendezvous/tcpstore/op.def"
    CT_TCPSTORE_OPS
};

enum ct_tcpstore_dialect {
    CT_TCPSTORE_UNKNOWN, /* too little came to tell */
    CT_TCPSTORE_MODERN,  /* 2.2 and later */
    CT_TCPSTORE_OLD,     /* 1.9 to 2.0 */
};

enum {
    CT_TCPSTORE_MAGIC = 0x3C85F7CE,
    /* PyTorch's own server has the same three. */
    CT_TCPSTORE_KEY_BYTES = 8 << 10,
    CT_TCPSTORE_VALUE_BYTES = 8 << 20,
    CT_TCPSTORE_COUNT = 131072, /* keys or pairs of one request */
    /* Ours: a whole request. Eight of the largest values, or a full count of keys of 500 bytes. */
    CT_TCPSTORE_REQUEST_BYTES = 64 << 20,
};

struct ct_tcpstore_bytes {
    const unsigned char *data;
    size_t size;
};

/* A whole request: its fields lie at `body`, checked; read them with ct_tcpstore_read_... in the
 * order of op.def. */
struct ct_tcpstore_request {
    enum ct_tcpstore_op op;
    const unsigned char *body;
};

struct ct_tcpstore_reader {
    struct ct_buf kept;        /* bytes of a request that is not whole yet */
    const unsigned char *data; /* what is read now: `kept`, or the caller's bytes */
    size_t size;
    size_t start; /* the request in progress begins here */
    size_t at;    /* and was looked at up to here */
    enum ct_tcpstore_dialect dialect;
    enum ct_tcpstore_op op;
    const char *fields; /* still to come; NULL: the code itself */
    uint64_t left;      /* elements still to come of the counted field at `fields` */
    bool counted;       /* its count is read */
    int failed;         /* the error that ended the stream; every later call repeats it */
};

/* Free; a zeroed struct is a new reader. */
void ct_tcpstore_reader_deinit(struct ct_tcpstore_reader *reader);

/* Push more bytes, borrowed until ct_tcpstore_reader_hold; earlier requests of
 * ct_tcpstore_reader_next become invalid. 0 or CT_ENOMEM. */
int ct_tcpstore_reader_push(struct ct_tcpstore_reader *reader, const void *data, size_t size);

/* Parse the next request. 1 with a view that lives until the next push or hold; 0 when more bytes
 * are needed; CT_EPROTOCOL or CT_ELIMIT: the stream is broken. */
int ct_tcpstore_reader_next(struct ct_tcpstore_reader *reader,
                            struct ct_tcpstore_request *ret_request, struct ct_error *err);

/* Copy the bytes that were not parsed yet, so that the borrowed ones may be freed. 0 or
 * CT_ENOMEM. */
int ct_tcpstore_reader_hold(struct ct_tcpstore_reader *reader);

/* Return the number of bytes that were pushed and not returned as a request yet. */
size_t ct_tcpstore_reader_inside(const struct ct_tcpstore_reader *reader);

/* Read the next field of a body and advance *body. A count is a number, its elements are bytes. */
uint32_t ct_tcpstore_read_u32(const unsigned char **body);
uint64_t ct_tcpstore_read_u64(const unsigned char **body);
struct ct_tcpstore_bytes ct_tcpstore_read_bytes(const unsigned char **body);

/* Return the name of an op, "COMPARE_SET"; never NULL. */
const char *ct_tcpstore_op_name(enum ct_tcpstore_op op);

/* Return the byte of `op` in `dialect`, -1 if none. */
int ct_tcpstore_op_code(enum ct_tcpstore_op op, enum ct_tcpstore_dialect dialect);

#endif
