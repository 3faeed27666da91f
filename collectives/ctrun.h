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
 * its thread computes, on a thread that the group makes for the first operation that stays open; it
 * sleeps while none is. Blocking forms have no use for it. One thread may have operations under way
 * in several groups: it tests them in turn, or waits for them in an order that is the same at all
 * ranks.
 *
 * Nothing hangs: each wait ends with 0 or one of
 *     CT_ETIMEOUT    the call's timeout passed: a member is slow, stuck or never came
 *     CT_EREVOKED    the round is over (a member was lost, or ct_group_revoke)
 *     CT_ECLOSED     a member closed the group or its connection broke
 *     CT_EMISMATCH   members called different operations, sizes, types, roots or tags
 * After any of these the group is broken: its buffers hold anything, each later call returns the
 * same code at once, and ct_group_failure has the sentence. CT_EUSAGE and CT_ELIMIT say that the
 * call itself was wrong; nothing was started and the group lives on. */
#ifndef CTRUN_H
#define CTRUN_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    int base_rank; /* first rank of a node that holds it; -1: nobody, start from a checkpoint */
    uint64_t published_generation; /* 0: nothing was published; else, when nobody holds a state, */
    uint64_t published_step;       /* start from exactly this one */
    int rank, world;
    int local_rank, local_world;
    int node_rank, nnodes;
    int restart_count;
};

/* Where the training stands, for the operator's progress line. NaN or 0 where not known. */
struct ct_progress {
    uint64_t epoch, epochs; /* from 0; how many */
    uint64_t step, steps;
    double loss;
    double samples_per_s;
    double learning_rate;
    double eta_s;
};

/* An evaluation on held-out data: progress while it is made, a line of the log when it is
 * complete. */
struct ct_job_evaluation {
    uint64_t step; /* after which it is made */
    double done;   /* 0 to 1; below 1 the rest does not count yet */
    double loss;
    double accuracy;   /* 0 to 1; negative: there is none */
    double perplexity; /* negative: there is none */
    double best;       /* the lowest loss so far, and its step */
    uint64_t best_step;
};

/* The state that this process holds: the next round starts from the most advanced survivor's. */
struct ct_ready {
    uint64_t lineage; /* the last round in which all ranks had the same state; 0: it holds none */
    uint64_t step;    /* completed */
    uint64_t digest;  /* of the state; equal states have equal digests */
};

/* Join the job: from the descriptors in CTRUN_CONTROL_FD and CTRUN_PAGE_FD that the agent left, or,
 * without them, a job of world size 1 of its own. Waits for the assignment. 0, or an error with its
 * sentence. */
int ct_job_open(struct ct_job **ret_job, struct ct_error *err);

/* Leave. Groups made from the job must be freed before. NULL is fine. */
void ct_job_close(struct ct_job *job);

/* Valid until ct_job_close; ct_job_regroup changes what it says. */
const struct ct_assignment *ct_job_assignment(const struct ct_job *job);

/* The MPI library that rank and world are from, as "Open MPI v4.1.4 (libmpi.so.40)": mpirun has
 * started this process, and no agent. Such a job has one round, and ends when a rank does. NULL in
 * all others. */
const char *ct_job_mpi(const struct ct_job *job);

/* Tell the agent; each returns 0 or the code of a broken link, and does nothing in a job of its
 * own. `summary` is the closing text of rank 0, printed by the agent. `failure` is the sentence of
 * the error that this process is about to exit with. */
int ct_job_progress(struct ct_job *job, const struct ct_progress *progress);
int ct_job_evaluation(struct ct_job *job, const struct ct_job_evaluation *evaluation);
int ct_job_summary(struct ct_job *job, const char *text);
int ct_job_failure(struct ct_job *job, const struct ct_error *failure);

/* What this process is at from now on, `step` steps completed: the agent tells a rank that hangs
 * from one that is busy by it (ctrun's launch.hang_timeout). Calling it again in the same section,
 * as with each batch of an evaluation, is a sign of life. CT_AT_CHECKPOINT, that is reading or
 * writing one, may be silent for half an hour, and so may all before the first step. By one thread.
 * A program that never calls this is judged by its collectives alone, with the patience of a start.
 */
enum ct_section {
    CT_AT_START,
    CT_AT_STEP,
    CT_AT_EVALUATE,
    CT_AT_CHECKPOINT,
    CT_AT_PUBLISH, /* waiting until one is published */
};
void ct_job_at(struct ct_job *job, enum ct_section section, uint64_t step);

