/* The passes of a plan, in the order they run; each works on the result of the one before. Inside
 * of collectives/plan only. All return 0 or a negative code with its sentence. */
#ifndef CT_COLL_PLAN_H
#define CT_COLL_PLAN_H

#include "collectives/plan/access.h"
#include "collectives/plan/plan.h"

enum { CT_PLAN_MAX_MOMENTS = 3 };

/* Return the number of moments of a parameter, the average counted as the last; and the name of
 * moment number `moment`, as in torch's optimizers. */
int ct_plan_moments(const struct ct_optim_spec *optim);
const char *ct_plan_moment_name(const struct ct_optim_spec *optim, int moment);

/* Return whether the update needs its number. */
bool ct_plan_counts_updates(const struct ct_optim_spec *optim);

/* Return whether a pattern of the options freezes the parameter called `name`: model.h's
 * predicate. */
bool ct_plan_freezes(const void *optim_groups, const char *name);

/* Return whether two parameters are of the same layer or block, by their names. */
bool ct_plan_same_unit(const char *a, const char *b);

/* tensor: shard the forward pass of `model` for this rank (tensor parallelism); of the trained
 * model, note in plan->sliced how its parameters are sharded. CT_ECONFIG with the numbers when they
 * do not divide. */
int ct_plan_tensor_parallel(struct ct_plan *plan, struct ct_model *model, bool evaluation,
                            struct ct_error *err);

/* precision: let the model compute in options->compute, a type of 16 bits. */
int ct_plan_precision(struct ct_model *model, const struct ct_plan_options *options,
                      struct ct_error *err);

/* Return whether the op makes a parameter's narrow copy; and whether the first micro-batch makes it
 * for all, as it does unless parameters are gathered for each pass. */
bool ct_plan_narrows_param(const struct ct_program *program, const struct ct_program_op *op);
bool ct_plan_is_shared(const struct ct_plan *plan, const struct ct_program *program,
                       const struct ct_program_op *op);

/* A model's parts and the stages that hold them (stage_split.h); NULL where a rank holds all
 * layers. */
struct ct_stage_split;

/* recompute: repeat forward ops in the model's backward pass, as the options say. */
int ct_plan_recompute(struct ct_model *model, const struct ct_stage_split *split,
                      const struct ct_plan_options *options, struct ct_error *err);

/* offload: copy activations that wait for the backward pass to host memory and back. In a stage's
 * model, whose ops `split` assigns to parts: a copy belongs to the part of the op next to it. */
int ct_plan_offload(struct ct_model *model, struct ct_stage_split *split, struct ct_arena *arena,
                    struct ct_error *err);

/* layout: the table of tensors, the buckets, the flat range of parameters, sizes of state and
 * gradients. */
int ct_plan_layout(struct ct_plan *plan, const struct ct_model *model,
                   const struct ct_stage_split *split, struct ct_error *err);

/* lists: the programs of plan->init, ->eval and ->step (without reductions). */
int ct_plan_make_init(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err);
int ct_plan_make_eval(struct ct_plan *plan, const struct ct_model *model,
                      const struct ct_stage_split *split, struct ct_error *err);
int ct_plan_make_step(struct ct_plan *plan, const struct ct_model *model,
                      const struct ct_stage_split *split, struct ct_error *err);

/* init: append the ops that initialise this rank's shard of a parameter. */
struct ct_plan_param_init {
    const struct ct_plan_tensor *tensor;
    struct ct_init init;
    uint64_t key;
    int view; /* of its held_shape in the program */
};
void ct_plan_emit_param_init(const struct ct_plan *plan, struct ct_program *program,
                             const struct ct_plan_param_init *first);

/* init: key the random numbers of `op`, narrow_stochastic of this rank's shard of a parameter from
 * element `first` on, by the seed, the parameter's name and each element's number in the unsharded
 * parameter. */
void ct_plan_key_rounding(const struct ct_plan *plan, const struct ct_plan_tensor *tensor,
                          uint64_t first, struct ct_program_op *op);

/* groups: plan->runs. CT_ECONFIG with the pattern that matches no parameter. */
int ct_plan_make_runs(struct ct_plan *plan, struct ct_error *err);

/* update: append norm, clipping and optimizer to the step's list; values are the flat ranges. */
struct ct_plan_flats {
    int params, grads, moments[CT_PLAN_MAX_MOMENTS];
};
int ct_plan_emit_update(struct ct_plan *plan, const struct ct_plan_flats *flats);

/* fuse: in a list as it was built, fuse loss, count and gradient of the logits into one op. */
int ct_plan_fuse_loss(struct ct_plan_list *list, struct ct_error *err);

/* The same for a device that fuses (device.h): products that end with an activation, or its
 * gradient; a norm with the sum in front of it, its backward pass. */
int ct_plan_fuse_gelu(struct ct_plan_list *list, struct ct_error *err);
int ct_plan_fuse_norm(struct ct_plan_list *list, struct ct_error *err);

/* buckets: under tensor parallelism count loss and correct rows once, and sum the gradients of
 * which each rank has a part. */
int ct_plan_reduce_tensor(struct ct_plan *plan, struct ct_error *err);

/* shard: with plan->shards > 1 rewrite a list so that this rank holds parts (plan.h). */
int ct_plan_shard(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* dp: with options.rooted rewrite the step's list so that rank 0 has the batch and the update. */
int ct_plan_data_parallel(struct ct_plan *plan, struct ct_error *err);

/* ps: with options.served end the step's list before the update. CT_EUNSUPPORTED for a model that
 * keeps running statistics. */
int ct_plan_param_server(struct ct_plan *plan, struct ct_error *err);

/* buckets: with world > 1 put a reduction behind the last writer of the sums and, unless shard has
 * done that, of each bucket. */
int ct_plan_reduce(struct ct_plan *plan, struct ct_error *err);

/* reduce_16bit: reduce the step's gradients over the ranks in options->reduce_dtype. */
int ct_plan_narrow_sums(struct ct_plan *plan, struct ct_error *err);

/* overlap: put ops that a collective between slices does not depend on behind it, to be computed
 * beside it. */
int ct_plan_overlap(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* memory: list->offset, peak_bytes and live_bytes. Parameters, states and gradients lie one behind
 * the other from 0 on, as the layout says; everything else behind plan->grads_bytes, by lifetime.
 */
int ct_plan_place(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* queues: list->slot. When the plan overlaps, reductions go to the communication queue if there are
 * several buckets, calls between slices and stages to theirs if something can be computed beside
 * them; an op waits for the ops of other queues whose order with it matters. */
int ct_plan_queue(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err);

/* Divide the parameters, last to first, into plan->buckets: first_param and last_param. */
int ct_plan_make_buckets(struct ct_plan *plan, struct ct_error *err);

/* ---- shared by the passes ------------------------------------------------------------------- */

/* Every value of a list starts at a multiple of this, for the kernels. */
enum { CT_PLAN_ALIGN = 64 };

static inline size_t ct_plan_align(size_t bytes)
{
    return (bytes + CT_PLAN_ALIGN - 1) / CT_PLAN_ALIGN * CT_PLAN_ALIGN;
}

/* Return whether parameter number `param` of a bucket's range is in the bucket. */
static inline bool ct_plan_in_bucket(const struct ct_plan *plan, const struct ct_bucket *bucket,
                                     int param)
{
    return plan->tensors[param].range >= 0 && plan->tensors[param].wide == bucket->wide;
}

#endif
