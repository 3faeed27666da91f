/* What a replica reads from its disk at its start: records, each behind its length (u16), of any
 * content. What was read is emitted, and read back as the same. */
#include "rendezvous/replica/replica.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

enum { EMITTED_BYTES = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void send_nothing(void *context, uint64_t to, const char *address,
                         const struct ct_message *message)
{
    (void)context, (void)to, (void)address, (void)message;
}

static int append(void *context, const void *record, size_t size)
{
    struct ct_buf *to = context;
    unsigned char head[4];

    ct_put_le32(head, (uint32_t)size);
    (void)ct_buf_append(to, head, sizeof head);
    return ct_buf_append(to, record, size);
}

static struct ct_replica *new_replica(void)
{
    static const struct ct_replica_server peers[] = {{1, "a:1"}, {2, "b:1"}, {3, "c:1"}};
    static const struct ct_replica_io io = {.send = send_nothing, .keep = append};
    const struct ct_replica_options options = {
        .id = 1, .era = 1, .address = "a:1", .io = &io, .voters = peers, .voter_count = 3};
    struct ct_replica *replica = ct_replica_new(&options);

    CT_ASSERT(replica);
    return replica;
}

/* Emit it, read that into another one, and emit that. */
static void copy(const struct ct_replica *replica)
{
    struct ct_replica *anew = new_replica();
    struct ct_buf first, second;

    ct_buf_init(&first, EMITTED_BYTES);
    ct_buf_init(&second, EMITTED_BYTES);
    CT_ASSERT(ct_replica_emit(replica, append, &first) == 0);
    for (size_t at = 0; at < first.size; at += 4 + ct_get_le32(first.data + at))
        CT_ASSERT(
            ct_replica_restore(anew, first.data + at + 4, ct_get_le32(first.data + at), NULL) == 0);
    CT_ASSERT(ct_replica_emit(anew, append, &second) == 0);
    CT_ASSERT(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
    ct_replica_free(anew);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_replica *replica = new_replica();
    struct ct_error err = {0};
    int code = 0;

    while (code == 0 && size >= 2) {
        size_t record = CT_MIN((size_t)ct_get_le16(data), size - 2);

        code = ct_replica_restore(replica, data + 2, record, &err);
        CT_ASSERT((code == 0) == (err.text[0] == '\0'));
        data += 2 + record;
        size -= 2 + record;
    }
    if (code == 0) {
        copy(replica);
        ct_replica_begin(replica);
    }
    ct_replica_free(replica);
    return 0;
}
