/* Plans: the program of one rank for a step, decided and verified before anything runs.
 *
 *     model       one micro-batch: tensor parallelism, backward pass, precision, cut, ...
 *       v
 *     layout      parameters, moments and gradients in flat ranges
 *       v
 *     lists       the step: A copies of the micro-batch, then the update; initial values; eval
 *       v
 *     shard       ranks hold shards: gather before the first reader, free after the last,
 *       v         reduce_scatter after the last writer
 *     buckets     ranks hold all: reduce(k) after the last writer of bucket k
 *       v
 *     memory      lifetimes to offsets in one arena
 *       v
 *     queues      compute and communication: which op waits for which
 *       v
 *     verifier    every read after its writer, and before its memory is written again
 *
 * Each pass edits or annotates the flat list; all of it is pure: no device, no socket, no clock.
 * The result is the same on every rank, as its hash proves.
 *
 * Layout. Parameters lie in one flat range in reverse order (last layer first), and so do their
 * gradients and moments at the same offsets: backward fills the gradients from the front, so a
 * bucket of the reduction is a slice, and the optimizer is one kernel over a flat range.
 *
 *     params  [ p_L ... p_1 p_0 ]      arena [0, state_bytes): survives steps
 *     buffers [ running statistics ]   of batch norms; whole on every rank
 *     moments [ m_L ... m_1 m_0 ] ...
 *     grads   [ g_L ... g_1 g_0 ]      the reduced gradients of the last step
 *               `bucket 0' `- bucket 1 ...
 *     ...                              temporaries of a list, by lifetime
 *
 * Frozen parameters lie behind the others in `params` and have neither gradients nor moments.
 *
 * A step is unrolled: its list holds the ops of all its micro-batches. The losses and counts of
 * correct rows are two sums in f64, reduced on their own as soon as the last forward pass is done;
 * the ranks' votes (to leave after this step) are summed in the same all-reduce. A loss is the sum
 * over valid rows; gradients are scaled by 1 / (valid rows of the global batch), so every reduction
 * is a plain SUM.
 *
 * Sharding. Ranks can hold a shard of each bucket instead of all (enum ct_plan_shard): the same
 * program, with the whole gathered where it is read and the sum scattered where it is written
 * (shard.c). Lists then differ between ranks in offsets only; the sequence of collectives is the
 * same.
 *
 *     bucket k of W = 4      [ rank 0 | rank 1 | rank 2 | rank 3 ]     flat
 *     rank 2's range         ... part k of rank 2 | part k + 1 ...      sharded: flat / W
 *
 * Pipeline. With several stages a rank has only the layers of its stage (stage_split.h): its list
 * runs their passes in the order of pipeline_schedule.h, and exchanges activations and their
 * gradients with the neighbouring stages.
 *
 * Equality. Except in mode fast all kinds of sharding have the same bits, apart from clipping: the
 * norm is summed in another order. With CT_PLAN_INVARIANT each micro-batch is a leaf of a binary
 * tree: a rank adds its leaves as a binary counter carries, and the all-reduce continues the tree
 * across ranks, so the same leaves give the same bits on 1, 2, 4, 8... ranks (accumulation a power
 * of two). */
#ifndef CT_PLAN_PLAN_H
#define CT_PLAN_PLAN_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"
#include "collectives/plan/mesh.h"
#include "collectives/plan/pipeline_schedule.h"
#include "graph/model.h"
#include "graph/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_plan_reduce {
    CT_PLAN_FAST,         /* gradients accumulate in place, the backend's fastest all-reduce */
    CT_PLAN_REPRODUCIBLE, /* the same, in a fixed order: same layout, same bits */
    CT_PLAN_INVARIANT     /* the tree above; costs log2(accumulation) gradient buffers */
};

/* What ranks shard instead of replicating; every row adds to the one before. */
enum ct_plan_shard {
    CT_PLAN_SHARD_NONE,  /* nothing (DDP): each rank holds all and reduces all */
    CT_PLAN_SHARD_OPTIM, /* moments and reduced gradients (ZeRO-1): parameters are gathered after
                            the update */
    CT_PLAN_SHARD_GRAD,  /* parameters between steps: a unit is gathered once a step */
    CT_PLAN_SHARD_FULL   /* parameters within the step: a unit is gathered for each forward and each
                            backward pass, and freed behind it */
};

/* Activation recomputation: ops that run again in the backward pass, so that their outputs need not
 * be kept. */
enum ct_plan_recompute {
    CT_PLAN_RECOMPUTE_NONE,
    CT_PLAN_RECOMPUTE_GELU,      /* activation functions, of their inputs */
    CT_PLAN_RECOMPUTE_ATTENTION, /* attentions, of their queries, keys and values */
    CT_PLAN_RECOMPUTE_BLOCK      /* all but the tensors between blocks (or layers) */
};

