/* The steps of a training as they are done, from the end of its metrics (metrics.jsonl), which its
 * writer cuts and writes on from where a new round begins.
 *
 *      struct step_tail tail;  step_tail_init(&tail, path);
 *      while (step_tail_next(&tail, &step, &wall_s)) ...          in each turn of a loop */
#ifndef TESTS_CLUSTER_STEP_TAIL_H
#define TESTS_CLUSTER_STEP_TAIL_H

#include "base/bytes.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct step_tail {
    char path[PATH_MAX];
    int fd; /* -1: there is no file yet */
    off_t at;
    struct ct_buf text;
    size_t taken;  /* of the text */
    double wall_s; /* the end of the newest step */
};

void step_tail_init(struct step_tail *tail, const char *path);
void step_tail_deinit(struct step_tail *tail);

/* The next step that ended later than all before, with its number and the wall clock at its end; a
 * step that is repeated comes again. False: none for now. */
bool step_tail_next(struct step_tail *tail, uint64_t *ret_step, double *ret_wall_s);

#endif
