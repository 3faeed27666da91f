/* ctrun.h: what a worker program links to take part in a job.
 *
 *     struct ct_job *job;     // one process's membership in the current round
 *     struct ct_group *group; // the ranks that communicate with each other
 *     struct ct_error err = {0};
 *
 *     if (ct_job_open(&job, &err) != 0 || ct_group_new(job, NULL, &group, &err) != 0)
 *         return fail(&err);  // err.text says what, where, and the remedy
 *     ct_all_reduce(group, ct_inplace(x, n, CT_F32), CT_REDUCE_AVG, NULL);
 *     ct_group_free(group);
 *     ct_job_close(job);
 *
 * Threads: a job may be used from several threads. Of a group, one thread at a time may start, test
 * and wait; ct_group_revoke alone may be called from any thread at any moment. Different groups are
 * independent of each other.
 *
 * Order: every member of a group starts the same collectives in the same order. A member that does
 * not gets CT_EMISMATCH wherever the difference can be seen, and never a silent wrong result.
 *
 * Progress: a started operation advances inside calls on its group (start, test, wait) and, while
 * its thread computes, on a helper thread that the group makes for the first operation that stays
 * open and that sleeps while none is. Blocking calls need no helper. One thread may have operations
 * open in several groups: it tests them in turn, or waits for them in an order that is the same at
 * all ranks.
 *
 * Nothing hangs: each wait ends with 0 or one of
 *     CT_ETIMEOUT    the call's timeout passed: a member is slow, stuck or never came
 *     CT_EREVOKED    the round is over (a member was lost, or ct_group_revoke)
 *     CT_ECLOSED     a member closed the group or its connection broke
 *     CT_EMISMATCH   members called different operations, sizes, types, roots or tags
 * After any of these the group is broken: the contents of its buffers are undefined, each later
 * call returns the same code at once, and ct_group_failure has the sentence. CT_EUSAGE and
 * CT_ELIMIT mean that the call itself was wrong; nothing was started and the group stays usable. */
#ifndef CTRUN_H
#define CTRUN_H

#include "base/error.h"
#include "base/number/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct ct_accel; /* base/accel.h */
struct ct_job;
struct ct_group;
struct ct_request;

/* ---- the job ---------------------------------------------------------------------------------*/

/* This process's place in the round. Strings belong to the job. */
struct ct_assignment {
    const char *run_id;
    uint64_t generation; /* the round's number; only grows */
    uint64_t lineage;    /* the generation whose state the job continues; 0: none yet */
    uint64_t base_step;  /* the step of that state */
    int base_rank;       /* first rank of a node that holds it; -1: none, start from a checkpoint */
    uint64_t published_generation; /* 0: nothing was published; else, when nobody holds a state, */
    uint64_t published_step;       /* start from exactly this one */
    int rank, world;
    int local_rank, local_world;
    int node_rank, nnodes;
    int restart_count;
};

/* Training progress, for the operator's progress line. NaN or 0 where not known. */
struct ct_progress {
    uint64_t epoch, epochs; /* from 0; how many */
    uint64_t step, steps;
    double loss, samples_per_s, learning_rate;
    double eta_s;
    double trained_s; /* since this rank's loop of the round began; of it, steps waited ... */
    double saving_s, straggler_s; /* ... for a checkpoint, and for the slowest rank */
};

/* An evaluation on held-out data: progress while it runs, a line of the log when it is complete. */
struct ct_job_evaluation {
    uint64_t step; /* after which it is made */
    double done;   /* 0 to 1; below 1 it is not complete */
    double loss;
    double accuracy;   /* 0 to 1; negative: not available */
    double perplexity; /* negative: not available */
    double best;       /* the lowest loss so far, and its step */
    uint64_t best_step;
};

/* The state that this process holds: the next round starts from the most advanced survivor's. */
struct ct_ready {
    uint64_t lineage; /* the last round in which all ranks had the same state; 0: it holds none */
    uint64_t step;    /* completed */
    uint64_t digest;  /* of the state; equal states have equal digests */
};

/* Join the job through the descriptors in CTRUN_CONTROL_FD and CTRUN_PAGE_FD that the agent passed,
 * or, without them, open a job of world size 1. Wait for the assignment. Return 0, or an error with
 * its sentence. */
int ct_job_open(struct ct_job **ret_job, struct ct_error *err);

