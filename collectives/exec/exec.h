/* The executor: runs a plan on a device, with the other ranks of a group.
 *
 *     caller's thread     F0 B0 F1 B1 ......................... wait(1) clip update
 *     comm thread                        reduce(0) reduce(1)
 *                                        `- as soon as its bucket's last writer is done
 *
 *     model thread        msg(0)   msg(1)            slices and stages: the queue beside that one
 *
 * Each thread has its queue of the device. Where ops run asynchronously, a thread waits until the
 * other has enqueued an op, and the queue until the op has run.
 *
 * One arena holds everything (the plan says where); nothing is allocated after ct_exec_new. A
 * thread exists when the plan has ops for its queue; between steps it sleeps and the group is free
 * for the caller's own collectives.
 *
 * Failure. A collective that fails (CT_EREVOKED, CT_ETIMEOUT, ...) ends the step with that code.
 * The update starts only after every reduction has succeeded, so parameters and moments are those
 * of the last completed step, and the executor can be read (state, tensors) or freed; another step
 * may be tried when the group works again. With sharding that does not hold: the ranks' shards can
 * be one step apart, and a lost rank's shard has no other copy.
 *
 * One thread calls; two executors may live in one process. */
#ifndef CT_EXEC_EXEC_H
#define CT_EXEC_EXEC_H

#include "base/clock.h"
#include "base/error.h"
#include "collectives/plan/tensor_extents.h"
#include "ctrun.h"
#include "tensor/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_exec;

/* When an op ran. `start` and `end` count the starts and ends of all queues, so that the order is
 * known without a clock. */
struct ct_exec_event {
    uint64_t start_ns, end_ns; /* the injected clock */
    uint64_t start, end;       /* 1, 2, 3, ... within the step; 0: did not run */
};

struct ct_exec_options {
    struct ct_device *device;      /* borrowed */
    struct ct_group *group;        /* borrowed; NULL in a world of one */
    struct ct_group *device_group; /* borrowed; the same ranks, and takes memory of a device that
                                      is not on the host; NULL for one that is */
    struct ct_job *job;            /* borrowed; when set, a device on the host gets its arena from
                                      ct_mem_alloc: ranks of a node reduce gradients in place; any
                                      other from ct_mem_alloc_on, where there is such memory */
    const char *offload_dir;       /* activations that are offloaded go to a file in this folder;
                                      NULL: to memory of the process */
    uint64_t timeout_ms;           /* of each reduction; 0: the group's */
    const struct ct_clock *clock;  /* for the trace; NULL: the system's */
    bool trace;                    /* record an event an op */
    bool check_ops;                /* wait for the device after each op: a failure names its op */
    /* Where the plan is served: push `bytes` of gradients from offset `at` of the flat range on, on
     * the thread of their queue, concurrently with computing ops. 0, or a code with a sentence. */
    int (*push)(void *push_context, size_t at, const void *data, size_t bytes,
                struct ct_error *err);
    void *push_context;
    /* If set, called on the queue's thread as each op of a step starts: tests, injected faults. */
    void (*before_op)(void *context, int op);
    void *context;
};

struct ct_exec_step {
    const void *x;         /* [accumulation * micro_rows, ...], as the model's input */
    const int32_t *labels; /* of all rows, -1 for those that do not count */
    int64_t valid_count;   /* labels that count in the global batch, > 0 */
    double lr;
    uint64_t update;  /* 1 for the first one: keys dropout's random numbers */
    uint64_t skipped; /* of those before: AdamW's bias correction counts the others */
    double scale;     /* in f16: the factor of the loss while its gradient is computed, a power of
                         two; 0 is 1 */
    bool wish;        /* this rank's vote: each rank learns the number of votes in this step */
    bool done;        /* a second vote */
};

struct ct_exec_result {
    double loss;            /* mean over the labels that count in the global batch */
    int64_t correct;        /* of the global batch */
    double grad_norm;       /* of the global batch's gradient, before clipping */
    double loss_sum, sumsq; /* the sums behind these two: the loss of all labels, the squared norm;
                               with parameter servers of this rank's rows only */
    int64_t wishes;         /* number of votes in this step: the same on each rank */
    int64_t done;           /* number of second votes */
    bool skipped; /* loss or norm is not finite: parameters and moments are as they were */
};

struct ct_exec_eval {
    const void *x;         /* [eval_rows, ...] */
    const int32_t *labels; /* of all rows, -1 for those that do not count */
    void *logits; /* NULL, or gets [labels, classes]; of a slice its columns; of stages at the last
                     alone */
};

/* Sums of one evaluation on this rank, zero where another tensor-parallel rank has the same; add
 * them up, reduce them over the group, then divide. */
struct ct_exec_sums {
    double loss;
    int64_t correct;
};

/* Make an executor of `plan` (borrowed), with parameters initialised from the plan's seed and
 * moments zero. Collective in a world of several: ranks compare the plan's hash, CT_EMISMATCH if it
 * differs. CT_EUSAGE when the group is not the plan's world, CT_EUNSUPPORTED when the device lacks
 * an op, CT_ENOMEM, CT_EOS, CT_EDEVICE, or the error of the collective. */
