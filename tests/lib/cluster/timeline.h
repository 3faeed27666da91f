/* What is to be done later: undo a fault, start an agent again 300 ms from now. Whoever runs the
 * loop calls timeline_run in each of its turns. */
#ifndef TESTS_CLUSTER_TIMELINE_H
#define TESTS_CLUSTER_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>

enum { TIMELINE_ROOM = 256 };

struct timeline_action {
    double at_s; /* of process_now_s */
    void (*run)(void *context, int host);
    int host;
};

struct timeline {
    struct timeline_action actions[TIMELINE_ROOM];
    size_t count;
};

void timeline_add(struct timeline *timeline, double in_s, void (*run)(void *context, int host),
                  int host);

/* Run what is due, in the order of its times; actions may add others. */
void timeline_run(struct timeline *timeline, void *context);

/* Is anything to be done to the host? */
bool timeline_concerns(const struct timeline *timeline, int host);

#endif