/* Leave the job. Groups made from it must be freed before. NULL is allowed. */
void ct_job_close(struct ct_job *job);

/* Return the assignment, valid until ct_job_close; ct_job_regroup changes its contents. */
const struct ct_assignment *ct_job_assignment(const struct ct_job *job);

/* Return the MPI library that rank and world are from, as "Open MPI v4.1.4 (libmpi.so.40)", when
 * mpirun has started this process without an agent. Such a job has one round, and ends when a rank
 * does. NULL in all others. */
const char *ct_job_mpi(const struct ct_job *job);

/* Report to the agent; each returns 0 or the code of a broken link, and does nothing in a job
 * without an agent. `summary` is rank 0's final report, which the agent prints; `output` the folder
 * of the run, for those that go on in it; `failure` the sentence with which this process exits. */
int ct_job_progress(struct ct_job *job, const struct ct_progress *progress);
int ct_job_evaluation(struct ct_job *job, const struct ct_job_evaluation *evaluation);
int ct_job_summary(struct ct_job *job, const char *text);
int ct_job_output(struct ct_job *job, const char *folder);
int ct_job_failure(struct ct_job *job, const struct ct_error *failure);

/* Report what this process does from now on, `step` steps completed, so that the agent can tell a
 * hanging rank from a busy one (ctrun's launch.hang_timeout). Calling it again in the same section,
 * as with each batch of an evaluation, is a heartbeat. CT_AT_CHECKPOINT, that is reading or writing
 * one, may be silent for half an hour, and so may all before the first step. By one thread. A
 * program that never calls this is judged by its collectives alone, with the hang timeout of the
 * start phase. */
enum ct_section {
    CT_AT_START,
    CT_AT_STEP,
    CT_AT_EVALUATE,
    CT_AT_CHECKPOINT,
    CT_AT_PUBLISH, /* waiting until one is published */
};
void ct_job_at(struct ct_job *job, enum ct_section section, uint64_t step);

/* Report that `rank` is a straggler: it was the last one at `share` per cent of the steps, and
 * costs `cost` per cent of their time. The agent prints a warning. */
void ct_job_straggler(struct ct_job *job, int rank, int share, int cost);

/* Return whether the agent requested a clean stop. If so, *ret_deadline_ms (may be NULL) is the
 * time allowed, counted from the request; 0: nothing is to be saved, the job continues without this
 * process. Never blocks. */
bool ct_job_stop_requested(struct ct_job *job, uint64_t *ret_deadline_ms);

/* Return whether the round is over: its operations then return CT_EREVOKED. One atomic load. */
bool ct_job_revoked(const struct ct_job *job);

/* ---- elastic rounds --------------------------------------------------------------------------
 *
 *       ct_job_open, state made or loaded
 *       ct_job_survive                     from here on the agent does not stop this process
 *           |
 *     +---> ct_group_new                   all groups
 *     |     the state, from base_rank      unless this rank holds it; -1: from a checkpoint
 *     |     ct_job_healed                  this process holds the state of the round
 *     |     steps                          until CT_EREVOKED or CT_ECLOSED, or a boundary at which
 *     |     |                              all ranks leave (ct_job_boundary_requested)
 *     |     ct_group_free                  all groups
 *     +---- ct_job_regroup                 the next round: rank, world, base may change
 *
 * Programs that do none of this are stopped and restarted, all ranks together. */

/* Tell the agent that this process regroups when its round ends. Does nothing without an agent.
 * Call it as early as possible, before data is loaded: until ct_job_healed this process holds no
 * state, so nobody waits for it when the round ends early. */
int ct_job_survive(struct ct_job *job);

/* Tell the agent that this process holds the state that its round starts from, and takes part from
 * here on. Once per round. */
int ct_job_healed(struct ct_job *job);

/* Return whether the next round waits for a step boundary: then leave the groups after this step
 * and regroup. Ranks learn it at different times and must agree on the step. One relaxed load. */
bool ct_job_boundary_requested(const struct ct_job *job);

/* Wait for the next round, for as long as the agent needs to make it. All groups are freed before;
 * `ready` is the state that this process holds. 0: ct_job_assignment is the new one (the same
 * pointer). CT_ECLOSED: a stop was requested, or the agent is gone. CT_EUNSUPPORTED: no agent. */
int ct_job_regroup(struct ct_job *job, const struct ct_ready *ready, struct ct_error *err);

