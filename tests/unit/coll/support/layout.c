/* See layout.h. */
#include "layout.h"

struct layout layout_even(int parts, size_t count)
{
    struct layout layout = {.parts = parts, .total = (size_t)parts * count};

    for (int i = 0; i < parts; i++) {
        layout.counts[i] = count;
        layout.offsets[i] = (size_t)i * count;
    }
    return layout;
}

void layout_spread(struct layout *layout, int parts)
{
    layout->parts = parts;
    layout->gaps = true;
    layout->total = 1;
    for (int i = parts - 1; i >= 0; i--) {
        layout->offsets[i] = layout->total;
        layout->total += layout->counts[i] + 1;
    }
}

struct ct_parts layout_parts(const struct layout *layout)
{
    return (struct ct_parts){layout->counts, layout->offsets};
}

char *layout_at(const struct layout *layout, const struct buffer *buffer, int part,
                enum ct_dtype dtype)
{
    return buffer->data + layout->offsets[part] * ct_dtype_size(dtype);
}

bool layout_gaps_are_whole(const struct layout *layout, const struct buffer *buffer,
                           enum ct_dtype dtype)
{
    bool whole = true;

    for (int i = 0; layout->gaps && i < layout->parts; i++)
        for (size_t b = 0; b < ct_dtype_size(dtype); b++)
            whole = whole && layout_at(layout, buffer, i, dtype)[-1 - (int)b] == buffer->memory[0];
    return whole;
}
