/* Requests out of bytes in pieces: the same requests however the stream is cut, and limits that
 * hold before anything is allocated. */
#include "client.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(request, .timeout = 30);

#define N(number) ((int64_t)(number))

/* One of each request of PyTorch 2.2 and later, in the order of their codes. */
static void compose_all(struct ct_buf *to)
{
    compose_hello(to);
    compose(to, SET, "bb", "key", "value");
    compose(to, COMPARE_SET, "bbb", "key", "", "desired");
    compose(to, GET, "b", "");
    compose(to, ADD, "bn", "n", N(-5));
    compose(to, CHECK, "nbb", N(2), "a", "bc");
    compose(to, WAIT, "n", N(0));
    compose(to, GETNUMKEYS, "");
    compose(to, DELETE_KEY, "b", "key");
    compose(to, APPEND, "bb", "key", "more");
    compose(to, MULTI_GET, "nbbb", N(3), "x", "", "yz");
    compose(to, MULTI_SET, "nbbbb", N(2), "k1", "v1", "k2", "");
    compose(to, CANCEL_WAIT, "");
    compose(to, PING, "m", 4711u);
    compose(to, QUEUE_PUSH, "bb", "q", "item");
    compose(to, QUEUE_POP, "b", "q");
    compose(to, QUEUE_LEN, "b", "q");
    compose(to, LIST_KEYS, "");
    compose(to, BARRIER, "bn", "b", N(4));
}

/* A request as text, by the fields that it must have. */
static void describe(const struct ct_tcpstore_request *request, struct ct_buf *to)
{
    static const char *const fields[CT_TCPSTORE_OPS] = {
#define TCPSTORE_OP(name, code, old_code, letters) letters,
#include "rendezvous/tcpstore/op.def"
    };
    const unsigned char *body = request->body;

    ct_buf_puts(to, ct_tcpstore_op_name(request->op));
    for (const char *at = fields[request->op]; *at != '\0'; at++) {
        uint64_t count = 1;
        if (*at == 'm') {
            ct_buf_printf(to, " %u", ct_tcpstore_read_u32(&body));
            continue;
        }
        if (*at == 'n') {
            ct_buf_printf(to, " %lld", (long long)ct_tcpstore_read_u64(&body));
            continue;
        }
        if (*at == 'K' || *at == 'P')
            count = ct_tcpstore_read_u64(&body) * (*at == 'P' ? 2 : 1);
        for (; count > 0; count--) {
            struct ct_tcpstore_bytes bytes = ct_tcpstore_read_bytes(&body);
            ct_buf_printf(to, " <%.*s>", (int)bytes.size, (const char *)bytes.data);
        }
    }
    ct_buf_puts(to, "\n");
}

static const char *const all_described =
    "VALIDATE 1015412686\nSET <key> <value>\nCOMPARE_SET <key> <> <desired>\nGET <>\nADD <n> -5\n"
    "CHECK <a> <bc>\nWAIT\nGETNUMKEYS\nDELETE_KEY <key>\nAPPEND <key> <more>\n"
    "MULTI_GET <x> <> <yz>\nMULTI_SET <k1> <v1> <k2> <>\nCANCEL_WAIT\nPING 4711\n"
    "QUEUE_PUSH <q> <item>\nQUEUE_POP <q>\nQUEUE_LEN <q>\nLIST_KEYS\nBARRIER <b> 4\n";

/* Read `bytes` in pieces of the given sizes (in turn), each in memory of its own. */
static int read_all(struct ct_tcpstore_reader *reader, const struct ct_buf *bytes, size_t part,
                    size_t other, struct ct_buf *to, struct ct_error *err)
{
    struct ct_tcpstore_request request;
    int rc = 0;

    for (size_t at = 0, turn = 0; at < bytes->size && rc >= 0; turn++) {
        size_t size = CT_MIN(turn % 2 == 0 ? part : other, bytes->size - at);
        char *copy = malloc(size);
        memcpy(copy, bytes->data + at, size);
        at += size;
        cr_assert_eq(ct_tcpstore_reader_push(reader, copy, size), 0);
        while ((rc = ct_tcpstore_reader_next(reader, &request, err)) == 1)
            describe(&request, to);
        if (rc == 0)
            cr_assert_eq(ct_tcpstore_reader_hold(reader), 0);
        free(copy);
    }
    return rc;
}