/* Return whether a call failed with `code` because the round is over, rather than because this
 * process failed: then regroup. Always false without an agent. */
bool ct_job_is_round_over(const struct ct_job *job, int code);

/* ---- steps -----------------------------------------------------------------------------------
 *
 * The same with less work, for a training whose state is equal on all ranks:
 *
 *     struct ct_job_step step = {0};
 *     int code = ct_job_register_state(job, "weights", w, sizeof w, &err);
 *
 *     if (code != 0)
 *         return fail(&err);
 *     while ((code = ct_job_begin_step(job, &step, &err)) == 0 && step.number < STEPS) {
 *         compute(ct_job_assignment(job), w, gradient); // rank and world may be others than before
 *         if (ct_all_reduce(step.group, ct_inplace(gradient, N, CT_F32), CT_REDUCE_AVG, NULL) != 0)
 *             continue;        // begins the step again
 *         update(w, gradient); // w changes only behind the last collective of the step
 *     }
 *
 * When ranks are lost or join, ct_job_begin_step makes the next round: the most advanced survivor
 * broadcasts its state, at most the step in flight is repeated, and survivors keep their process.
 * Programs that register nothing are stopped and restarted, all ranks together. */

struct ct_job_step {
    uint64_t number;        /* completed before this one; set it before the first, to resume */
    struct ct_group *group; /* all ranks; the job's own, for the steps' reductions */
    bool all_stop;          /* CT_ECLOSED: all ranks stop before this step, whose state is whole */
    bool regrouped;         /* a new round, or the first: make the program's own groups anew */
};

/* Register `data` as part of the state that all ranks share. At the first step all get rank 0's. */
int ct_job_register_state(struct ct_job *job, const char *name, void *data, size_t bytes,
                          struct ct_error *err);

/* State that lies in no fixed place, as a Python program's. Called by who begins the step. */
struct ct_state_calls {
    void *context;
    /* Return a digest of the state that this process holds: equal states have equal ones. */
    uint64_t (*digest)(void *context);
    /* Collective over `group`: send the state at rank `base`, receive it at the others, which keep
     * their own until they have all of it. 0, or the code of the call that failed. */
    int (*broadcast)(void *context, struct ct_group *group, int base);
};

/* Return a digest (XXH3) of memory, chained through `seed`: what `digest` may be made of. */
uint64_t ct_digest(const void *data, size_t size, uint64_t seed);

/* Register state by functions, besides what ct_job_register_state has; at most once. */
int ct_job_register_calls(struct ct_job *job, const struct ct_state_calls *calls,
                          struct ct_error *err);

/* Begin the next step; the previous one is completed unless a call on `step->group` failed in it or
 * it was abandoned. Collective: costs one small reduction. 0; CT_ECLOSED when the job is to stop
 * (`all_stop`: all ranks before the same step, which can be saved) or this rank is to leave alone;
 * CT_EMISMATCH when ranks are at different steps; CT_EDIVERGED; CT_EUNAVAILABLE when no rank holds
 * the state. */
int ct_job_begin_step(struct ct_job *job, struct ct_job_step *step, struct ct_error *err);

/* Give up the step that was begun, as a call on another group than the step's failed because the
 * round is over (ct_job_is_round_over): the next step begins with a new round. */
void ct_job_abandon_step(struct ct_job *job);

/* ---- publishing ------------------------------------------------------------------------------
 *
 * A result for readers outside the job (a checkpoint, the final result) counts once the rendezvous
 * has it on record. The request of a process that was stopped or cut off, and still acts in a round
 * that is over, is refused, so it cannot replace a newer state by an old one:
 *
 *     ct_job_publish(job, step, digest); // the files lie there, under a name of their own
 *     train();                           // goes on meanwhile
 *     if (ct_job_published(job, 0, &err) == 0)
 *         point_readers_to(step);
 *
 * Publish only a step that all ranks have completed: when the first collective of the next step, or
 * a barrier, has returned. When a later round starts from this step or a newer one, requests
 * without an answer are repeated there. */

/* Request a publication; returns at once. The last request counts, also when the round has changed
 * since. 0, or the code of a broken link. Operators see the bytes that it takes, if told. */
int ct_job_publish(struct ct_job *job, uint64_t step, uint64_t digest);
int ct_job_publish_sized(struct ct_job *job, uint64_t step, uint64_t digest, uint64_t bytes);

