/* A server's part of the state, and the optimizer on it.
 *
 *     flat range       [ ........ | bytes [at, at + bytes) | ........ ]   of all servers
 *     memory           params | moments ...
 *
 * The runs of the plan (parts of one learning rate and weight decay) are clipped to the part; each
 * is one op of the device, as in the plan of a worker that updates by itself (collectives/plan), so
 * the bits are the same. This state outlives the plan. */
#ifndef CT_COLL_PS_UPDATE_H
#define CT_COLL_PS_UPDATE_H

#include "collectives/plan/plan.h"
#include "tensor/device.h"

struct ct_ps_part {
    size_t at, bytes;
};

/* Return the part of `flat_bytes` that server `index` of `count` holds; offset and size are
 * multiples of 64. */
struct ct_ps_part ct_ps_part(size_t flat_bytes, int index, int count);

/* The scalars of one update. */
struct ct_ps_numbers {
    double lr, update;
    double loss, sumsq; /* not finite: the update changes nothing */
};

struct ct_ps_update;

/* Make a zeroed state for the plan's parameters that learn. `device` (borrowed) computes in host
 * memory. 0, CT_EUNSUPPORTED, CT_ENOMEM. */
int ct_ps_update_new(struct ct_ps_update **ret_update, const struct ct_plan *plan,
                     struct ct_ps_part part, struct ct_device *device, struct ct_error *err);
void ct_ps_update_free(struct ct_ps_update *update);

/* Return its part of a range; the type of its elements. */
struct ct_ps_part ct_ps_update_part(const struct ct_ps_update *update);
enum ct_dtype ct_ps_update_dtype(const struct ct_ps_update *update);

/* Return the number of ranges (parameters, then moments); the part's bytes of one. */
int ct_ps_update_ranges(const struct ct_ps_update *update);
char *ct_ps_update_range(struct ct_ps_update *update, int range);

/* Zero the state. */
void ct_ps_update_reset(struct ct_ps_update *update);

/* Return the squared norm of the part's bytes of a gradient. */
double ct_ps_update_sumsq(struct ct_ps_update *update, void *gradient);

/* Update with a gradient: check that it is finite, clip, optimizer, average. */
void ct_ps_update_run(struct ct_ps_update *update, void *gradient,
                      const struct ct_ps_numbers *numbers);

#endif
