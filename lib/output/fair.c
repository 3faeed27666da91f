/* See fair.h. */
#include "output/fair.h"

#include "base/assert.h"

void ct_fair_init(struct ct_fair *fair, uint32_t *line, uint32_t streams)
{
    *fair = (struct ct_fair){.line = line, .room = streams};
}

bool ct_fair_ask(struct ct_fair *fair, uint32_t stream, size_t queued)
{
    if (queued < CT_FAIR_HIGH && fair->count == 0)
        return true;
    CT_ASSERT(stream < fair->room && fair->count < fair->room);
    fair->line[(fair->first + fair->count++) % fair->room] = stream;
    return false;
}

int64_t ct_fair_next(struct ct_fair *fair, size_t queued)
{
    if (fair->count == 0 || queued >= CT_FAIR_LOW)
        return -1;
    uint32_t stream = fair->line[fair->first];
    fair->first = (fair->first + 1) % fair->room;
    fair->count--;
    return stream;
}

void ct_fair_drop(struct ct_fair *fair, uint32_t stream)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < fair->count; i++) {
        uint32_t waiting = fair->line[(fair->first + i) % fair->room];

        if (waiting != stream)
            fair->line[(fair->first + kept++) % fair->room] = waiting;
    }
    fair->count = kept;
}