Test(request, the_same_requests_come_however_the_stream_is_cut)
{
    struct ct_buf bytes = {0};

    compose_all(&bytes);
    for (size_t part = 1; part <= bytes.size; part++) {
        for (size_t other = 1; other <= 9; other += 4) {
            struct ct_tcpstore_reader reader = {0};
            struct ct_buf text = {0};
            cr_assert_eq(read_all(&reader, &bytes, part, other, &text, NULL), 0);
            cr_assert_str_eq(ct_buf_str(&text), all_described, "pieces of %zu and %zu", part,
                             other);
            cr_assert_eq(ct_tcpstore_reader_inside(&reader), 0);
            cr_assert_eq(reader.dialect, CT_TCPSTORE_MODERN);
            ct_buf_deinit(&text);
            ct_tcpstore_reader_deinit(&reader);
        }
    }
    ct_buf_deinit(&bytes);
}

Test(request, a_stream_without_the_handshake_has_the_old_numbers)
{
    struct ct_buf bytes = {0}, text = {0};
    struct ct_tcpstore_reader reader = {0};

    compose(&bytes, OLD_ADD, "bn", "init/", N(1));
    compose(&bytes, OLD_SET, "bb", "k", "v");
    compose(&bytes, OLD_COMPARE_SET, "bbb", "k", "v", "w");
    compose(&bytes, OLD_GET, "b", "k");
    compose(&bytes, OLD_CHECK, "nb", N(1), "k");
    compose(&bytes, OLD_WAIT, "nb", N(1), "k");
    compose(&bytes, OLD_GETNUMKEYS, "");
    compose(&bytes, OLD_WATCH_KEY, "b", "k");
    compose(&bytes, OLD_DELETE_KEY, "b", "k");
    cr_assert_eq(read_all(&reader, &bytes, 3, 7, &text, NULL), 0);
    cr_assert_str_eq(ct_buf_str(&text),
                     "ADD <init/> 1\nSET <k> <v>\nCOMPARE_SET <k> <v> <w>\nGET <k>\nCHECK <k>\n"
                     "WAIT <k>\nGETNUMKEYS\nWATCH_KEY <k>\nDELETE_KEY <k>\n");
    cr_assert_eq(reader.dialect, CT_TCPSTORE_OLD);
    ct_buf_deinit(&bytes);
    ct_buf_deinit(&text);
    ct_tcpstore_reader_deinit(&reader);
}

Test(request, an_old_stream_may_begin_with_set_whose_code_is_that_of_the_handshake)
{
    struct ct_buf bytes = {0}, text = {0};
    struct ct_tcpstore_reader reader = {0};

    compose(&bytes, OLD_SET, "bb", "k", "v");
    cr_assert_eq(read_all(&reader, &bytes, 1, 1, &text, NULL), 0);
    cr_assert_str_eq(ct_buf_str(&text), "SET <k> <v>\n");
    ct_buf_deinit(&bytes);
    ct_buf_deinit(&text);
    ct_tcpstore_reader_deinit(&reader);
}

/* The first error that these bytes make, and after how many of them. */
static int first_error(const struct ct_buf *bytes, size_t *ret_at, struct ct_error *err)
{
    struct ct_tcpstore_reader reader = {0};
    struct ct_tcpstore_request request;
    int rc = 0;

    for (*ret_at = 0; *ret_at < bytes->size && rc >= 0; ++*ret_at) {
        cr_assert_eq(ct_tcpstore_reader_push(&reader, bytes->data + *ret_at, 1), 0);
        while ((rc = ct_tcpstore_reader_next(&reader, &request, err)) == 1)
            ;
        if (rc == 0)
            cr_assert_eq(ct_tcpstore_reader_hold(&reader), 0);
    }
    if (rc < 0)
        cr_assert_eq(ct_tcpstore_reader_next(&reader, &request, NULL), rc, "the error stays");
    cr_assert_leq(reader.kept.room, 4096, "nothing is allocated by a length");
    ct_tcpstore_reader_deinit(&reader);
    return rc;
}