/* Ranks have found that `rank` holds the others up: it was the last one at `share` per cent of the
 * steps, and costs `cost` per cent of their time. The agent tells its user. */
void ct_job_straggler(struct ct_job *job, int rank, int share, int cost);

/* Did the agent ask for a clean stop? Then *ret_deadline_ms (may be NULL) is the time it gives,
 * from the moment it asked; 0: nothing is to be saved, the job goes on without this process. Never
 * blocks. */
bool ct_job_stop_requested(struct ct_job *job, uint64_t *ret_deadline_ms);

/* Is the round over? Every operation of its groups returns CT_EREVOKED then. One atomic load. */
bool ct_job_revoked(const struct ct_job *job);

/* ---- living on -------------------------------------------------------------------------------
 *
 *       ct_job_open, state made or loaded
 *       ct_job_survive                     from here on the agent does not stop this process
 *           |
 *     +---> ct_group_new                   all groups
 *     |     the state, from base_rank      where it is another's; -1: from a checkpoint
 *     |     ct_job_healed                  this process holds the state of the round
 *     |     steps                          until CT_EREVOKED or CT_ECLOSED, or a boundary at which
 *     |     |                              all ranks leave (ct_job_boundary_requested)
 *     |     ct_group_free                  all groups
 *     +---- ct_job_regroup                 the next round: rank, world, base may be others
 *
 * A program that does none of this is stopped and started anew with all others. */

/* Tell the agent that this process regroups when its round ends. Nothing in a job of its own. May
 * be said as early as possible, before data is loaded: until ct_job_healed this process holds
 * nothing, so nobody waits for it when the round ends early. */
int ct_job_survive(struct ct_job *job);

/* Tell the agent that this process holds the state that its round starts from, and acts from here
 * on. Once a round. */
int ct_job_healed(struct ct_job *job);

/* Does the next round wait for a step boundary? Then leave the groups after this step and regroup;
 * ranks learn it at different times and must agree on the step. One relaxed load. */
bool ct_job_boundary_requested(const struct ct_job *job);

/* All groups are freed, `ready` is what this process holds: wait for the next round, for as long as
 * the agent needs to make it. 0: ct_job_assignment is the new one (the same pointer). CT_ECLOSED: a
 * stop was requested, or the agent is gone. CT_EUNSUPPORTED: there is no agent. */
int ct_job_regroup(struct ct_job *job, const struct ct_ready *ready, struct ct_error *err);

/* Did a call fail with `code` because the round is over, rather than because this process failed?
 * Then regroup. Never without an agent. */
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
 * When ranks are lost or come, ct_job_begin_step makes the next round: the most advanced survivor
 * gives its state to all, at most the step in flight is repeated, nobody else is started again. A
 * program that registers nothing is stopped and started anew with all others. */

struct ct_job_step {
    uint64_t number;        /* completed before this one; set it before the first, to resume */
    struct ct_group *group; /* all ranks; the job's own */
    bool regrouped; /* a new round (or the first): rank and world may be others, and groups of
                     * one's own are to be freed and made anew */
};

/* `data` is part of the state that all ranks share. At the first step all get rank 0's. */
int ct_job_register_state(struct ct_job *job, const char *name, void *data, size_t bytes,
                          struct ct_error *err);

/* The step before is completed when no call on `step->group` failed in it. Collective: costs one
 * small reduction. 0; CT_ECLOSED when the job is to stop; CT_EMISMATCH when ranks are at different
 * steps; CT_EDIVERGED; CT_EUNAVAILABLE when nobody holds the state any more. */
int ct_job_begin_step(struct ct_job *job, struct ct_job_step *step, struct ct_error *err);

/* ---- publishing ------------------------------------------------------------------------------
 *
 * What readers outside the job may take (a checkpoint, the final result) counts once the rendezvous
 * has it on record. A process that was stopped or cut off, and still believes in a round that is
 * over, is told no, so it cannot put an old state in the place of a newer one:
 *
 *     ct_job_publish(job, step, digest); // the files lie there, under a name of their own
 *     train();                           // goes on meanwhile
 *     if (ct_job_published(job, 0, &err) == 0)
 *         point_readers_to(step);
 *
 * Only a step that all ranks have completed may be published: when the first collective of the next
 * step, or a barrier, has returned. When a later round starts from this step or a newer one, what
 * was not answered before is published again from there. */

/* Ask; returns at once. The last question counts, also when the round has changed since. 0, or the
 * code of a broken link. */