/* Return the answer to the last request, 0: it is on record. CT_ETIMEOUT: none in `timeout_ms` (0:
 * poll); CT_EFENCED: refused, its round is over; CT_ECLOSED: the agent is gone. Without one: 0. */
int ct_job_published(struct ct_job *job, int timeout_ms, struct ct_error *err);

/* ---- the store of the round ------------------------------------------------------------------
 *
 * A few small values (1 MiB at most) that every rank of the round reads and sets, as ids of other
 * libraries are exchanged with. Each round begins with an empty one. Any thread; one call at a time
 * goes on in a process. They return 0, CT_EREVOKED, CT_ELIMIT, CT_ECLOSED (the rendezvous is away),
 * or CT_EUNSUPPORTED: a job of one process without an agent has none. */

/* Set or replace the value of `key`. */
int ct_store_set(struct ct_job *job, const char *key, const void *value, size_t size);

/* Copy the value of `key` once there is one. *size is the room in `value`, and becomes its length.
 * CT_ETIMEOUT: none within `timeout_ms` (0: there is none now). */
int ct_store_get(struct ct_job *job, const char *key, void *value, size_t *size,
                 uint64_t timeout_ms);

/* Add to a counter (absent: 0); *ret_sum becomes the sum. An error may come after it was added. */
int ct_store_add(struct ct_job *job, const char *key, int64_t delta, int64_t *ret_sum);

/* ---- memory ----------------------------------------------------------------------------------
 *
 * Symmetric memory can be read and written by the other ranks of the node in place, so that nothing
 * is copied into staging buffers. Any part of any such allocation may be given to any call, another
 * one at each member. A call copies nothing if these buffers lie in it (a member with an ordinary
 * buffer makes the call take the ordinary path, with the same result):
 *
 *     all_reduce       send and recv of every member
 *     reduce_scatter   send of every member (in place: recv)
 *     all_gather       send of every member (in place: recv)
 *     broadcast        send of the root (in place: recv)
 *
 * Not collective: each process allocates as it likes; a group learns of an allocation at its first
 * use there, by one more round. Allocations belong to the job, and outlive groups and rounds.
 * Between nodes, and without other ranks on the node, it is ordinary memory. */

/* Allocate `bytes` (> 0) of zeroed memory, aligned to pages, without a name: none is left when the
 * process dies. Any thread. 0, or a negative code with its sentence. */
int ct_mem_alloc(struct ct_job *job, size_t bytes, void **ret_memory, struct ct_error *err);

/* Allocate zeroed memory of a device, of the kind that its collectives prefer (NCCL windows, with
 * CTRUN_NCCL_WINDOWS=1). A group of this job must have formed on the device before. Any thread.
 * CT_EUNSUPPORTED with the reason where there is no such kind: the device's own allocations work as
 * well, only slower. */
int ct_mem_alloc_on(struct ct_job *job, const struct ct_accel *device, size_t bytes,
                    void **ret_memory, struct ct_error *err);

/* Free it; no call may use it any more. Any thread. NULL is allowed. ct_job_close frees the rest.
 * Memory registered with a group (ct_group_share) is kept until that group is freed. */
void ct_mem_free(struct ct_job *job, void *memory);

/* ---- groups ----------------------------------------------------------------------------------*/

/* All zero means: every rank of the job, the best backend, ten minutes. */
struct ct_group_options {
    const char *name;    /* the same at each member, unique among open groups; NULL: "world" */
    const int *ranks;    /* the members' ranks in the job, ascending; NULL: all */
    int nranks;          /* how many lie in `ranks` */
    const char *backend; /* "auto" (or NULL), "self", "thread", "shm", "hier", "ucx", "tcp"; with a
                          * device "nccl", "staged" */
    uint64_t timeout_ms; /* of the creation and of each call without one; 0: 600 000 */
    bool encrypt;        /* connections between ranks (tcp, hier) use TLS 1.3; at all members */
    bool no_thread;      /* no helper thread: calls advance inside calls; may differ by member */

    /* The buffers of all calls are in this device's memory; NULL: in the host's. At all members or
     * at none. It must outlive the group. After a call has failed the device may still write to its
     * buffers, until the group is freed. */
    const struct ct_accel *device;
};