enum ct_optim { CT_OPTIM_SGD, CT_OPTIM_ADAMW, CT_OPTIM_LION, CT_OPTIM_COUNT };

enum { CT_PLAN_PATTERN_SIZE = 128 };

/* A step is unrolled: more micro-batches than this make a list of a hundred thousand ops. */
enum { CT_PLAN_MAX_ACCUMULATION = 4096 };

/* Parameters whose names match the pattern (* ? [ ], as a shell's) learn at `factor` times the
 * rate. */
struct ct_lr_rule {
    char pattern[CT_PLAN_PATTERN_SIZE];
    double factor;
};

/* Exceptions for some parameters. Each pattern must match one; of rules the first that matches
 * counts. Borrowed while the plan is built. */
struct ct_optim_groups {
    bool vectors_undecayed;       /* those of fewer than two dimensions have no weight decay */
    const char *const *undecayed; /* patterns of others that have none */
    int undecayed_count;
    const struct ct_lr_rule *rules;
    int rule_count;
    const char *const
        *frozen; /* patterns of those that keep their values: no gradient, no moments */
    int frozen_count;
};

struct ct_optim_spec {
    enum ct_optim type;
    double momentum;     /* sgd: 0 keeps no moment */
    bool nesterov;       /* sgd: needs momentum */
    double beta1, beta2; /* adamw, lion */
    double eps;          /* adamw */
    double weight_decay; /* sgd: added to the gradient; adamw, lion: decoupled */
    double clip;         /* the bound of the gradient's global norm; 0: none */
    double ema;          /* decay of the average of the parameters; 0 keeps none */
    struct ct_optim_groups groups;
};

struct ct_plan_options {
    int world;
    int rank;    /* the rank of the list; matters when ranks hold different data */
    bool rooted; /* DataParallel: rank 0 scatters the batch, gathers the gradients and updates; the
                    others are replicas of its parameters, and hold no moments
                    (passes/dataparallel_pass.c) */
    bool served; /* parameter servers update: the list ends with this rank's gradients and their
                    norm, and ranks but 0, which saves, have no moments (ps_pass.c) */
    enum ct_plan_shard shard; /* NONE is taken where one rank would hold everything anyway */
    int replicas;             /* copies of sharded data, each held by consecutive ranks; 0 is 1 */
    int tensor;               /* ranks that compute each layer together; 0 is 1 */
    bool sequence; /* tensor: sequence parallelism, activations between layers sharded by tokens */
    int stages;    /* pipeline stages, of consecutive layers; 0 is 1 */
    int chunks;    /* runs of layers that a stage holds, with interleaving; 0 is 1 */
    enum ct_plan_order order; /* of micro-batches in a pipeline */
    int prefetch;             /* GRAD, FULL: a unit is gathered this many units ahead of its use */
    int64_t micro_rows;       /* rows that a rank runs at a time */
    int accumulation;         /* micro-batches a rank runs in a step */
    int64_t eval_rows;        /* rows of one evaluation call; 0 takes micro_rows */
    size_t bucket_bytes;
    size_t first_bucket_bytes;
    bool overlap; /* ranks communicate while they compute what does not depend on it; false: between
                     the ops */
    enum ct_plan_reduce reduce;
    enum ct_dtype compute; /* of the model's products and activations: CT_F32 (also for a model of
                              F64: its own type), CT_BF16 or CT_F16; parameters, their gradients and
                              the optimizer's state stay as the model has them */
    bool stochastic; /* CT_BF16: a step's copies of parameters are rounded stochastically, with an
                        error whose mean is 0; an evaluation's, and all else, to nearest */
    enum ct_dtype reduce_dtype; /* in which gradients are reduced: CT_F32 (the model's own
                                   type), or a narrow one; not with CT_PLAN_INVARIANT */
    enum ct_plan_recompute recompute;
    int recompute_blocks; /* BLOCK: blocks at a time; 0 is 1 */
    bool fuses;           /* the device has fused ops (device.h) */
    bool offload;         /* activations wait for the backward pass in host memory */
    struct ct_optim_spec optim;
};

/* COMM has the collectives on parameters and gradients; MODEL those of model parallelism: of tensor
 * slices, and messages between stages. */
enum ct_queue { CT_QUEUE_COMPUTE, CT_QUEUE_COMM, CT_QUEUE_MODEL, CT_QUEUE_COUNT };

/* Where and when an op runs. An op starts when the ops before it on `queue` and, of each other
 * queue, its first `wait` ops are done (0: no wait). */
struct ct_plan_slot {
    uint8_t queue;
    int32_t wait[CT_QUEUE_COUNT];
};

