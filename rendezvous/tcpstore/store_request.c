/* Requests out of a byte stream; see store_request.h. */
#include "rendezvous/tcpstore/store_request.h"

#include "base/assert.h"

#include <inttypes.h>
#include <string.h>

enum {
    NONE = -1,
    HELLO_BYTES = 5,       /* VALIDATE and its magic */
    KEEP_BYTES = 64 << 10, /* a larger empty buffer is given back */
};

static const struct op {
    const char *name, *fields;
    int codes[2]; /* modern, old */
} ops[] = {
#define TCPSTORE_OP(name, code, old_code, fields) {#name, fields, {code, old_code}},
#include "rendezvous/tcpstore/op.def"
};
_Static_assert(CT_COUNT(ops) == CT_TCPSTORE_OPS, "one row an operation");

const char *ct_tcpstore_op_name(enum ct_tcpstore_op op)
{
    return (size_t)op < CT_COUNT(ops) ? ops[op].name : "?";
}

int ct_tcpstore_op_code(enum ct_tcpstore_op op, enum ct_tcpstore_dialect dialect)
{
    CT_ASSERT(dialect != CT_TCPSTORE_UNKNOWN && (size_t)op < CT_COUNT(ops));
    return ops[op].codes[dialect == CT_TCPSTORE_OLD];
}

void ct_tcpstore_reader_deinit(struct ct_tcpstore_reader *reader)
{
    if (reader != NULL)
        ct_buf_deinit(&reader->kept);
}

/* ---- bytes in ---- */

int ct_tcpstore_reader_push(struct ct_tcpstore_reader *reader, const void *data, size_t size)
{
    int rc = ct_tcpstore_reader_hold(reader);

    if (rc != 0)
        return rc;
    if (reader->kept.size == 0) {
        reader->data = data;
        reader->size = size;
        return 0;
    }
    rc = ct_buf_append(&reader->kept, data, size);
    if (rc != 0)
        return reader->failed = rc;
    reader->data = (const unsigned char *)reader->kept.data;
    reader->size = reader->kept.size;
    return 0;
}

int ct_tcpstore_reader_hold(struct ct_tcpstore_reader *reader)
{
    struct ct_buf *kept = &reader->kept;
    size_t rest = reader->size - reader->start;

    if (reader->failed != 0)
        return reader->failed;
    if (kept->size > 0) {
        ct_buf_consume(kept, reader->start);
    } else if (rest > 0) {
        int rc = ct_buf_append(kept, reader->data + reader->start, rest);
        if (rc != 0)
            return reader->failed = rc;
    }
    if (kept->size == 0 && kept->room > KEEP_BYTES)
        ct_buf_deinit(kept);
    reader->at -= reader->start;
    reader->start = 0;
    reader->data = (const unsigned char *)kept->data;
    reader->size = kept->size;
    return 0;
}

size_t ct_tcpstore_reader_inside(const struct ct_tcpstore_reader *reader)
{
    return reader->size - reader->start;
}

/* ---- looking at them ---- */

static size_t there(const struct ct_tcpstore_reader *reader)
{
    return reader->size - reader->at;
}

/* Which numbering does the stream have? 1 when that is known, 0 when more bytes are needed. */
static int identify(struct ct_tcpstore_reader *reader)
{
    const unsigned char hello[HELLO_BYTES] = {
        0, CT_TCPSTORE_MAGIC & 0xff, CT_TCPSTORE_MAGIC >> 8 & 0xff, CT_TCPSTORE_MAGIC >> 16 & 0xff,
        CT_TCPSTORE_MAGIC >> 24 & 0xff};
    size_t size = CT_MIN(there(reader), (size_t)HELLO_BYTES);

    if (size == 0)
        return 0;
    if (memcmp(reader->data + reader->at, hello, size) != 0)
        reader->dialect = CT_TCPSTORE_OLD;
    else if (size == HELLO_BYTES)
        reader->dialect = CT_TCPSTORE_MODERN;
    return reader->dialect != CT_TCPSTORE_UNKNOWN;
}

static int begin_request(struct ct_tcpstore_reader *reader, struct ct_error *err)
{
    int code = reader->data[reader->at];

    for (size_t i = 0; i < CT_COUNT(ops); i++) {
        if (ct_tcpstore_op_code((enum ct_tcpstore_op)i, reader->dialect) != code)
            continue;
        reader->op = (enum ct_tcpstore_op)i;
        reader->fields = ops[i].fields;
        reader->at++;
        return 1;
    }
    return ct_error_set(err, CT_EPROTOCOL, "request code %d is unknown in %s", code,
                        reader->dialect == CT_TCPSTORE_OLD
                            ? "the protocol of PyTorch 1.13, which a connection without a "
                              "handshake speaks"
                            : "the protocol of PyTorch 2.2 and later");
}

