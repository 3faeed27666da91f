/* See ps.h.
 *
 *   a step      forward, backward -> numbers -> pull: loss, norm, parameters
 *                           `- push gradients, as they become complete
 *   staleness   above 0 a gradient is the mean of this worker's own samples, and is taken with 1/W
 *               of the learning rate: W of them move the parameters as far as one of all samples */
#include "ps.h"

#include "base/assert.h"
#include "planner/plan_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What worker 0 leaves with the servers, for those who go on. */
struct step_note {
    uint64_t step, position, skipped;
    uint64_t valid; /* labels of the last step; 0: there was none */
    struct ct_plateau plateau;
    struct ct_best best;
    struct ct_scaler scaler;
    struct ct_step_report last;
};
_Static_assert(sizeof(struct step_note) <= CT_PS_NOTE_MAX, "fits the note");

static bool is_stale(const struct ct_worker *worker)
{
    return worker->cfg->parallel.staleness > 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

int ct_ps_assign_role(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_assignment *job = ct_job_assignment(worker->job);

    if (!ct_ps_used(worker))
        return 0;
    int workers = ct_planner_served(worker->cfg, job->world, err);
    if (workers < 0)
        return workers;
    if (workers > CT_REDUCE_SOURCES_MAX)
        return ct_error_set(err, CT_ECONFIG, "parallel.strategy ps has at most %d workers, not %d",
                            CT_REDUCE_SOURCES_MAX, workers);
    worker->ps.place = *job;
    worker->ps.place.world = workers;
    worker->ps.serves = job->rank >= workers;
    worker->me = &worker->ps.place;
    return 0;
}

int ct_ps_members(struct ct_worker *worker, struct ct_group_options *options, struct ct_error *err)
{
    int workers = worker->me->world;
    bool serves = ct_ps_serves(worker);

    options->name = serves ? "servers" : "workers";
    options->nranks = serves ? ct_planner_servers(worker->cfg) : workers;
    free(worker->ps.members);
    worker->ps.members = calloc((size_t)options->nranks, sizeof *worker->ps.members);
    if (worker->ps.members == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a group");
    for (int i = 0; i < options->nranks; i++)
        worker->ps.members[i] = i + (serves ? workers : 0);
    options->ranks = worker->ps.members;
    return 0;
}

void ct_ps_disconnect(struct ct_worker *worker)
{
    ct_ps_client_free(worker->ps.client);
    worker->ps.client = NULL;
}

void ct_ps_free(struct ct_worker *worker)
{
    ct_ps_disconnect(worker);
    ct_ps_server_free(worker->ps.server);
    worker->ps.server = NULL;
    free(worker->ps.members);
    worker->ps.members = NULL;
}

/* While this rank waits: a sign of life, and whether the round is over. */
static int look(void *context, struct ct_error *err)
{
    struct ct_worker *worker = context;
    uint64_t deadline_ms = 1;

    ct_job_at(worker->job, CT_AT_STEP, worker->step);
    if (ct_job_revoked(worker->job))
        return ct_error_set(err, CT_EREVOKED, "the round is over");
    if (ct_job_stop_requested(worker->job, &deadline_ms) && deadline_ms == 0)
        return ct_error_set(err, CT_ECLOSED, "the job goes on without this process");
    return 0;
}

/* ---- a server -------------------------------------------------------------------------------- */

int ct_ps_open(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_ps_server_options options = {
        .plan = &worker->plan,
        .device = worker->device,
        .index = worker->me->rank - worker->me->world,
        .count = ct_planner_servers(worker->cfg),
    };

    if (worker->ps.server != NULL &&
        ct_ps_server_is(worker->ps.server, options.index, options.count))
        return 0;
    ct_ps_server_free(worker->ps.server);
    worker->ps.server = NULL;
    return ct_ps_server_new(&worker->ps.server, &options, err);
}

static void on_begin(void *context)
{
    struct ct_worker *worker = context;

    (void)ct_job_healed(worker->job);
}

static void on_step(void *context, uint64_t step)
{
    struct ct_worker *worker = context;

    worker->step = step;
}

/* All have left: why? */
static int conclude(struct ct_worker *worker, enum ct_ps_end end, bool *ret_stopped,
                    struct ct_error *err)
{
    if (end == CT_PS_LEAVING)
        return ct_error_set(err, CT_EREVOKED, "the round ends after step %" PRIu64, worker->step);
    *ret_stopped = end == CT_PS_STOPPED;
    if (*ret_stopped && !ct_stop_wait(worker->stop, worker->job, CT_STOP_GRACE_MS))
        worker->stop->signal = SIGTERM; /* what a worker was told holds here as well */
    return 0;
}

int ct_ps_serve(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err)
{
    const struct ct_ps_round round = {
        .job = worker->job,
        .workers = worker->me->world,
        .staleness = (uint64_t)worker->cfg->parallel.staleness,
        .order = worker->cfg->parallel.reduce == CT_CONFIG_REDUCE_INVARIANT ? CT_ORDER_TREE
                                                                            : CT_ORDER_RANK,
        .hash = ct_config_hash(worker->cfg),
        .servers = worker->group,
        .encrypt = worker->cfg->parallel.encrypt,
        .ends_on_loss = worker->survives,
        .check = look,
        .on_begin = on_begin,
        .on_step = on_step,
        .context = worker,
    };
    enum ct_ps_end end = CT_PS_COMPLETE;

    *ret_stopped = false;
    int code = ct_ps_server_run(worker->ps.server, &round, &end, err);
    const struct ct_ps_holding holding = ct_ps_server_holding(worker->ps.server);
    worker->lineage = holding.lineage;
    worker->step = holding.step;
    worker->digest = holding.step; /* of a part: parts of one step belong together */
    return code == 0 ? conclude(worker, end, ret_stopped, err) : code;
}

/* ---- finding the state ----------------------------------------------------------------------- */

static int meet(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_ps_client_options options = {
        .job = worker->job,
        .worker = worker->me->rank,
        .workers = worker->me->world,
        .servers = ct_planner_servers(worker->cfg),
        .hash = ct_config_hash(worker->cfg),
        .flat_bytes = worker->plan.flat_bytes,
        .timeout_ms = (uint64_t)worker->cfg->parallel.timeout_ms,
        .check = look,
        .context = worker,
    };

    if (!worker->device->table->on_host)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "parallel.strategy ps pushes from the host's memory, and device '%s' "
                            "computes elsewhere: use ddp, or train.device: cpu",
                            worker->device->table->name);
    return ct_ps_client_new(&worker->ps.client, &options, err);
}

/* The server whose state is the oldest, if all have one of the job's lineage, and, without
 * staleness, of one step; or -1. */
static int oldest(const struct ct_worker *worker)
{
    int found = 0, servers = ct_planner_servers(worker->cfg);
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < servers; i++) {
        struct ct_bytes note;
        struct ct_ps_holding holding = ct_ps_client_holding(worker->ps.client, i, &note);
        bool odd = i > 0 && holding.step != least && !is_stale(worker);
        if (holding.lineage == 0 || holding.lineage != worker->me->lineage || odd ||
            note.size != sizeof(struct step_note))
            return -1;
        if (holding.step < least)
            found = i;
        least = CT_MIN(least, holding.step);
    }
    return found;
}

