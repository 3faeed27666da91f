/* See member_exchange.h. A value is a head, then an entry for each member that publishes something:
 * its number (u32), the size of its blob without the zeros at the end (u16), the bytes. */
#include "group/member_exchange.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAN = 16, ENTRY_HEAD = 4 + 2, NOBODY = -1, KEY_BYTES = 256 };

struct head {
    int32_t failed; /* the first member that has failed; or NOBODY */
    int32_t code;   /* its code, and its sentence */
    char text[240];
    char wanted[16]; /* the backend that the writer asks for */
};

struct exchange {
    const struct ct_setup *setup;
    const char *step;
    struct ct_blob *blobs;
    struct head head;     /* of all that is known so far */
    struct ct_buf value;  /* the head's place, then the entries so far */
    unsigned char *bytes; /* what was read; CT_KV_VALUE_MAX */
};

/* ---- the store -------------------------------------------------------------------------------*/

uint64_t ct_setup_remaining_ms(const struct ct_setup *setup)
{
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);

    return now >= setup->deadline_ns ? 0 : (setup->deadline_ns - now + 999999) / 1000000;
}

static void key_of(const struct exchange *exchange, int member, char key[KEY_BYTES])
{
    if (member == 0) /* of all */
        (void)snprintf(key, KEY_BYTES, "ct/group/%s/%s/all", exchange->setup->key, exchange->step);
    else
        (void)snprintf(key, KEY_BYTES, "ct/group/%s/%s/%d", exchange->setup->key, exchange->step,
                       member);
}

/* Read into `bytes`; returns how many, or a code. */
static long read_value(struct exchange *exchange, int member, uint64_t timeout_ms)
{
    const struct ct_kv *kv = &exchange->setup->job->kv;
    struct ct_kv_value value = {exchange->bytes, CT_KV_VALUE_MAX};
    char key[KEY_BYTES];

    key_of(exchange, member, key);
    int code = kv->wait(kv->context, key, &value, timeout_ms);
    if (code == 0 && value.size < sizeof(struct head))
        code = CT_EPROTOCOL;
    return code == 0 ? (long)value.size : code;
}

static int write_value(struct exchange *exchange)
{
    const struct ct_kv *kv = &exchange->setup->job->kv;
    char key[KEY_BYTES];

    memcpy(exchange->value.data, &exchange->head, sizeof exchange->head);
    key_of(exchange, exchange->setup->rank, key);
    return kv->set(kv->context, key, exchange->value.data, exchange->value.size);
}

/* The first of those below `member` whose value is missing; NOBODY: all are there. */
static int missing_below(struct exchange *exchange, int member)
{
    int first = member * FAN + 1;

    for (int i = first; i < CT_MIN(first + FAN, exchange->setup->size); i++)
        if (read_value(exchange, i, 1) == CT_ETIMEOUT)
            return i;
    return NOBODY;
}

/* A value did not come: the member that it waits for. */
static int find_missing(struct exchange *exchange)
{
    int member = 0, next;

    while ((next = missing_below(exchange, member)) != NOBODY)
        member = next;
    return member;
}

int ct_setup_store_error(const struct ct_setup *setup, int code, int member, struct ct_error *err)
{
    if (code == CT_ETIMEOUT && member != setup->rank)
        return ct_error_set(err, code, "group %s: rank %d did not come in time", setup->key,
                            setup->ranks[member]);
    return ct_error_set(err, code, "group %s cannot form: %s", setup->key, ct_strerror(code));
}

static int store_error(struct exchange *exchange, int code, struct ct_error *err)
{
    const struct ct_setup *setup = exchange->setup;

    if (code == CT_ELIMIT)
        return ct_error_set(err, code,
                            "group %s cannot form: what its %d ranks publish is longer than %d "
                            "bytes",
                            setup->key, setup->size, CT_KV_VALUE_MAX);
    return ct_setup_store_error(setup, code, code == CT_ETIMEOUT ? find_missing(exchange) : 0, err);
}

/* ---- values ----------------------------------------------------------------------------------*/

static void note_failure(struct head *head, int member, int code, const char *text)
{
    if (head->failed != NOBODY && head->failed <= member)
        return;
    head->failed = member;
    head->code = code;
    (void)ct_str_copy(head->text, sizeof head->text, text);
}

static int add_own(struct exchange *exchange)
{
    const struct ct_setup *setup = exchange->setup;
    unsigned char entry[ENTRY_HEAD];
    size_t size = CT_BLOB_BYTES;

    if (exchange->blobs == NULL)
        return 0;
    const unsigned char *data = exchange->blobs[setup->rank].data;
    while (size > 0 && data[size - 1] == 0)
        size--;
    ct_put_le32(entry, (uint32_t)setup->rank);
    ct_put_le16(entry + 4, (uint16_t)size);
    int code = ct_buf_append(&exchange->value, entry, sizeof entry);
    return code == 0 ? ct_buf_append(&exchange->value, data, size) : code;
}

