/* One combination of what a call can be given. */
#ifndef TEST_COLL_SHAPE_H
#define TEST_COLL_SHAPE_H

#include "ctrun.h"

struct shape {
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    size_t count;
    bool in_place;
};

/* The sizes of most tests, around the tiny chunks, and the modes. */
enum { SHAPE_COUNTS = 4, SHAPE_MODES = 3 };
extern const size_t shape_counts[SHAPE_COUNTS];
extern const enum ct_reduce_mode shape_modes[SHAPE_MODES];

/* The mode, and the rank's factor. */
struct ct_options shape_options(const struct shape *shape, int rank);

/* Is `data` the reduction of the ranks' elements from `from` on: to the bit, in FAST as closely as
 * rounding allows? */
bool shape_reduced(const struct shape *shape, int world, const char *data, size_t from);

#endif
