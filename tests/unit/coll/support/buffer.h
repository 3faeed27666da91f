/* Buffers of a collective under test: misaligned by an element, fenced by canaries, filled with
 * what the reference gives each rank. */
#ifndef TEST_COLL_BUFFER_H
#define TEST_COLL_BUFFER_H

#include "ctrun.h"

struct buffer {
    char *memory, *data;
    size_t bytes;
    struct ct_job *job; /* whose symmetric memory it lies in; NULL: on the heap */
    bool borrowed;      /* from the memory below */
};

struct buffer buffer_new(size_t elements, enum ct_dtype dtype);

/* The same in symmetric memory of its own; `job` NULL: on the heap. */
struct buffer buffer_new_shared(size_t elements, enum ct_dtype dtype, struct ct_job *job);
/* This thread's buffers come out of `memory` from now on, one behind the other, where they fit;
 * NULL: from the heap again. */
void buffers_from(char *memory, size_t bytes);

/* Free it; false when a byte around the data has changed. */
bool buffer_free(struct buffer *buffer);

/* Free both: `line`, which was found before, or the line of a trodden fence, or 0. */
int buffers_free(struct buffer *in, struct buffer *out, int line);

/* Write `count` elements of `rank`'s input from element `from` on. */
void buffer_fill(char *data, enum ct_dtype dtype, int rank, size_t from, size_t count);

/* Are they that? Looks at every buffer_stride(count)-th: the reference is slow. */
bool buffer_filled(const char *data, enum ct_dtype dtype, int rank, size_t from, size_t count);
size_t buffer_stride(size_t count);

#endif
