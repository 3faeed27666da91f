/* What collectives must compute, element by element, in the plainest way. */
#ifndef TEST_COLL_REFERENCE_H
#define TEST_COLL_REFERENCE_H

#include "ctrun.h"

enum { REFERENCE_WORLD_MAX = 40 };

/* Element `index` of rank `rank`'s input, of mixed magnitude and sign, so that the order of a sum
 * shows; written to `at`. */
void reference_input(enum ct_dtype dtype, int rank, size_t index, void *at);

/* The factor of a rank in a premultiplied sum: no power of two, and not the same for all. */
double reference_scale(int rank);

/* Has the operation a meaning for this type? */
bool reference_supports(enum ct_dtype dtype, enum ct_reduce reduce);

/* The reduction of the ranks' elements `index` in rank order or (tree) in tree order, to `at`. */
void reference_reduce(enum ct_dtype dtype, enum ct_reduce reduce, bool tree, int world,
                      size_t index, void *at);

/* Is `at` the reduction in any order, as closely as rounding allows? */
bool reference_close(enum ct_dtype dtype, enum ct_reduce reduce, int world, size_t index,
                     const void *at);

#endif