Test(request, a_length_above_its_limit_is_refused_as_soon_as_it_is_there)
{
    static const struct {
        int code;
        bool behind_key;
        uint64_t length;
        int rc;
    } rows[] = {
        {GET, false, CT_TCPSTORE_KEY_BYTES + 1, CT_ELIMIT},
        {GET, false, CT_TCPSTORE_KEY_BYTES, 0},
        {GET, false, UINT64_MAX, CT_ELIMIT},
        {SET, true, CT_TCPSTORE_VALUE_BYTES + 1, CT_ELIMIT},
        {SET, true, CT_TCPSTORE_VALUE_BYTES, 0},
        {SET, true, INT64_MAX, CT_ELIMIT},
        {QUEUE_PUSH, true, 1u << 31, CT_ELIMIT},
        {WAIT, false, CT_TCPSTORE_COUNT + 1, CT_ELIMIT},
        {WAIT, false, CT_TCPSTORE_COUNT, 0},
        {MULTI_GET, false, UINT64_MAX, CT_ELIMIT},
        {MULTI_SET, false, UINT64_MAX / 2, CT_ELIMIT},
        {MULTI_SET, false, CT_TCPSTORE_COUNT, 0},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_buf bytes = {0};
        struct ct_error err = {0};
        size_t at;
        compose_hello(&bytes);
        if (rows[i].behind_key)
            compose(&bytes, rows[i].code, "bn", "key", (int64_t)rows[i].length);
        else
            compose(&bytes, rows[i].code, "n", (int64_t)rows[i].length);
        cr_assert_eq(first_error(&bytes, &at, &err), rows[i].rc, "row %zu: %s", i, err.text);
        cr_assert_eq(at, bytes.size, "row %zu", i);
        ct_buf_deinit(&bytes);
    }
}

Test(request, a_code_that_the_dialect_lacks_is_refused)
{
    for (int code = 0; code < 256; code++) {
        struct ct_buf modern = {0}, old = {0};
        struct ct_error err = {0};
        size_t at;
        compose_hello(&modern);
        compose(&modern, code, "");
        compose(&old, OLD_GETNUMKEYS, "");
        compose(&old, code, "");
        cr_assert_eq(first_error(&modern, &at, &err) < 0, code > 18, "code %d", code);
        cr_assert_eq(first_error(&old, &at, &err) < 0, code > 8, "old code %d", code);
        ct_buf_deinit(&modern);
        ct_buf_deinit(&old);
    }
}

Test(request, a_request_as_a_whole_is_bounded)
{
    struct ct_tcpstore_reader reader = {0};
    struct ct_tcpstore_request request;
    struct ct_buf bytes = {0};
    struct ct_error err = {0};
    char *large = calloc(1, CT_TCPSTORE_VALUE_BYTES);
    int rc = 0;
    size_t pairs = 0;

    cr_assert_not_null(large);
    compose_hello(&bytes);
    compose(&bytes, MULTI_SET, "n", N(CT_TCPSTORE_COUNT));
    cr_assert_eq(ct_tcpstore_reader_push(&reader, bytes.data, bytes.size), 0);
    while ((rc = ct_tcpstore_reader_next(&reader, &request, &err)) == 1)
        ;
    while (rc == 0 && pairs < 16) {
        unsigned char head[17] = {1}; /* a key of one byte, then a length */
        head[8] = 'k';
        ct_put_le64(head + 9, CT_TCPSTORE_VALUE_BYTES);
        cr_assert_eq(ct_tcpstore_reader_push(&reader, head, sizeof head), 0);
        rc = ct_tcpstore_reader_next(&reader, &request, &err);
        if (rc == 0)
            cr_assert_eq(ct_tcpstore_reader_push(&reader, large, CT_TCPSTORE_VALUE_BYTES), 0);
        if (rc == 0)
            rc = ct_tcpstore_reader_next(&reader, &request, &err);
        pairs++;
    }
    cr_assert_eq(rc, CT_ELIMIT, "%s", err.text);
    cr_assert_eq(pairs, 8, "seven of the largest values and their keys fit, not eight");
    free(large);
    ct_buf_deinit(&bytes);
    ct_tcpstore_reader_deinit(&reader);
}

Test(request, codes_and_names_agree_with_the_table)
{
    cr_assert_eq(ct_tcpstore_op_code(CT_TCPSTORE_BARRIER, CT_TCPSTORE_MODERN), BARRIER);
    cr_assert_eq(ct_tcpstore_op_code(CT_TCPSTORE_WATCH_KEY, CT_TCPSTORE_MODERN), -1);
    cr_assert_eq(ct_tcpstore_op_code(CT_TCPSTORE_WATCH_KEY, CT_TCPSTORE_OLD), OLD_WATCH_KEY);
    cr_assert_eq(ct_tcpstore_op_code(CT_TCPSTORE_PING, CT_TCPSTORE_OLD), -1);
    cr_assert_str_eq(ct_tcpstore_op_name(CT_TCPSTORE_COMPARE_SET), "COMPARE_SET");
}
