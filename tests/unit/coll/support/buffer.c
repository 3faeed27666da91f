/* See buffer.h. */
#include "buffer.h"

#include "base/assert.h"
#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { FENCE = 64, FENCE_BYTE = 0xa5 };

static _Thread_local struct {
    char *memory;
    size_t bytes, used;
    int borrowed;
} given;

void buffers_from(char *memory, size_t bytes)
{
    CT_ASSERT(given.borrowed == 0);
    given.memory = memory;
    given.bytes = bytes;
    given.used = 0;
}

static bool borrow(struct buffer *buffer, size_t room)
{
    if (given.memory == NULL || room > given.bytes - given.used)
        return false;
    buffer->memory = given.memory + given.used;
    buffer->borrowed = true;
    given.used += (room + 7) / 8 * 8;
    given.borrowed++;
    return true;
}

static void give_back(const struct buffer *buffer)
{
    if (!buffer->borrowed) {
        free(buffer->memory);
    } else if (--given.borrowed == 0) {
        given.used = 0;
    }
}

struct buffer buffer_new_shared(size_t elements, enum ct_dtype dtype, struct ct_job *job)
{
    struct buffer buffer = {.bytes = elements * ct_dtype_size(dtype), .job = job};
    size_t room = buffer.bytes + 2 * FENCE + 8;
    void *memory = NULL;

    if (job != NULL)
        CT_ASSERT(ct_mem_alloc(job, room, &memory, NULL) == 0);
    else if (!borrow(&buffer, room))
        memory = malloc(room);
    if (!buffer.borrowed)
        buffer.memory = memory;
    CT_ASSERT(buffer.memory != NULL);
    memset(buffer.memory, FENCE_BYTE, room);
    buffer.data = buffer.memory + FENCE + ct_dtype_size(dtype);
    return buffer;
}

struct buffer buffer_new(size_t elements, enum ct_dtype dtype)
{
    return buffer_new_shared(elements, dtype, NULL);
}

bool buffer_free(struct buffer *buffer)
{
    bool whole = true;

    for (char *at = buffer->memory; at < buffer->data; at++)
        whole = whole && (unsigned char)*at == FENCE_BYTE;
    for (char *at = buffer->data + buffer->bytes; at < buffer->data + buffer->bytes + FENCE - 8;
         at++)
        whole = whole && (unsigned char)*at == FENCE_BYTE;
    if (buffer->job != NULL)
        ct_mem_free(buffer->job, buffer->memory);
    else
        give_back(buffer);
    return whole;
}

int buffers_free(struct buffer *in, struct buffer *out, int line)
{
    bool in_whole = buffer_free(in), out_whole = buffer_free(out);

    return line != 0 || (in_whole && out_whole) ? line : __LINE__;
}

void buffer_fill(char *data, enum ct_dtype dtype, int rank, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_input(dtype, rank, from + i, data + i * ct_dtype_size(dtype));
}

size_t buffer_stride(size_t count)
{
    return count > 10000 ? 13 : 1;
}

bool buffer_filled(const char *data, enum ct_dtype dtype, int rank, size_t from, size_t count)
{
    unsigned char expected[8];

    for (size_t i = 0; i < count; i += buffer_stride(count)) {
        reference_input(dtype, rank, from + i, expected);
        if (memcmp(expected, data + i * ct_dtype_size(dtype), ct_dtype_size(dtype)) != 0)
            return false;
    }
    return true;
}
