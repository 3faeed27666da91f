/* What every backend has to do right: each operation, type, reduction and mode, against the
 * reference. Every member of a group calls the same; 0, or the line where something was wrong. */
#ifndef TEST_COLL_CONFORM_H
#define TEST_COLL_CONFORM_H

#include "ctrun.h"

/* Sizes around rig.h's tiny chunks, so that a call takes several of them. */
int conform_reductions(struct ct_group *group);
int conform_moves(struct ct_group *group); /* what does not reduce */
int conform_parts(struct ct_group *group); /* the v forms */

/* Sizes for the real chunks. */
int conform_large(struct ct_group *group);

#endif