/* Make a group: collective, every member calls it. The backend is the first of the table that suits
 * and that every member could open. 0, or an error with its sentence: CT_EUNSUPPORTED when the
 * requested backend is not possible here, CT_ETIMEOUT naming a rank that did not arrive. */
int ct_group_new(struct ct_job *job, const struct ct_group_options *options,
                 struct ct_group **ret_group, struct ct_error *err);

/* Free a group. Open requests are dropped; members that wait for this one get CT_ECLOSED. Not
 * collective. NULL is allowed. */
void ct_group_free(struct ct_group *group);

int ct_group_rank(const struct ct_group *group); /* within the group, 0 .. size - 1 */
int ct_group_size(const struct ct_group *group);
const char *ct_group_backend(const struct ct_group *group);

/* Return the time that this rank has waited in ct_wait and blocking calls of this group in total:
 * of ranks that work in step, the slowest one waits least. By the group's thread. */
uint64_t ct_group_waited_ns(const struct ct_group *group);

/* Split `parent` (a communicator split): the members with the same `colour` (0 or more) make a
 * group, ranked by `key`, equal keys by their rank in `parent`. A member with CT_NO_COLOUR belongs
 * to none, and gets NULL. Collective over `parent`, in order with its other collectives. Sub-groups
 * can be split again, work at the same time as the parent, and must each be freed. Backend (by its
 * name, or auto; auto for hier), encryption and timeout are the parent's. 0, or an error with its
 * sentence. */
enum { CT_NO_COLOUR = -1 };
int ct_group_split(struct ct_group *parent, int colour, int key, struct ct_group **ret_group,
                   struct ct_error *err);

/* Revoke a group: every operation ends with CT_EREVOKED (or CT_ECLOSED across machines), here at
 * once and at the other members as soon as they notice. Any thread, any number of times. */
void ct_group_revoke(struct ct_group *group);

/* Register with the group memory that its calls will use: `memory` is from ct_mem_alloc_on, as many
 * bytes at each member, and calls of the members use the same offsets in it. Collective, in order
 * with the group's other collectives. It affects speed only: it has no effect where a member has
 * other memory, less, or NULL, nor on groups that find memory by themselves. At most four
 * allocations per group. 0, or the code of the group, which is broken then. */
int ct_group_share(struct ct_group *group, void *memory, struct ct_error *err);

/* Return why the group is broken: code 0 and an empty text while it is not. By its thread. */
const struct ct_error *ct_group_failure(const struct ct_group *group);

/* Pass on a call's failure: return `code`, the call's, and unless that is 0 fill `err` (may be
 * NULL) with its sentence. By the group's thread. */
int ct_group_explain(const struct ct_group *group, int code, struct ct_error *err);

/* ---- operations ------------------------------------------------------------------------------*/

/* What a reduction does with the members' elements.
 *
 *                 floats                       integers              BOOL (non-zero is true)
 *     SUM         + BF16, F16 in f32,          + wraps               or
 *     PROD        *   rounded once             * wraps               and
 *     AVG         the sum, divided once        the same, to zero     CT_EUSAGE
 *     MAX, MIN    NaN when one is NaN          yes                   or, and
 *     AND, OR     CT_EUSAGE                    of the bits           and, or
 *     PREMUL_SUM  + of each member's data      CT_EUSAGE             CT_EUSAGE
 *                   times its options->scale */
enum ct_reduce {
    CT_REDUCE_SUM,
    CT_REDUCE_AVG,
    CT_REDUCE_MAX,
    CT_REDUCE_MIN,
    CT_REDUCE_PROD,
    CT_REDUCE_AND,
    CT_REDUCE_OR,
    CT_REDUCE_PREMUL_SUM,
    CT_REDUCE_COUNT
};

/* The order in which values are added or multiplied. In each mode all ranks get the same bits.
 *     FAST          the fastest order; may depend on the size and on the backend
 *     REPRODUCIBLE  rank order, ((x0 + x1) + x2) + ...: the same on each backend and at each size
 *     INVARIANT     a binary tree over the ranks, distance 1 first: x[i] += x[i + d] for
 *                   d = 1, 2, 4, ... and i a multiple of 2d, where rank i + d exists. With leaves
 *                   accumulated by the same tree, worlds of 1, 2, 4, 8, ... give equal bits. */
enum ct_reduce_mode { CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT };

/* Options of one call; NULL or all zero: the group's timeout, tag 0, FAST. Tags are compared
 * between the members; they do not reorder messages. */