/* The values that the host writes before a list and reads after it; CT_NONE: none. */
struct ct_plan_io {
    int x;         /* [rows, ...]; the step's micro-batch m is the m-th block of micro_rows */
    int labels;    /* i32 [labels of all rows], -1 for rows that are not valid */
    int inv_valid; /* f64 [1]: 1 / valid labels of the global batch */
    int draw;      /* f64 [2]: number of this update, first row of this rank (dropout, rounding) */
    int lr;        /* f64 [1] */
    int update;    /* f64 [1]: the number of this update, from 1 (AdamW) */
    int wish;      /* f64 [1]: this rank's votes */
    int wishes;    /* f64 [1]: their sum over the ranks, in the same all-reduce as the losses */
    int loss;      /* f64 [1]: sum over the valid rows; of the global batch in a step */
    int correct;   /* f64 [1]: likewise */
    int sumsq;     /* f64 [1]: squared norm of the gradient before clipping */
    int logits;    /* [rows, classes] */
    int unscale;   /* f64 [1]: 1 / the factor that the host has applied to inv_valid (f16) */
};

/* A program with its values placed and its ops queued; the arrays belong to program.arena. */
struct ct_plan_list {
    struct ct_program program;
    struct ct_plan_io io;
    size_t *offset;            /* of each root in the arena, bytes (see ct_plan_offset) */
    struct ct_plan_slot *slot; /* of each op */
    size_t peak_bytes;         /* arena bytes that it needs, up to the end of the last value */
    size_t host_bytes;         /* of the host's memory, where values of CT_VALUE_HOST lie */
    size_t live_bytes;         /* the most that is live at once: no placement needs less */
};

/* A run of the flat range whose gradients are reduced, and whose parameters are gathered, at once.
 * With GRAD and FULL it is a unit: the parameters of a layer or block. In 16 bits a unit has two:
 * parameters that only products read, gathered in 16 bits, and the others. */
struct ct_bucket {
    size_t offset_bytes;         /* in the flat range */
    size_t bytes;                /* a multiple of shards * 64 */
    int last_param, first_param; /* of tensors[first_param .. last_param], last_param first, those
                                    that are as `wide` */
    bool wide;
};

/* A run of the flat range with the same update: adjacent parameters of one group. */
struct ct_plan_run {
    size_t offset_bytes, bytes;
    double lr_factor;
    bool decays;
};

enum { CT_PLAN_WHOLE = -1, CT_PLAN_ELSEWHERE = -2, CT_PLAN_NO_STAGE = -1 };

/* How a tensor is sharded over the slices of the mesh: its elements as [repeat, size, inner], of
 * which a slice holds [repeat, each, inner], the `each` = ceil(size / slices) behind slice * each;
 * elements behind `size` are zero. With size 0 each slice holds all of it, the same.
 *
 *     W [out, in] by rows    1, out, in          by columns  out, in, 1
 *     qkv [3 width, in]      3, width, in        each slice its heads of q, of k and of v */
struct ct_plan_split {
    int64_t repeat, size, inner;
};

/* The shards of a parameter under tensor parallelism. */
struct ct_plan_sliced {
    struct ct_shape shape; /* of the logical (unsharded) tensor */
    struct ct_plan_split split;
    bool partial; /* all hold the same, but each has the gradient of its tokens only */
};

/* A named tensor that survives steps: a parameter, a buffer, or a moment of a parameter. All ranks
 * list the same tensors in any layout. */
struct ct_plan_tensor {
    const char *name; /* "layers.0.weight"; moments: "momentum.<name>", "exp_avg.<name>", ...,
                         "ema.<name>" */
    bool is_param;
    enum ct_dtype dtype;
    struct ct_shape shape; /* of the logical (unsharded) tensor; held_shape is a shard's */
    struct ct_shape held_shape;
    struct ct_plan_split split;
    bool learns;       /* no buffer, and not frozen */
    bool wide;         /* GRAD, FULL in 16 bits: not only narrow copies of it are read */
    int stage, twin;   /* of the pipeline: the stage that holds it; the tied stage, with a second
                          copy, or CT_PLAN_NO_STAGE */
    int range;         /* of the parameters (0), of the first, second ... moments; CT_PLAN_WHOLE:
                          a frozen parameter or a buffer, which every rank of its stage holds;
                          CT_PLAN_ELSEWHERE: this rank's stage does not hold it */
    size_t flat_bytes; /* its place in that range; of a frozen one among the parameters, of a buffer
                          among the buffers */
    size_t offset_bytes; /* in the arena of a rank that holds the range whole; of what is WHOLE in
                            this rank's */
    size_t bytes;        /* of `shape` */
    size_t held_bytes;   /* of held_shape: from flat_bytes on */
};

struct ct_plan {
    struct ct_plan_options options;
    struct ct_mesh mesh;        /* without sharding it has replicas only */
    struct ct_mesh_place place; /* of options.rank */
    uint64_t seed;              /* of initial values and dropout */
    struct ct_plan_list init;   /* initial parameters; run once */
    struct ct_plan_list step;   /* a whole step: all micro-batches, reduction, update */
    struct ct_plan_list eval;   /* forward only, eval_rows rows */

