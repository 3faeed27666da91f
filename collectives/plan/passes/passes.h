/* The passes of a plan, in the order they run; each works on the result of the one before. Inside
 * of collectives/plan only. All return 0 or a negative code with its sentence. */
#ifndef CT_COLL_PLAN_H
#define CT_COLL_PLAN_H

#include "collectives/plan/access.h"
#include "collectives/plan/plan.h"

enum { CT_PLAN_MAX_MOMENTS = 3 };

/* How many moments a parameter has, the average counted as the last, and what number `moment` is
 * called, as torch's optimizers do. */
int ct_plan_moments(const struct ct_optim_spec *optim);
const char *ct_plan_moment_name(const struct ct_optim_spec *optim, int moment);

/* Whether the update wants to know its number. */
bool ct_plan_counts_updates(const struct ct_optim_spec *optim);

/* Whether a pattern of the options' freezes the parameter called `name`: model.h's predicate. */
bool ct_plan_freezes(const void *optim_groups, const char *name);

/* Whether two parameters are of the same layer or block, by their names. */
bool ct_plan_same_unit(const char *a, const char *b);

/* tensor: cut the forward pass of `model` for this rank's slice; of the one that is trained, note
 * in plan->sliced what becomes of its parameters. CT_ECONFIG with the numbers when something does
 * not divide. */
int ct_plan_slice(struct ct_plan *plan, struct ct_model *model, bool evaluation,
                  struct ct_error *err);

/* precision: let the model compute in options->compute, a type of 16 bits. */
int ct_plan_precision(struct ct_model *model, const struct ct_plan_options *options,
                      struct ct_error *err);

/* Whether the op makes a parameter's narrow copy; and whether the first micro-batch makes it for
 * all, as it does unless parameters are gathered for each pass. */
bool ct_plan_narrows_param(const struct ct_program *program, const struct ct_program_op *op);
bool ct_plan_is_shared(const struct ct_plan *plan, const struct ct_program *program,
                       const struct ct_program_op *op);

/* A model's parts and who holds them (stage_cut.h); NULL where a rank holds all layers. */
struct ct_cut;

/* recompute: repeat forward ops in the model's backward pass, as the options say. */
int ct_plan_recompute(struct ct_model *model, const struct ct_cut *cut,
                      const struct ct_plan_options *options, struct ct_error *err);

/* offload: copy what waits for the backward pass to the host's memory and back. Of a stage's model,
 * whose ops the cut knows: a copy belongs to the part of the op it stands beside. */
int ct_plan_offload(struct ct_model *model, struct ct_cut *cut, struct ct_arena *arena,
                    struct ct_error *err);

/* layout: the table of tensors, the buckets, the flat range of parameters, sizes of state and
 * gradients. */
int ct_plan_layout(struct ct_plan *plan, const struct ct_model *model, const struct ct_cut *cut,
                   struct ct_error *err);

/* lists: the programs of plan->init, ->eval and ->step (without reductions). */
int ct_plan_make_init(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err);
int ct_plan_make_eval(struct ct_plan *plan, const struct ct_model *model, const struct ct_cut *cut,
                      struct ct_error *err);
int ct_plan_make_step(struct ct_plan *plan, const struct ct_model *model, const struct ct_cut *cut,
                      struct ct_error *err);

/* first: append the ops that give what this rank's slice holds of a parameter its first values. */
struct ct_plan_first {
    const struct ct_plan_tensor *tensor;
    struct ct_init init;
    uint64_t key;
    int view; /* of its held_shape in the program */
};
void ct_plan_emit_first(const struct ct_plan *plan, struct ct_program *program,
                        const struct ct_plan_first *first);

/* first: let `op`, narrow_stochastic of what this rank's slice holds of a parameter from element
 * `first` on, draw for the seed, the parameter's name and each element's number in all of it. */
void ct_plan_key_rounding(const struct ct_plan *plan, const struct ct_plan_tensor *tensor,
                          uint64_t first, struct ct_program_op *op);

/* groups: plan->runs. CT_ECONFIG with the pattern that matches no parameter. */
int ct_plan_make_runs(struct ct_plan *plan, struct ct_error *err);

/* update: append norm, clipping and optimizer to the step's list; values are the flat ranges. */
struct ct_plan_flats {
    int params, grads, moments[CT_PLAN_MAX_MOMENTS];
};
int ct_plan_emit_update(struct ct_plan *plan, const struct ct_plan_flats *flats);

/* fuse: in a list as it was made, let one op do what several did: loss, count and gradient of the
 * logits. */
int ct_plan_fuse_loss(struct ct_plan_list *list, struct ct_error *err);

/* The same for a device that fuses (device.h): products that end with an activation, or its
 * gradient; a norm with the sum in front of it, its backward pass. */
int ct_plan_fuse_gelu(struct ct_plan_list *list, struct ct_error *err);
int ct_plan_fuse_norm(struct ct_plan_list *list, struct ct_error *err);

/* buckets: let slices count loss and right rows once, and add up the gradients that each has a part
 * of. */
int ct_plan_join_slices(struct ct_plan *plan, struct ct_error *err);

/* shard: with plan->shards > 1 rewrite a list so that this rank holds parts (plan.h). */
int ct_plan_shard(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* root: with options.rooted rewrite the step's list so that rank 0 has the batch and the update. */
int ct_plan_root(struct ct_plan *plan, struct ct_error *err);

/* serve: with options.served end the step's list before the update. CT_EUNSUPPORTED for a model
 * that keeps running statistics. */
int ct_plan_serve(struct ct_plan *plan, struct ct_error *err);

/* buckets: with world > 1 put a reduction behind the last writer of the sums and, unless shard has
 * done that, of each bucket. */
int ct_plan_reduce(struct ct_plan *plan, struct ct_error *err);

/* wire: let the step's gradients be added up over the ranks in options->reduce_dtype. */
int ct_plan_narrow_sums(struct ct_plan *plan, struct ct_error *err);

/* memory: list->offset, peak_bytes and live_bytes. Parameters, states and gradients lie one behind
 * the other from 0 on, as the layout says; everything else behind plan->grads_bytes, by lifetime.
 */
int ct_plan_place(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* queues: list->slot. Reductions go to the communication queue when the plan overlaps and has
 * several buckets; an op waits for the ops of the other queue whose bytes it touches. */
int ct_plan_queue(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* Cut the parameters, last to first, into plan->buckets: first_param and last_param. */
int ct_plan_cut(struct ct_plan *plan, struct ct_error *err);

/* ---- shared by the passes ------------------------------------------------------------------- */

/* Every value of a list starts at a multiple of this, as kernels like it. */
enum { CT_PLAN_ALIGN = 64 };

static inline size_t ct_plan_align(size_t bytes)
{
    return (bytes + CT_PLAN_ALIGN - 1) / CT_PLAN_ALIGN * CT_PLAN_ALIGN;
}

/* Whether parameter number `param` of a bucket's range is in the bucket. */
static inline bool ct_plan_in_bucket(const struct ct_plan *plan, const struct ct_bucket *bucket,
                                     int param)
{
    return plan->tensors[param].range >= 0 && plan->tensors[param].wide == bucket->wide;
}

#endif