static void apply_note(struct ct_worker *worker, int server)
{
    struct ct_bytes note;
    const struct ct_ps_holding holding = ct_ps_client_holding(worker->ps.client, server, &note);
    struct step_note step_note;

    memcpy(&step_note, note.data, sizeof step_note);
    worker->step = step_note.step;
    worker->position = step_note.position;
    worker->skipped = step_note.skipped;
    worker->plateau = step_note.plateau;
    worker->best = step_note.best;
    worker->scaler = step_note.scaler;
    worker->last = step_note.last;
    worker->has_last = worker->repeat_post_step = step_note.valid > 0;
    if (step_note.valid > 0 && !is_stale(worker)) {
        worker->last.loss = holding.loss / (double)step_note.valid;
        worker->last.grad_norm = sqrt(holding.sumsq);
        worker->skipped += !isfinite(holding.loss) || !isfinite(holding.sumsq);
    }
    worker->post_step_done = worker->repeat_post_step ? worker->step - 1 : worker->step;
}

int ct_ps_find(struct ct_worker *worker, bool *ret_found, struct ct_error *err)
{
    int code = meet(worker, err);
    int server = code == 0 ? oldest(worker) : -1;

    *ret_found = server >= 0;
    if (*ret_found)
        apply_note(worker, server);
    return code;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static char *range_at(const struct ct_worker *worker, int range)
{
    return (char *)ct_exec_state(worker->exec) + ct_plan_range_offset(&worker->plan, range);
}

static struct step_note step_note_of(const struct ct_worker *worker)
{
    struct step_note step_note;

    memset(&step_note, 0, sizeof step_note);
    step_note.step = worker->step;
    step_note.position = worker->position;
    step_note.skipped = worker->skipped;
    step_note.plateau = worker->plateau;
    step_note.best = worker->best;
    step_note.scaler = worker->scaler;
    return step_note;
}

static struct ct_bytes note_of(const struct step_note *step_note)
{
    return (struct ct_bytes){(const unsigned char *)step_note, sizeof *step_note};
}

static int pull(struct ct_worker *worker, uint64_t step, struct ct_ps_pulled *ret,
                struct ct_error *err)
{
    return ct_ps_client_pull(worker->ps.client, step, range_at(worker, 0), ret, err);
}

static int give(struct ct_worker *worker, bool found, struct ct_error *err)
{
    const struct step_note step_note = step_note_of(worker);
    uint64_t taken = worker->step - worker->skipped;
    const struct ct_ps_begin begin = {
        .keep = found, .step = worker->step, .updates = taken * (uint64_t)worker->me->world};
    int code = 0;

    for (int range = 0; range <= worker->plan.moment_count && code == 0 && !found; range++)
        code = ct_ps_client_store(worker->ps.client, range, range_at(worker, range), err);
    return code == 0 ? ct_ps_client_begin(worker->ps.client, &begin, note_of(&step_note), err)
                     : code;
}

int ct_ps_begin(struct ct_worker *worker, bool found, struct ct_error *err)
{
    struct ct_ps_pulled pulled;
    int code = worker->me->rank == 0 ? give(worker, found, err) : 0;

    return code == 0 ? pull(worker, worker->step, &pulled, err) : code;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Labels of this worker's samples that count. */
static int64_t own_labels(const struct ct_worker *worker, const int32_t *labels)
{
    size_t all = ct_share_rows(&worker->share) * worker->train.labels_per_row;
    int64_t count = 0;

    for (size_t i = 0; i < all; i++)
        count += labels[i] >= 0;
    return CT_MAX(count, 1);
}

/* The numbers that go with a gradient. */
static struct ct_ps_commit commit_of(const struct ct_worker *worker,
                                     const struct ct_exec_step *args,
                                     const struct ct_exec_result *own)
{
    double share = is_stale(worker) ? (double)worker->me->world : 1;

    return (struct ct_ps_commit){.step = worker->step,
                                 .update = args->update - args->skipped,
                                 .lr = args->lr / share,
                                 .loss = own->loss_sum,
                                 .correct = (double)own->correct,
                                 .sumsq = own->sumsq,
                                 .leave_vote = args->wish};
}

/* This worker's own result becomes that of all, where they go in step. */
static void conclude_step(const struct ct_worker *worker, const struct ct_exec_step *args,
                          const struct ct_ps_pulled *pulled, struct ct_exec_result *result)
{
    if (!is_stale(worker)) {
        result->loss_sum = pulled->loss;
        result->sumsq = pulled->sumsq;
        result->loss = pulled->loss * (1 / (double)args->valid_count);
        result->grad_norm = sqrt(pulled->sumsq);
        result->correct = (int64_t)pulled->correct;
    }
    result->skipped = !isfinite(result->loss_sum) || !isfinite(result->sumsq);
    result->wishes = pulled->leave_at == worker->step + 1;
}

int ct_ps_push(void *context, size_t at, const void *data, size_t bytes, struct ct_error *err)
{
    struct ct_worker *worker = context;

    return ct_ps_client_push(worker->ps.client, worker->step, at, data, bytes, err);
}

int ct_ps_step(struct ct_worker *worker, const struct ct_exec_step *args,
               const struct ct_sampler_batch *batch, struct ct_exec_result *ret_result,
               struct ct_error *err)
{
    struct ct_exec_step own = *args;
    struct ct_ps_pulled pulled = {.leave_at = 0};
    struct step_note step_note = step_note_of(worker);

    if (is_stale(worker))
        own.valid_count = own_labels(worker, args->labels);
    int code = ct_exec_step(worker->exec, &own, ret_result, err);
    if (code != 0)
        return code;
    const struct ct_ps_commit commit = commit_of(worker, args, ret_result);
    step_note.step++;
    step_note.position = batch->next;
    step_note.valid = (uint64_t)args->valid_count;
    step_note.last = (struct ct_step_report){.samples = batch->valid,
                                             .loss = ret_result->loss,
                                             .grad_norm = ret_result->grad_norm,
                                             .lr = args->lr,
                                             .logged = true};
    code = ct_ps_client_commit(worker->ps.client, &commit, note_of(&step_note), err);
    if (code == 0)
        code = pull(worker, worker->step + 1, &pulled, err);
    if (code == 0)
        conclude_step(worker, args, &pulled, ret_result);
    return code;
}

/* ---- between steps --------------------------------------------------------------------------- */

static int barrier(struct ct_worker *worker, struct ct_error *err)
{
    return worker->group == NULL
               ? 0
               : ct_group_explain(worker->group, ct_barrier(worker->group, NULL), err);
}

/* The moments, which lie with the servers, to where this worker has room for them. */
static int fetch(struct ct_worker *worker, struct ct_error *err)
{
    int code = 0;

    for (int range = 1; range <= worker->plan.moment_count && code == 0; range++)
        code = ct_ps_client_fetch(worker->ps.client, range, range_at(worker, range), err);
    return code;
}

int ct_ps_complete(struct ct_worker *worker, bool saves, struct ct_error *err)
{
    bool fetches = saves && worker->me->rank == 0 && worker->run_dir.checkpoints[0] != '\0';
    struct ct_ps_pulled pulled;
    int code = 0;

    /* In step, nothing changes before this worker's next gradient. */
    if (is_stale(worker))
        code = barrier(worker, err);
    if (code == 0 && is_stale(worker))
        code = pull(worker, worker->step, &pulled, err);
    if (code == 0 && fetches)
        code = fetch(worker, err);
    return code == 0 && is_stale(worker) ? barrier(worker, err) : code;
}

int ct_ps_leave(struct ct_worker *worker, enum ct_ps_end reason, struct ct_error *err)
{
    return ct_ps_client_bye(worker->ps.client, reason, err);
}