int ct_job_publish(struct ct_job *job, uint64_t step, uint64_t digest);

/* The answer to the last question. 0: it is on record. CT_ETIMEOUT: none within `timeout_ms` (0:
 * look). CT_EFENCED, with the sentence: no, its round is over. CT_ECLOSED: the agent is gone.
 * Without an agent everything may be published. */
int ct_job_published(struct ct_job *job, int timeout_ms, struct ct_error *err);

/* ---- memory ----------------------------------------------------------------------------------
 *
 * Symmetric memory: what lies in it is read and written by the other ranks of the node where it is,
 * so that nothing is copied into stages. Any part of any such allocation may be given to any call,
 * at each member another one. A call copies nothing where these lie in it (a member whose buffer is
 * ordinary makes the call take the ordinary path, with the same result):
 *
 *     all_reduce       send and recv of every member
 *     reduce_scatter   send of every member (in place: recv)
 *     all_gather       send of every member (in place: recv)
 *     broadcast        send of the root (in place: recv)
 *
 * Not collective: each process allocates what it wants when it wants it; a group gets to know an
 * allocation at its first use there, by one more round. It belongs to the job, and outlives groups
 * and rounds. Between nodes, and where there are no others, it is memory like any other. */

/* `bytes` (> 0) of zeroed memory, aligned to pages, without a name: none is left when the process
 * dies. Any thread. 0, or a negative code with its sentence. */
int ct_mem_alloc(struct ct_job *job, size_t bytes, void **ret_memory, struct ct_error *err);

/* Zeroed memory of a device, of the kind that the device's collectives work in best (windows of
 * NCCL's, where CTRUN_NCCL_WINDOWS=1 asks for them). Once a group of this job on the device has
 * formed. Any thread. CT_EUNSUPPORTED with the reason where there is no such kind: the device's own
 * allocations do as well, only slower. */
int ct_mem_alloc_on(struct ct_job *job, const struct ct_accel *device, size_t bytes,
                    void **ret_memory, struct ct_error *err);

/* Give it back, no call on it being under way. Any thread. NULL is fine. ct_job_close gives back
 * what is left. What a group was told of (ct_group_share) goes when that group is freed. */
void ct_mem_free(struct ct_job *job, void *memory);

/* ---- groups ----------------------------------------------------------------------------------*/

/* All zero means: every rank of the job, best backend, ten minutes. */
struct ct_group_options {
    const char *name;    /* the same at each member, and of one living group only; NULL: "world" */
    const int *ranks;    /* the members' ranks in the job, ascending; NULL: all */
    int nranks;          /* how many lie in `ranks` */
    const char *backend; /* "auto" (or NULL), "self", "thread", "shm", "hier", "ucx", "tcp"; with a
                          * device "nccl", "staged" */
    uint64_t timeout_ms; /* of the creation and of each call that names none; 0: 600 000 */
    bool encrypt;        /* connections between ranks (tcp, hier) use TLS 1.3; at all members */
    bool no_thread;      /* handle forms advance inside calls alone; each member as it likes */

    /* The buffers of all calls lie in this device's memory; NULL: in the host's. At all members or
     * at none. It outlives the group. After a call has failed the device may still write to its
     * buffers, until the group is freed. */
    const struct ct_accel *device;
};

/* Make a group: collective, every member calls it. The backend is the first of the table that suits
 * and that every member could open. 0, or an error with its sentence: CT_EUNSUPPORTED when the
 * backend asked for by name is not possible here, CT_ETIMEOUT naming a rank that did not come. */
int ct_group_new(struct ct_job *job, const struct ct_group_options *options,
                 struct ct_group **ret_group, struct ct_error *err);

/* Free it. Requests still open are dropped; members that wait for this one get CT_ECLOSED. Not
 * collective. NULL is fine. */
void ct_group_free(struct ct_group *group);

int ct_group_rank(const struct ct_group *group); /* within the group, 0 .. size - 1 */
int ct_group_size(const struct ct_group *group);
const char *ct_group_backend(const struct ct_group *group);

/* How long this rank has waited in ct_wait and the blocking forms of this group, altogether: of
 * ranks that work in step, the slowest one waits least. By the group's thread. */
uint64_t ct_group_waited_ns(const struct ct_group *group);

