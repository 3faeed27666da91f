/* See timeline.h. */
#include "cluster/timeline.h"

#include "base/assert.h"
#include "cluster/process.h"

void timeline_add(struct timeline *timeline, double in_s, void (*run)(void *context, int host),
                  int host)
{
    CT_ASSERT(timeline->count < TIMELINE_ROOM);
    timeline->actions[timeline->count++] =
        (struct timeline_action){process_now_s() + in_s, run, host};
}

void timeline_run(struct timeline *timeline, void *context)
{
    double now_s = process_now_s();

    for (;;) {
        size_t first = 0;
        for (size_t i = 1; i < timeline->count; i++)
            if (timeline->actions[i].at_s < timeline->actions[first].at_s)
                first = i;
        if (timeline->count == 0 || timeline->actions[first].at_s > now_s)
            return;
        struct timeline_action action = timeline->actions[first];
        timeline->actions[first] = timeline->actions[--timeline->count];
        action.run(context, action.host);
    }
}

bool timeline_concerns(const struct timeline *timeline, int host)
{
    for (size_t i = 0; i < timeline->count; i++)
        if (timeline->actions[i].host == host)
            return true;
    return false;
}
