/* See checkpoint_publish.h. */
#include "checkpoint_publish.h"

#include "agree.h"
#include "base/str.h"
#include "parts.h"
#include "train/checkpoint/checkpoint_parts.h"
#include "worker.h"

#include <inttypes.h>
#include <string.h>

/* SLICE_MS: how often a wait looks for a stop. STOP_MS: how long a stop waits for the answer.
 * FINISH_MS: longer than an agent goes on without a daemon. */
enum { SLICE_MS = 20, STOP_MS = 2000, FINISH_MS = 3600 * 1000 };

static struct ct_ckpt_save describe(const struct ct_worker *worker,
                                    const struct ct_publication *publication)
{
    const struct ct_config *cfg = worker->cfg;
    struct ct_ckpt_save save = {
        .dir = worker->run_dir.checkpoints,
        .state = {.step = publication->step,
                  .position = worker->position,
                  .skipped = worker->skipped,
                  .seed = (uint64_t)cfg->seed,
                  .generation = publication->generation,
                  .config_hash = ct_config_hash(cfg),
                  .program_hash = worker->plan.hash,
                  .global_batch = worker->batch.global,
                  .world = (uint64_t)worker->me->world,
                  .plateau = worker->plateau,
                  .best = publication->best,
                  .scaler = worker->scaler,
                  .unseen = worker->evaluation_due},
        .files = worker->snapshot.files,
        .file_count = worker->snapshot.file_count,
        .keep = (uint32_t)cfg->checkpoint.keep,
        .keep_every = (uint64_t)cfg->checkpoint.keep_every,
    };

    (void)ct_str_copy(save.state.run_id, sizeof save.state.run_id, worker->run_dir.run);
    return save;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void send_request(struct ct_worker *worker)
{
    struct ct_publication *publication = &worker->publication;

    publication->asked = true;
    (void)ct_job_publish_sized(worker->job, publication->step, publication->digest,
                               publication->bytes);
}

/* The answer is there: let readers see it, or forget it. */
static int complete(struct ct_worker *worker, int code, struct ct_error *err)
{
    struct ct_publication *publication = &worker->publication;
    struct ct_ckpt_save save = describe(worker, publication);

    publication->written = false;
    if (code == 0)
        code = ct_ckpt_publish(&save, err);
    if (code == 0) {
        worker->report.checkpoint_step = publication->step;
        if (save.state.best.metric == CT_BEST_NONE ||
            ct_ckpt_best(save.dir, worker->report.best_checkpoint, NULL) != 0)
            worker->report.best_checkpoint[0] = '\0';
        return ct_ckpt_path(save.dir, publication->step, worker->report.checkpoint, err);
    }
    ct_log_event(worker->log, CT_LOG_WARN, "checkpoint_refused",
                 "the checkpoint of step %" PRIu64 " is not published: %s", publication->step,
                 err->text);
    return code;
}

/* Ask what can be asked, take the answer that has come. */
static void advance(struct ct_worker *worker)
{
    struct ct_publication *publication = &worker->publication;
    struct ct_error why = {0};

    if (!publication->written || (!publication->asked && worker->step <= publication->step))
        return;
    if (!publication->asked)
        send_request(worker);
    int code = ct_job_published(worker->job, 0, &why);
    if (code != CT_ETIMEOUT)
        (void)complete(worker, code, &why);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_saved(const struct ct_worker *worker)
{
    const struct ct_report *report = &worker->report;
    const struct ct_saving *saving = &worker->saving;
    bool published = report->checkpoint[0] != '\0' && report->checkpoint_step == worker->step;
    bool writing = saving->active && saving->save.state.step == worker->step;

    return published || writing ||
           (worker->publication.written && worker->publication.step == worker->step);
}

/* What rank 0 decides; where ranks hold parts, for all. */
enum decision { NOTHING, SAVE, SAVE_ASYNC, DECISION_BITS = 2 };

/* With the decision all learn rank 0's count of rounds: the folder that they write to has it. */
static int decide(struct ct_worker *worker, enum decision *ret, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    enum decision decision = NOTHING;

    if (worker->me->rank == 0 && worker->run_dir.checkpoints[0] != '\0' && !is_saved(worker))
        decision = cfg->checkpoint.async ? SAVE_ASYNC : SAVE;
    int64_t word = (int64_t)(worker->rounds_before << DECISION_BITS | decision);
    int code = ct_parts_held(worker) ? ct_agree_word(worker, &word, err) : 0;
    worker->rounds_before = (uint64_t)word >> DECISION_BITS;
    *ret = (enum decision)(word & ((1 << DECISION_BITS) - 1));
    return code;
}

/* A checkpoint that cannot be written ends a training at its end alone; a group that is broken does
 * so at once. */
static int tolerate(struct ct_worker *worker, int code, const struct ct_error *why,
                    struct ct_error *err)
{
    bool broken =
        worker->group != NULL && (ct_group_failure(worker->group)->code != 0 ||
                                  ct_group_failure(ct_worker_step_group(worker))->code != 0);

    if (code != 0 && !broken && worker->step < worker->steps &&
        !ct_stop_requested(worker->stop, worker->job)) {
        ct_log_event(worker->log, CT_LOG_WARN, "checkpoint_failed", "%s; the training goes on",
                     why->text);
        return 0;
    }
    if (code != 0 && err != NULL)
        *err = *why;
    return code;
}

/* The one that is being written has its name now. */
static int end_saving(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_publication next = {.written = worker->me->rank == 0,
                                  .step = worker->saving.save.state.step,
                                  .generation = worker->saving.save.state.generation,
                                  .best = worker->saving.save.state.best};
    struct ct_error why = {0};

    ct_job_at(worker->job, CT_AT_CHECKPOINT, worker->step);
    next.bytes = ct_saving_bytes(&worker->saving);
    int code = ct_saving_end(worker, &next.digest, &why);
    advance(worker); /* the last moment of the one before, if it is still on its way */
    if (code == 0)
        worker->publication = next;
    return tolerate(worker, code, &why, err);
}

int ct_publish_await(struct ct_worker *worker, struct ct_error *err)
{
    return worker->saving.active ? end_saving(worker, err) : 0;
}

int ct_publish_save(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_error why = {0};
    enum decision decision = NOTHING;
    int code = ct_publish_await(worker, err); /* one at a time */

    if (code == 0)
        code = decide(worker, &decision, err);
    if (code != 0 || decision == NOTHING)
        return code;
    const struct ct_publication next = {.step = worker->step,
                                        .generation =
                                            worker->rounds_before + worker->me->generation,
                                        .best = worker->best};
    const struct ct_ckpt_save save = describe(worker, &next);
    ct_job_at(worker->job, CT_AT_CHECKPOINT, worker->step);
    code = ct_saving_start(worker, &save, decision == SAVE_ASYNC, &why);
    if (code != 0)
        return tolerate(worker, code, &why, err);
    return decision == SAVE_ASYNC ? 0 : ct_publish_await(worker, err);
}

/* Have all that write it written the one that is active? Then at the same step everywhere. */
static bool is_written(const struct ct_worker *worker)
{
    return ct_parts_held(worker) ? worker->saving.active && worker->writers == worker->me->world
                                 : ct_saving_is_written(&worker->saving);
}

int ct_publish_advance(struct ct_worker *worker, struct ct_error *err)
{
    int code = is_written(worker) ? end_saving(worker, err) : 0;

    advance(worker);
    return code;
}

/* Jobs count their rounds from 1, and several may work on a run, one after the other: how many the
 * earlier ones have counted, as the checkpoint that this job goes on from says. With them each
 * round of a run has a number above those before. */
static uint64_t rounds_before(const struct ct_worker *worker)
{
    const char *dir = worker->run_dir.checkpoints;
    uint64_t published = worker->me->published_generation;
    struct ct_ckpt_state state;
    char path[PATH_MAX];
    bool divisible;

    if (dir[0] == '\0' ||
        (published > 0 ? ct_ckpt_path(dir, worker->me->published_step, path, NULL)
                       : ct_ckpt_latest(dir, path, NULL)) != 0 ||
        ct_ckpt_peek(path, &state, &divisible, NULL) != 0 ||
        strcmp(state.run_id, worker->run_dir.run) != 0 || state.generation < published)
        return 0;
    return state.generation - published;
}

void ct_publish_enter(struct ct_worker *worker, bool found)
{
    struct ct_publication *publication = &worker->publication;
    const struct ct_saving *saving = &worker->saving;
    bool goes_on = worker->me->rank == 0 && found;

    if (!goes_on || saving->save.state.step > worker->step || ct_parts_held(worker))
        ct_saving_discard(&worker->saving);
    ct_saving_enter(&worker->saving);
    if (worker->me->rank == 0)
        worker->rounds_before = rounds_before(worker);
    if (!goes_on || publication->step > worker->step)
        publication->written = false;
    publication->asked = false;
    if (publication->written)
        send_request(
            worker); /* the round starts from this step or a later one: all ranks have it */
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Wait for the answer. CT_ETIMEOUT after `limit_ms`, CT_ECLOSED at a stop (unless that is what
 * waits), CT_EREVOKED when the round ends. */
static int await_answer(struct ct_worker *worker, int limit_ms, bool stopping, struct ct_error *err)
{
    int code = CT_ETIMEOUT;

    for (int waited = 0; code == CT_ETIMEOUT && waited < limit_ms; waited += SLICE_MS) {
        ct_job_at(worker->job, CT_AT_PUBLISH, worker->step);
        code = ct_job_published(worker->job, SLICE_MS, err);
        if (code != CT_ETIMEOUT || stopping)
            continue;
        if (ct_stop_requested(worker->stop, worker->job))
            return ct_error_set(err, CT_ECLOSED, "a stop was requested");
        if (ct_job_revoked(worker->job))
            return ct_error_set(err, CT_EREVOKED,
                                "the round ended before the result was published");
    }
    return code;
}

static int barrier(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_options options = {.timeout_ms = FINISH_MS};

    return worker->group == NULL
               ? 0
               : ct_group_explain(worker->group, ct_barrier(worker->group, &options), err);
}

int ct_publish_finish(struct ct_worker *worker, struct ct_error *err)
{
    if (worker->run_dir.checkpoints[0] == '\0')
        return 0;
    int code = ct_publish_await(worker, err);

    if (code == 0)
        code = barrier(worker, err);
    if (code == 0 && worker->publication.written) {
        if (!worker->publication.asked)
            send_request(worker);
        code = await_answer(worker, FINISH_MS, false, err);
        if (!ct_stop_is_secondary(code))
            code = complete(worker, code, err);
        if (code == CT_EFENCED && worker->survives)
            code = ct_error_set(err, CT_EREVOKED, "the round is over");
    }
    return code == 0 ? barrier(worker, err) : code;
}

int ct_publish_stop(struct ct_worker *worker, struct ct_error *err)
{
    bool together = ct_parts_together(worker); /* then it is saved */
    int code = together ? 0 : ct_publish_save(worker, err);

    if (code == 0 && !together)
        code = ct_publish_await(worker, err);
    if (code != 0 || !worker->publication.written)
        return code;
    if (!worker->publication.asked)
        send_request(worker);
    struct ct_error why = {0};
    int answer = await_answer(worker, STOP_MS, true, &why);
    if (answer == CT_ETIMEOUT || answer == CT_ECLOSED)
        (void)ct_error_set(&why, answer,
                           "the rendezvous did not answer; to go on from it name its "
                           "folder in checkpoint.resume");
    (void)complete(worker, answer, &why);
    return 0;
}
