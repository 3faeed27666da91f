/* See confer.h. */
#include "diagnose/confer.h"

#include "base/assert.h"

static void step(struct ct_confer *confer)
{
    do
        confer->next = (confer->next + 1) % confer->nodes;
    while (confer->next == confer->self);
}

void ct_confer_begin(struct ct_confer *confer, uint32_t self, uint32_t nodes)
{
    CT_ASSERT(nodes > 1 && self < nodes);
    *confer = (struct ct_confer){.self = self, .nodes = nodes, .next = self};
    step(confer);
}

bool ct_confer_hear(struct ct_confer *confer, bool is_quiet)
{
    if (!is_quiet) {
        confer->quiet = 0; /* and is asked again */
        return false;
    }
    confer->quiet++;
    step(confer);
    return confer->quiet >= 2 * ((uint64_t)confer->nodes - 1);
}