    struct ct_plan_sliced *sliced;  /* by parameter; NULL without slices */
    struct ct_plan_tensor *tensors; /* parameters and buffers in the model's order, then moments */
    int tensor_count;
    int param_count;
    int buffer_count;
    int learned_count; /* parameters that are not frozen: those with gradients and moments */
    int moment_count;  /* of each that learns: the optimizer's, then the average with optim.ema */
    struct ct_bucket *buckets;
    int bucket_count;
    struct ct_plan_run *runs; /* from 0 to flat_bytes without a gap */
    int run_count;
    int *order; /* the tensors of the flat range, first to last */
    int order_count;

    int shards;             /* mesh.shards; 1: nothing is sharded */
    size_t flat_bytes;      /* of what learns, padding included; gradients and moments likewise */
    size_t frozen_bytes;    /* of the rest, which lies behind the parameters that learn */
    size_t buffer_bytes;    /* of the buffers, behind the parameters */
    size_t shard_bytes;     /* flat_bytes / shards: what a rank holds of a range that is sharded */
    size_t state_bytes;     /* of the parameters and moments that this rank holds */
    size_t grads_bytes;     /* where the gradients end: arena [state_bytes, grads_bytes) */
    size_t arena_bytes;     /* the high-water mark of the three lists */
    size_t host_bytes;      /* likewise, of the host's memory */
    uint64_t hash;          /* equal on ranks that may work together */
    struct ct_arena memory; /* holds the plan's tables */
};

/* Plan the model for one rank of `options->world`. Runs every pass and the verifier (whose
 * objection would be a bug of ours: CT_EBUG). 0, CT_ECONFIG with the sentence, or CT_ENOMEM. */
int ct_plan_build(struct ct_plan *plan, const struct ct_model_spec *spec,
                  const struct ct_plan_options *options, uint64_t seed, struct ct_error *err);
void ct_plan_deinit(struct ct_plan *plan);

/* Verify a list, however it was built. 0, or CT_EBUG with a sentence that names the two ops and the
 * value. Proves that
 *   - queues only wait for what was queued before, so nothing deadlocks;
 *   - two ops that touch the same bytes, one of them writing, are ordered by the queues, and so are
 *     two that communicate in one group;
 *   - every read finds the bytes of its own value, all of them written, none overwritten since;
 *   - with world > 1 every gradient is reduced exactly once, after its last writer, and the update
 *     reads reduced bytes only; what slices have each a part of they add up once, before that;
 *   - parameters that the update changed in part are gathered before the list ends. */
int ct_plan_verify(const struct ct_plan *plan, const struct ct_plan_list *list,
                   struct ct_error *err);

/* Offsets of values of CT_VALUE_HOST begin here: behind any arena, they count bytes of host
 * memory. */
#define CT_PLAN_HOST_BASE ((size_t)1 << 60)

/* Return the offset of a value of the list in the arena, or behind CT_PLAN_HOST_BASE. */
size_t ct_plan_offset(const struct ct_plan_list *list, int value);

/* The update of the parameters of a run: its op, with kind and attributes, whose operands are
 * gradient, rate, the number of the update (if it counts them) and scale, to parameters and
 * `moments` moments. */
struct ct_plan_optimizer {
    struct ct_program_op op;
    bool counts_updates;
    int moments;
};
struct ct_plan_optimizer ct_plan_optimizer(const struct ct_plan *plan,
                                           const struct ct_plan_run *run);

/* Return the bytes that one rank sends in a step when its collectives are rings: over W ranks
 * 2 (W - 1) / W of all-reduced bytes, (W - 1) / W of reduce-scattered or gathered bytes. */
double ct_plan_wire_bytes(const struct ct_plan *plan);

/* The bytes of the flat range that ranks with the coordinate `part` hold of a bucket when it is
 * sharded, and their offset in a sharded range. */
struct ct_plan_part {
    size_t flat_bytes, shard_bytes; /* offsets */
    size_t bytes;
};

struct ct_plan_part ct_plan_part(const struct ct_plan *plan, int bucket, int part);

/* Return whether a rank holds only a shard of a flat range of the state (0 the parameters, then the
 * moments); and its offset in the arena. */
bool ct_plan_is_sharded(const struct ct_plan *plan, int range);
size_t ct_plan_range_offset(const struct ct_plan *plan, int range);

/* Append a text for people: parameters, memory by kind, collectives by axis, buckets and FLOP of a
 * step (measure.h); with `ops` also every op of the step with its queue, waits and places. 0 or
 * CT_ENOMEM. */
int ct_plan_print(const struct ct_plan *plan, bool ops, struct ct_buf *buf, struct ct_error *err);

#endif
