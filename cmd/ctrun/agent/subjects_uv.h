/* The workers of this node as they are seen from outside, for programs that keep no record: what
 * diagnose/rhythm.h judges them by. */
#ifndef CT_CTRUN_AGENT_SUBJECTS_UV_H
#define CT_CTRUN_AGENT_SUBJECTS_UV_H

#include "diagnose/rhythm.h"

struct node;
struct subjects;

/* Make a heartbeat file for each slot; NULL without memory. */
struct subjects *subjects_new(struct node *node);

/* Return the name of each slot's heartbeat file, NULL where none could be made. */
const char *const *subjects_files(const struct subjects *subjects);

/* Look at all workers now, into `samples` of each slot. `rhythm` tells who was quiet, so that
 * descendants are looked at, too. */
void subjects_look(struct subjects *subjects, const struct ct_rhythm *rhythm,
                   struct ct_rhythm_sample *samples);

/* Close the files; free. NULL is ignored. */
void subjects_free(struct subjects *subjects);

#endif