int ct_exec_new(struct ct_exec **ret_exec, const struct ct_plan *plan,
                const struct ct_exec_options *options, struct ct_error *err);
void ct_exec_free(struct ct_exec *exec);

/* Replace the executor's groups, which are broken or freed; the state stays. Collective, like
 * ct_exec_new, with the same errors. */
int ct_exec_regroup(struct ct_exec *exec, struct ct_group *group, struct ct_group *device_group,
                    struct ct_error *err);

/* Reset the state to that after ct_exec_new. No communication. */
int ct_exec_reset(struct ct_exec *exec, struct ct_error *err);

/* Run one step: forward, backward, reduction, update. Collective. 0, or the code of the collective
 * that failed, with its sentence. */
int ct_exec_step(struct ct_exec *exec, const struct ct_exec_step *args,
                 struct ct_exec_result *ret_result, struct ct_error *err);

/* Run the forward pass over plan->options.eval_rows rows (pad with label -1). Collective where
 * parameters are sharded, tensor-parallel or in stages; else without communication. */
int ct_exec_eval(struct ct_exec *exec, const struct ct_exec_eval *args,
                 struct ct_exec_sums *ret_sums, struct ct_error *err);

/* Gather all tensors of plan->tensors at rank 0, each to data[its number] on the host; `data` is
 * NULL on the other ranks. Collective, unless each rank holds all: then no communication, and any
 * rank may pass `data`. */
int ct_exec_collect(struct ct_exec *exec, void *const *data, struct ct_error *err);

/* Do the reverse: distribute the tensors of rank 0 to all ranks, in any layout; `data` is NULL on
 * the others. Collective. After a failure the state is undefined. */
int ct_exec_spread(struct ct_exec *exec, void *const *data, struct ct_error *err);

/* Copy a part that this rank holds (tensor_extents.h) out of the device or into it. */
void ct_exec_take(struct ct_exec *exec, const struct ct_plan_piece *piece, void *data);
void ct_exec_put(struct ct_exec *exec, const struct ct_plan_piece *piece, const void *data);

/* Copy tensor number `tensor` of plan->tensors (its `bytes` bytes) out of the device or into it.
 * Not of a range that is sharded. */
void ct_exec_read(struct ct_exec *exec, int tensor, void *data);
void ct_exec_write(struct ct_exec *exec, int tensor, const void *data);

/* Copy the gradient of parameter number `tensor` of the last step: reduced, before clipping (in f16
 * times the scale of the loss). No sharding, and the parameter is not frozen. */
void ct_exec_read_grad(struct ct_exec *exec, int tensor, void *data);

/* Return the first parameter whose gradient of the last step is not finite, and the number of such
 * parameters; -1 and 0 if none. Where gradients are sharded, only the rank's shards are checked. */
int ct_exec_bad_gradient(struct ct_exec *exec, int *ret_count);

/* Swap the parameters that learn with their average: evaluations between two such calls are of the
 * average. The plan has one, and both are sharded or neither is. No communication. */
void ct_exec_swap_average(struct ct_exec *exec);

/* Return this rank's state that survives steps, one range on the device (plan->state_bytes). */
void *ct_exec_state(struct ct_exec *exec);

/* Broadcast the state of rank `base`. Collective. After a failure the state is undefined. */
int ct_exec_share_state(struct ct_exec *exec, int base, struct ct_error *err);

/* Its digest: XXH3 over the tensors in order, the same in every layout and world. Nothing is
 * sharded. */
uint64_t ct_exec_digest(struct ct_exec *exec);

/* What this rank has in common with others, in kinds: those that hold the same of a kind have the
 * same `holders` there and, unless something computes wrongly, the same digest. Holders 0: it holds
 * nothing of the kind. Of a tied embedding at two stages the copies are such a kind. */
enum {
    CT_EXEC_WHOLE, /* all that learn from other samples hold it, and all slices */
    CT_EXEC_PART,  /* replicas hold the same part */
    CT_EXEC_SLICE, /* slices hold other elements */
    CT_EXEC_PIECE, /* a part of a slice's */
    CT_EXEC_TIED,  /* whole or a slice's, at two stages */
    CT_EXEC_KINDS
};

struct ct_exec_common {
    uint64_t holders[CT_EXEC_KINDS], digest[CT_EXEC_KINDS];
};

void ct_exec_common(struct ct_exec *exec, struct ct_exec_common *ret);

/* Return the device's arena, plan->arena_bytes long, for checks of the bytes that a step
 * touches. */
void *ct_exec_arena(struct ct_exec *exec);

/* With options.trace: set whether the next step records when its ops run; on at first. */
void ct_exec_set_tracing(struct ct_exec *exec, bool on);

/* Return the trace of the last traced step: an event for each op of plan->step; NULL without
 * options.trace. */
const struct ct_exec_event *ct_exec_trace(const struct ct_exec *exec);

#endif