/* A number of `size` bytes: 1 when it is there. */
static int skip_number(struct ct_tcpstore_reader *reader, size_t size)
{
    if (there(reader) < size)
        return 0;
    reader->at += size;
    return 1;
}

/* A key or a value: 1 when all of it is there. */
static int skip_bytes(struct ct_tcpstore_reader *reader, char kind, struct ct_error *err)
{
    uint64_t most = kind == 'k' ? CT_TCPSTORE_KEY_BYTES : CT_TCPSTORE_VALUE_BYTES;

    if (there(reader) < 8)
        return 0;
    uint64_t length = ct_get_le64(reader->data + reader->at);
    if (length > most)
        return ct_error_set(err, CT_ELIMIT,
                            "%s announces a %s of %" PRIu64 " bytes, at most %" PRIu64 " may come",
                            ops[reader->op].name, kind == 'k' ? "key" : "value", length, most);
    if (reader->at - reader->start + 8 + length > CT_TCPSTORE_REQUEST_BYTES)
        return ct_error_set(err, CT_ELIMIT, "%s is longer than %d bytes", ops[reader->op].name,
                            CT_TCPSTORE_REQUEST_BYTES);
    return skip_number(reader, 8 + (size_t)length);
}

/* Keys, or keys and values in turn: 1 when all are there. */
static int skip_counted(struct ct_tcpstore_reader *reader, bool pairs, struct ct_error *err)
{
    if (!reader->counted) {
        if (there(reader) < 8)
            return 0;
        uint64_t count = ct_get_le64(reader->data + reader->at);
        if (count > CT_TCPSTORE_COUNT)
            return ct_error_set(err, CT_ELIMIT,
                                "%s announces %" PRIu64 " keys, at most %d may come",
                                ops[reader->op].name, count, CT_TCPSTORE_COUNT);
        reader->at += 8;
        reader->left = pairs ? 2 * count : count;
        reader->counted = true;
    }
    for (; reader->left > 0; reader->left--) {
        int rc = skip_bytes(reader, pairs && reader->left % 2 != 0 ? 'v' : 'k', err);
        if (rc != 1)
            return rc;
    }
    reader->counted = false;
    return 1;
}

static int skip_field(struct ct_tcpstore_reader *reader, struct ct_error *err)
{
    switch (*reader->fields) {
    case 'm':
        return skip_number(reader, 4);
    case 'n':
        return skip_number(reader, 8);
    case 'K':
    case 'P':
        return skip_counted(reader, *reader->fields == 'P', err);
    default:
        return skip_bytes(reader, *reader->fields, err);
    }
}

int ct_tcpstore_reader_next(struct ct_tcpstore_reader *reader,
                            struct ct_tcpstore_request *ret_request, struct ct_error *err)
{
    int rc = 1;

    if (reader->failed != 0)
        return ct_error_set(err, reader->failed, "the stream of requests is broken");
    if (reader->dialect == CT_TCPSTORE_UNKNOWN)
        rc = identify(reader);
    if (rc == 1 && reader->fields == NULL)
        rc = there(reader) > 0 ? begin_request(reader, err) : 0;
    while (rc == 1 && *reader->fields != '\0') {
        rc = skip_field(reader, err);
        reader->fields += rc == 1;
    }
    if (rc < 0)
        reader->failed = rc;
    if (rc != 1)
        return rc;
    *ret_request = (struct ct_tcpstore_request){reader->op, reader->data + reader->start + 1};
    reader->start = reader->at;
    reader->fields = NULL;
    return 1;
}

/* ---- fields of a whole request ---- */

uint32_t ct_tcpstore_read_u32(const unsigned char **body)
{
    uint32_t value = ct_get_le32(*body);

    *body += 4;
    return value;
}

uint64_t ct_tcpstore_read_u64(const unsigned char **body)
{
    uint64_t value = ct_get_le64(*body);

    *body += 8;
    return value;
}

struct ct_tcpstore_bytes ct_tcpstore_read_bytes(const unsigned char **body)
{
    struct ct_tcpstore_bytes bytes = {.size = (size_t)ct_tcpstore_read_u64(body)};

    bytes.data = *body;
    *body += bytes.size;
    return bytes;
}