struct ct_options {
    uint64_t timeout_ms; /* bounds ct_wait and blocking calls from their call */
    uint32_t tag;
    enum ct_reduce_mode mode;
    double scale; /* of PREMUL_SUM, which needs options: this member's factor, members may differ;
                   * rounded to f32 but for F64 */
    void *stream; /* of the group's device: the operation begins after the work queued on it; NULL:
                   * the buffers are ready */
};

/* The data of a call. `send` == NULL means in place: the input lies in `recv`. Buffers need the
 * alignment of their element, nothing more, and may be NULL when count is 0. */
struct ct_data {
    const void *send;
    void *recv;
    size_t count; /* elements, as defined at each operation */
    enum ct_dtype dtype;
};

static inline struct ct_data ct_inplace(void *buffer, size_t count, enum ct_dtype dtype)
{
    struct ct_data data = {NULL, buffer, count, dtype};
    return data;
}

static inline struct ct_data ct_from_to(const void *send, void *recv, size_t count,
                                        enum ct_dtype dtype)
{
    struct ct_data data = {send, recv, count, dtype};
    return data;
}

/* Where the members' parts lie in a buffer, in elements: counts[i] of them from offsets[i] on are
 * member i's. Both arrays have one entry per member and belong to the operation until it ends. */
struct ct_parts {
    const size_t *counts;
    const size_t *offsets;
};

/* One of several messages of an exchange. */
enum ct_direction { CT_TO, CT_FROM };
struct ct_transfer {
    enum ct_direction direction;
    int peer; /* may be this rank itself */
    struct ct_data data;
};

static inline struct ct_transfer ct_transfer_to(int peer, const void *send, size_t count,
                                                enum ct_dtype dtype)
{
    struct ct_transfer transfer = {CT_TO, peer, {send, NULL, count, dtype}};
    return transfer;
}

static inline struct ct_transfer ct_transfer_from(int peer, void *recv, size_t count,
                                                  enum ct_dtype dtype)
{
    struct ct_transfer transfer = {CT_FROM, peer, {NULL, recv, count, dtype}};
    return transfer;
}

/* Blocking calls: start and wait in one call. The contents of `send` and `recv`, in elements (with
 * a rank in brackets: at this rank only, the buffer of others is ignored):
 *
 *                        send           recv            in place: the input lies at
 *     all_reduce         count          count           recv
 *     reduce             count          count (root)    recv; the root's alone is written
 *     broadcast          count (root)   count           recv (root)
 *     all_gather         count          size * count    recv + rank * count
 *     all_gather_v       count          parts           recv + offsets[rank]
 *     reduce_scatter     size * count   count           recv holds size * count; the result lies at
 *                                                       recv + rank * count, others are undefined
 *     reduce_scatter_v   parts          count           recv holds parts; the result lies at
 *                                                       recv + offsets[rank], others are undefined
 *     gather             count          size * count    root: recv + rank * count; others: recv
 *                                       (root)
 *     scatter            size * count   count           root: recv holds size * count; its own part
 *                        (root)                         stays at recv + rank * count
 *     all_to_all         size * count   size * count    recv
 *     all_to_all_v       send_parts     recv_parts      not possible
 *     send               count          -               recv may hold the data when send is NULL
 *     recv               -              count
 *     exchange           a list of messages, each as send or recv
 *
 * _v calls: data.count is counts[rank] (ignored in all_to_all_v). For all_gather_v and
 * reduce_scatter_v every member gives the same counts, for all_to_all_v each pair does: the count
 * sent is the count received. Any difference is CT_EMISMATCH. Offsets may differ between members.
 *
 * send and recv match in order, for each pair and direction; a message of another size, type or tag
 * is a mismatch. All messages of an exchange start together, so no order of the members' lists
 * causes a deadlock; with each peer they match in the order of the list, with those of its
 * exchanges and with its plain sends and receives. A rank receives a message to itself in the same
 * exchange.
 *
 * A send, and a gather or reduce at another rank than the root, may return before the other side
 * has called. Every operation takes every type. Buffers of different arguments must not overlap. */
int ct_all_reduce(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                  const struct ct_options *options);
int ct_reduce(struct ct_group *group, struct ct_data data, enum ct_reduce reduce, int root,
              const struct ct_options *options);