/* The head that was read is of `member`. */
static void add_head(struct exchange *exchange, int member)
{
    const struct ct_setup *setup = exchange->setup;
    char text[sizeof exchange->head.text];
    struct head head;

    memcpy(&head, exchange->bytes, sizeof head);
    head.text[sizeof head.text - 1] = head.wanted[sizeof head.wanted - 1] = '\0';
    if (head.failed != NOBODY)
        note_failure(&exchange->head, head.failed, head.code, head.text);
    if (strcmp(head.wanted, exchange->head.wanted) == 0)
        return;
    (void)snprintf(text, sizeof text,
                   "rank %d asks for backend %s, rank %d for %s: all must ask for the same (is "
                   "parallel.backend the same on their nodes?)",
                   setup->ranks[member], head.wanted, setup->ranks[setup->rank],
                   exchange->head.wanted);
    note_failure(&exchange->head, setup->rank, CT_EMISMATCH, text);
}

/* What is below this member, in their order. */
static int collect(struct exchange *exchange, struct ct_error *err)
{
    const struct ct_setup *setup = exchange->setup;
    int first = setup->rank * FAN + 1;

    for (int i = first; i < CT_MIN(first + FAN, setup->size); i++) {
        long size = read_value(exchange, i, ct_setup_remaining_ms(setup));

        if (size < 0) { /* those above are told, too */
            int code = store_error(exchange, (int)size, err);

            note_failure(&exchange->head, setup->rank, code, err->text);
            (void)write_value(exchange);
            return code;
        }
        add_head(exchange, i);
        int code = ct_buf_append(&exchange->value, exchange->bytes + sizeof(struct head),
                                 (size_t)size - sizeof(struct head));
        if (code != 0)
            return store_error(exchange, code, err);
    }
    return 0;
}

/* The entries of all into `blobs`. False: they are not those of all. */
static bool read_entries(const struct exchange *exchange, const unsigned char *bytes, size_t size)
{
    uint32_t members = (uint32_t)exchange->setup->size, count = 0;

    while (size >= ENTRY_HEAD) {
        uint32_t member = ct_get_le32(bytes);
        size_t length = ct_get_le16(bytes + 4);

        if (member >= members || length > CT_BLOB_BYTES || length > size - ENTRY_HEAD)
            return false;
        memset(exchange->blobs[member].data, 0, CT_BLOB_BYTES);
        memcpy(exchange->blobs[member].data, bytes + ENTRY_HEAD, length);
        bytes += ENTRY_HEAD + length;
        size -= ENTRY_HEAD + length;
        count++;
    }
    return size == 0 && count == members;
}

static int run(struct exchange *exchange, struct ct_error *err)
{
    const struct ct_setup *setup = exchange->setup;
    const unsigned char *bytes = exchange->bytes;
    int code = collect(exchange, err);

    if (code != 0)
        return code;
    code = write_value(exchange);
    if (code != 0)
        return store_error(exchange, code, err);
    long size = (long)exchange->value.size;
    if (setup->rank == 0)
        bytes = (const unsigned char *)exchange->value.data;
    else
        size = read_value(exchange, 0, ct_setup_remaining_ms(setup));
    if (size < 0)
        return store_error(exchange, (int)size, err);
    struct head head;
    memcpy(&head, bytes, sizeof head);
    head.text[sizeof head.text - 1] = '\0';
    if (head.failed != NOBODY)
        return ct_error_set(err, head.code < 0 ? head.code : CT_EPROTOCOL, "%s", head.text);
    if (exchange->blobs != NULL &&
        !read_entries(exchange, bytes + sizeof head, (size_t)size - sizeof head))
        return store_error(exchange, CT_EPROTOCOL, err);
    return 0;
}

int ct_member_exchange(const struct ct_setup *setup, const char *step, const char *wanted, int code,
                       struct ct_blob *blobs, struct ct_error *err)
{
    struct exchange exchange = {.setup = setup,
                                .step = step,
                                .blobs = blobs,
                                .head = {.failed = NOBODY},
                                .bytes = malloc(CT_KV_VALUE_MAX)};

    ct_buf_init(&exchange.value, CT_KV_VALUE_MAX);
    (void)ct_str_copy(exchange.head.wanted, sizeof exchange.head.wanted, wanted);
    if (code != 0)
        note_failure(&exchange.head, setup->rank, code, err->text);
    if (exchange.bytes == NULL ||
        ct_buf_append(&exchange.value, &exchange.head, sizeof exchange.head) != 0)
        code = ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    else if ((code = add_own(&exchange)) != 0)
        code = store_error(&exchange, code, err);
    else
        code = run(&exchange, err);
    ct_buf_deinit(&exchange.value);
    free(exchange.bytes);
    return code;
}
