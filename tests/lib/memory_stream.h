/* Bytes in memory as a stream, for readers that programs give files. */
#ifndef TESTS_LIB_MEMORY_STREAM_H
#define TESTS_LIB_MEMORY_STREAM_H

#include "data/stream.h"

/* Read from `size` bytes at `data`, which must stay. */
static inline void memory_stream(struct ct_stream *stream, const char *name, const void *data,
                                 size_t size)
{
    *stream = (struct ct_stream){.name = name, .limit = size, .memory = data, .memory_size = size};
}

#endif