int ct_broadcast(struct ct_group *group, struct ct_data data, int root,
                 const struct ct_options *options);
int ct_all_gather(struct ct_group *group, struct ct_data data, const struct ct_options *options);
int ct_all_gather_v(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                    const struct ct_options *options);
int ct_reduce_scatter(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                      const struct ct_options *options);
int ct_reduce_scatter_v(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                        enum ct_reduce reduce, const struct ct_options *options);
int ct_gather(struct ct_group *group, struct ct_data data, int root,
              const struct ct_options *options);
int ct_scatter(struct ct_group *group, struct ct_data data, int root,
               const struct ct_options *options);
int ct_all_to_all(struct ct_group *group, struct ct_data data, const struct ct_options *options);
int ct_all_to_all_v(struct ct_group *group, struct ct_data data, struct ct_parts send_parts,
                    struct ct_parts recv_parts, const struct ct_options *options);
int ct_send(struct ct_group *group, struct ct_data data, int to, const struct ct_options *options);
int ct_recv(struct ct_group *group, struct ct_data data, int from,
            const struct ct_options *options);
int ct_exchange(struct ct_group *group, const struct ct_transfer *transfers, int count,
                const struct ct_options *options);
int ct_barrier(struct ct_group *group, const struct ct_options *options);

/* Non-blocking calls: start, then ct_test or ct_wait until one reports completion, which frees the
 * request. The buffers belong to the operation meanwhile. Collectives run in the order of their
 * start; sends and receives run concurrently with them and with those of other peers, exchanges one
 * after the other. A list of transfers belongs to the operation, too. At most CT_REQUESTS_MAX are
 * open at a time in a group: one more is CT_ELIMIT. Nothing is allocated. */
enum { CT_REQUESTS_MAX = 64 };

int ct_all_reduce_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                        const struct ct_options *options, struct ct_request **ret_request);
int ct_reduce_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce, int root,
                    const struct ct_options *options, struct ct_request **ret_request);
int ct_broadcast_start(struct ct_group *group, struct ct_data data, int root,
                       const struct ct_options *options, struct ct_request **ret_request);
int ct_all_gather_start(struct ct_group *group, struct ct_data data,
                        const struct ct_options *options, struct ct_request **ret_request);
int ct_all_gather_v_start(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                          const struct ct_options *options, struct ct_request **ret_request);
int ct_reduce_scatter_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                            const struct ct_options *options, struct ct_request **ret_request);
int ct_reduce_scatter_v_start(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                              enum ct_reduce reduce, const struct ct_options *options,
                              struct ct_request **ret_request);
int ct_gather_start(struct ct_group *group, struct ct_data data, int root,
                    const struct ct_options *options, struct ct_request **ret_request);
int ct_scatter_start(struct ct_group *group, struct ct_data data, int root,
                     const struct ct_options *options, struct ct_request **ret_request);
int ct_all_to_all_start(struct ct_group *group, struct ct_data data,
                        const struct ct_options *options, struct ct_request **ret_request);
int ct_all_to_all_v_start(struct ct_group *group, struct ct_data data, struct ct_parts send_parts,
                          struct ct_parts recv_parts, const struct ct_options *options,
                          struct ct_request **ret_request);
int ct_send_start(struct ct_group *group, struct ct_data data, int to,
                  const struct ct_options *options, struct ct_request **ret_request);
int ct_recv_start(struct ct_group *group, struct ct_data data, int from,
                  const struct ct_options *options, struct ct_request **ret_request);
int ct_exchange_start(struct ct_group *group, const struct ct_transfer *transfers, int count,
                      const struct ct_options *options, struct ct_request **ret_request);
int ct_barrier_start(struct ct_group *group, const struct ct_options *options,
                     struct ct_request **ret_request);

/* Advance the operation without blocking. 1: completed; 0: not yet; negative: ended with an error.
 * The timeout counts from the start here. */
int ct_test(struct ct_request *request);

/* Block until the operation ends. 0 or a negative code. */
int ct_wait(struct ct_request *request);

/* Block until the operation ends, but for `timeout_us` at most; returns as ct_test. */
int ct_wait_for(struct ct_request *request, uint64_t timeout_us);

/* Return the library's version, "0.1.0". What a program may call of libctrun.so.1, and how the
 * structures above lie in memory, stays as it is in all versions of that number. */
const char *ct_version(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