/* Split `parent`: the members that give the same `colour` (0 or more) make a group, ranked by
 * `key`, equal keys by their rank in `parent`. With CT_NO_COLOUR a member belongs to none, and gets
 * NULL. Collective over `parent`, among its other collectives; parts of parts are possible, and all
 * of them live and work at the same time as the parent, each to be freed. Backend (by its name, or
 * auto; auto for hier), encryption and timeout are the parent's. 0, or an error with its sentence.
 */
enum { CT_NO_COLOUR = -1 };
int ct_group_split(struct ct_group *parent, int colour, int key, struct ct_group **ret_group,
                   struct ct_error *err);

/* End every operation of this group, here at once and at the other members as soon as they can
 * notice, with CT_EREVOKED (or CT_ECLOSED across machines). Any thread, any number of times. */
void ct_group_revoke(struct ct_group *group);

/* Tell the group of memory that its calls will work in: `memory` is what ct_mem_alloc_on gave, at
 * each member as many bytes of it, and calls of the members use the same places in it. Collective,
 * among the group's other collectives. Only speed depends on it: where a member has something else,
 * or less, or NULL, nothing comes of it, nor on groups that find memory by themselves. Four
 * allocations a group. 0, or the code of the group, which is broken then. */
int ct_group_share(struct ct_group *group, void *memory, struct ct_error *err);

/* Why the group is broken: code 0 and an empty text while it is not. By the group's thread. */
const struct ct_error *ct_group_failure(const struct ct_group *group);

/* For a caller that passes a call's failure on: returns `code`, the call's, and unless that is 0
 * fills `err` (may be NULL) with its sentence. By the group's thread. */
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

/* In which order values are added or multiplied. In each mode all ranks get the same bits.
 *     FAST          what is fastest here; may depend on the size and on the backend
 *     REPRODUCIBLE  rank order, ((x0 + x1) + x2) + ...: the same on each backend and at each size
 *     INVARIANT     a binary tree over the ranks, distance 1 first: x[i] += x[i + d] for
 *                   d = 1, 2, 4, ... and i a multiple of 2d, where rank i + d exists. With leaves
 *                   accumulated by the same tree, worlds of 1, 2, 4, 8, ... give equal bits. */
enum ct_reduce_mode { CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT };

/* Options of one call; NULL or all zero: the group's timeout, tag 0, FAST. A tag is compared
 * between the members, it does not reorder messages. */
struct ct_options {
    uint64_t timeout_ms; /* bounds ct_wait and the blocking forms from their call */
    uint32_t tag;
    enum ct_reduce_mode mode;
    double scale; /* of PREMUL_SUM, which needs options: this member's factor, members may differ;
                   * rounded to f32 but for F64 */
    void *stream; /* of the group's device: the operation begins behind what it has been given;
                   * NULL: the buffers are ready */
};

/* The data of a call. `send` == NULL means in place: the input lies in `recv`. Buffers need the
 * alignment of their element, nothing more, and may be NULL when count is 0. */
struct ct_data {
    const void *send;
    void *recv;
    size_t count; /* elements, as said at each operation */
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
 * member i's. Both arrays have an entry a member and belong to the operation until it is over. */
struct ct_parts {
    const size_t *counts;
    const size_t *offsets;
};

/* One of several messages that go together. */
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

/* Blocking forms: start and wait in one call. What `send` and `recv` hold, in elements (a rank in
 * brackets: at this rank alone, the buffer of others is not looked at):
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
 * v forms: data.count is counts[rank] (not looked at in all_to_all_v). Of all_gather_v and
 * reduce_scatter_v every member gives the same counts, of all_to_all_v each pair: what one sends is
 * what the other receives. Whatever differs is CT_EMISMATCH. Offsets are each member's own affair.
 *
 * send and recv match in order, for each pair and direction; a message of another size, type or tag
 * is a mismatch. All messages of an exchange go at once, so no order in which members list theirs
 * makes a deadlock; with each peer they match in the order of the list, with those of its exchanges
 * and with its plain sends and receives. What a rank sends to itself it receives from itself in the
 * same exchange.
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

/* Handle forms: start, then ct_test or ct_wait exactly until one says that it is over; this gives
 * the request back. The buffers belong to the operation meanwhile. Collectives run in the order of
 * their start; sends and receives run beside them and beside those of other peers, exchanges one
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

/* Advance what can advance without blocking. 1: over, well; 0: not yet; negative: over, with an
 * error. The timeout counts from the start here. */
int ct_test(struct ct_request *request);

/* Block until it is over. 0 or a negative code. */
int ct_wait(struct ct_request *request);

#ifdef __cplusplus
}
#endif

#endif
