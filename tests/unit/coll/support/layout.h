/* Where the members' parts lie in a buffer under test: side by side, or from the last to the first
 * with an element between them. */
#ifndef TEST_COLL_LAYOUT_H
#define TEST_COLL_LAYOUT_H

#include "buffer.h"
#include "reference.h"

struct layout {
    int parts;
    bool gaps;
    size_t counts[REFERENCE_WORLD_MAX], offsets[REFERENCE_WORLD_MAX];
    size_t total; /* elements of the buffer that they lie in */
};

/* Equal parts in the order of the ranks. */
struct layout layout_even(int parts, size_t count);

/* Set the offsets of parts whose counts are set: backwards, an element apart. */
void layout_spread(struct layout *layout, int parts);

struct ct_parts layout_parts(const struct layout *layout);
char *layout_at(const struct layout *layout, const struct buffer *buffer, int part,
                enum ct_dtype dtype);

/* The elements between the parts are as buffer_new left them. */
bool layout_gaps_are_whole(const struct layout *layout, const struct buffer *buffer,
                           enum ct_dtype dtype);

#endif
