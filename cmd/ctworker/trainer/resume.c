/* See resume.h. */
#include "resume.h"

#include "base/assert.h"
#include "base/str.h"
#include "reload.h"
#include "train/checkpoint/checkpoint_parts.h"
#include "train/checkpoint/weights.h"
#include "worker/agree.h"
#include "worker/parts.h"
#include "worker/ps.h"

#include <inttypes.h>
#include <string.h>

/* What rank 0 tells the others, as words of one broadcast. */
enum word { FOUND, DIVISIBLE, STEP, POSITION, SKIPPED, REDO, SAVE_COUNT, SAVE_UNIT, BEST, WORDS };

/* The newest checkpoint of `dir` into `path`; *ret_found is false when there is none. */
static int find_newest(const char *dir, char path[PATH_MAX], bool *ret_found, struct ct_error *err)
{
    int code = dir[0] != '\0' ? ct_ckpt_latest(dir, path, err) : CT_ENOTFOUND;

    *ret_found = code == 0;
    return code == CT_ENOTFOUND ? 0 : code;
}

/* Did this run write the checkpoint at `path`? */
static bool is_own(const struct ct_worker *worker, const char *path)
{
    struct ct_ckpt_state state;

    return ct_ckpt_open(path, &state, NULL) == 0 && strcmp(state.run_id, worker->run_dir.run) == 0;
}

/* Which checkpoint to go on from: exactly the one that this job has published last. */
static int choose(const struct ct_worker *worker, char path[PATH_MAX], bool *ret_found,
                  struct ct_error *err)
{
    const char *dir = worker->run_dir.checkpoints;
    const char *resume = worker->cfg->checkpoint.resume;

    if (worker->me->published_generation > 0 && dir[0] != '\0') {
        *ret_found = true;
        return ct_ckpt_path(dir, worker->me->published_step, path, err);
    }
    int code = find_newest(dir, path, ret_found, err);

    if (code != 0 || strcmp(resume, "auto") == 0)
        return code;
    if (ct_worker_restarted(worker) && *ret_found && is_own(worker, path))
        return 0;
    *ret_found = strcmp(resume, "none") != 0;
    if (!*ret_found)
        return 0;
    /* A folder of checkpoints stands for its newest one. */
    if (ct_ckpt_latest(resume, path, NULL) != 0 && !ct_str_copy(path, PATH_MAX, resume))
        return ct_error_set(err, CT_ECONFIG, "checkpoint.resume %.64s...: longer than %d bytes",
                            resume, PATH_MAX);
    return 0;
}

/* Say what may surprise when the configuration changed since the checkpoint. */
static void compare_settings(const struct ct_worker *worker, const struct ct_ckpt_state *state)
{
    if (state->seed != (uint64_t)worker->cfg->seed)
        ct_log_event(worker->log, CT_LOG_WARN, "resume_seed",
                     "the checkpoint was made with seed %" PRIu64 ", this run has seed %" PRId64
                     ": the order of samples changes",
                     state->seed, worker->cfg->seed);
    if (state->global_batch != worker->batch.global)
        ct_log_event(worker->log, CT_LOG_WARN, "resume_batch",
                     "the checkpoint was made with batch.global %" PRIu64 ", this run has %u",
                     state->global_batch, worker->batch.global);
}

static void note(struct ct_worker *worker, const char *path, const struct ct_ckpt_state *state)
{
    worker->step = state->step;
    worker->position = state->position;
    worker->skipped = state->skipped;
    worker->repeat_post_step = state->unseen != 0;
    if (state->plateau.ratio > 0)
        worker->plateau = state->plateau;
    if (state->best.metric == worker->best.metric) /* else by another measure */
        worker->best = state->best;
    if (state->scaler.scale > 0)
        worker->scaler = state->scaler;
    (void)ct_str_copy(worker->report.checkpoint, PATH_MAX, path);
    worker->report.checkpoint_step = state->step;
    compare_settings(worker, state);
    ct_log_event(worker->log, CT_LOG_INFO, "resume",
                 "going on from %s, step %" PRIu64 " of %" PRIu64, path, state->step,
                 worker->steps);
}

/* Rank 0 reads all; an average that the checkpoint does not hold begins at its parameters. */
static int load_all(struct ct_worker *worker, const char *path, struct ct_ckpt_state *ret,
                    struct ct_error *err)
{
    struct ct_snapshot *snapshot = &worker->snapshot;
    size_t count = ct_reload_files(worker, path);
    int code = ct_ckpt_open(path, ret, err);

    if (code == 0)
        code = ct_snapshot_hold(snapshot, &worker->plan, err);
    if (code == 0)
        code = ct_ckpt_load(path, snapshot->files, count, err);
    if (code == 0 && count < snapshot->file_count)
        ct_snapshot_start_average(snapshot, &worker->plan);
    return code;
}

/* Where ranks hold parts, rank 0 looks at the state first: all may be able to read their own. */
static int load(struct ct_worker *worker, const char *path, bool *ret_divisible,
                struct ct_error *err)
{
    struct ct_ckpt_state state;
    int code = 0;

    *ret_divisible = false;
    if (ct_parts_held(worker))
        code = ct_ckpt_peek(path, &state, ret_divisible, err);
    if (code == 0 && !*ret_divisible)
        code = load_all(worker, path, &state, err);
    if (code == 0)
        note(worker, path, &state);
    return code;
}

/* No checkpoint: the parameters of model.init_from, moments at zero. */
static int begin_from(struct ct_worker *worker, struct ct_error *err)
{
    const char *path = worker->cfg->model.init_from;
    struct ct_snapshot *snapshot = &worker->snapshot;
    const struct ct_ckpt_file *model = &snapshot->files[CT_SNAPSHOT_MODEL];
    int code = ct_snapshot_hold(snapshot, &worker->plan, err);

    if (code != 0)
        return code;
    code = ct_weights_load(path, model->tensors, model->count, err);
    if (code != 0) {
        (void)ct_error_prefix(err, "model.init_from");
        return code;
    }
    for (size_t i = model->count; i < (size_t)worker->plan.tensor_count; i++)
        memset(snapshot->data[i], 0, worker->plan.tensors[i].bytes);
    if (worker->plan.options.optim.ema > 0)
        ct_snapshot_start_average(snapshot, &worker->plan);
    ct_log_event(worker->log, CT_LOG_INFO, "init", "the parameters begin as those of %s", path);
    return 0;
}

/* Give rank 0's snapshot to all, itself included; parameter servers give it to the others. */
static int share(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_snapshot *snapshot = &worker->snapshot;
    bool first = worker->me->rank == 0;
    int code = 0;

    if (!ct_ps_used(worker))
        code = ct_exec_spread(worker->exec, first ? snapshot->data : NULL, err);
    else if (first)
        ct_snapshot_put(snapshot, &worker->plan, worker->exec);

    ct_snapshot_release(snapshot);
    return code;
}

/* All ranks read their own parts; where they cannot, rank 0 reads all of it. */
static int read_parts(struct ct_worker *worker, char path[PATH_MAX], struct ct_error *err)
{
    bool seen = false;
    int code = ct_broadcast(worker->group, ct_inplace(path, PATH_MAX, CT_U8), 0, NULL);

    if (code != 0)
        return ct_group_explain(worker->group, code, err);
    code = ct_reload(worker, path, &seen, err);
    if (code != 0 || seen)
        return code;
    struct ct_ckpt_state state;
    int64_t word = worker->me->rank == 0 ? load_all(worker, path, &state, err) : 0;
    code = ct_agree_word(worker, &word, word == 0 ? err : NULL);
    if (code == 0 && word != 0)
        code = worker->me->rank == 0
                   ? (int)word
                   : ct_error_set(err, (int)word, "rank 0 cannot go on from the checkpoint");
    return code == 0 ? share(worker, err) : code;
}

/* What evaluations and overflows made of rate, best and scale. */
static int share_rest(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_data plateau = ct_inplace(&worker->plateau, sizeof worker->plateau, CT_U8);
    struct ct_data best = ct_inplace(&worker->best, sizeof worker->best, CT_U8);
    struct ct_data scaler = ct_inplace(&worker->scaler, sizeof worker->scaler, CT_U8);

    if (worker->group == NULL)
        return 0;
    int code = ct_broadcast(worker->group, plateau, 0, NULL);
    if (code == 0)
        code = ct_broadcast(worker->group, best, 0, NULL);
    if (code == 0)
        code = ct_broadcast(worker->group, scaler, 0, NULL);
    return ct_group_explain(worker->group, code, err);
}

/* The state that rank 0 has found. */
static int get(struct ct_worker *worker, bool divisible, char path[PATH_MAX], struct ct_error *err)
{
    int code = divisible ? read_parts(worker, path, err) : share(worker, err);

    return code == 0 ? share_rest(worker, err) : code;
}

int ct_resume(struct ct_worker *worker, struct ct_error *err)
{
    char path[PATH_MAX] = "";
    bool found = false, divisible = false;
    int code = 0;

    if (worker->me->rank == 0) {
        ct_job_at(worker->job, CT_AT_CHECKPOINT, 0);
        code = choose(worker, path, &found, err);
        if (code == 0 && found) {
            code = load(worker, path, &divisible, err);
        } else if (code == 0 && worker->cfg->model.init_from[0] != '\0') {
            code = begin_from(worker, err);
            found = true;
        }
        ct_job_at(worker->job, CT_AT_START, worker->step);
    }
    worker->scope = CT_SCOPE_JOB;
    if (worker->group == NULL)
        return code == 0 && found ? get(worker, false, path, err) : code;
    worker->scope = CT_SCOPE_RANK;
    code = ct_agree_outcome(worker, code, err);
    if (code != 0)
        return code;
    int64_t words[WORDS] = {found,
                            divisible,
                            (int64_t)worker->step,
                            (int64_t)worker->position,
                            (int64_t)worker->skipped,
                            worker->repeat_post_step,
                            worker->save_every.count,
                            worker->save_every.unit,
                            (int64_t)worker->best.metric};
    int sent = ct_broadcast(worker->group, ct_inplace(words, WORDS, CT_I64), 0, NULL);
    if (sent != 0)
        return ct_group_explain(worker->group, sent, err);
    worker->step = (uint64_t)words[STEP];
    worker->position = (uint64_t)words[POSITION];
    worker->skipped = (uint64_t)words[SKIPPED];
    worker->repeat_post_step = words[REDO] != 0;
    worker->save_every.count = words[SAVE_COUNT];
    worker->save_every.unit = (enum ct_config_unit)words[SAVE_UNIT];
    worker->best.metric = (uint64_t)words[BEST];
    return words[FOUND] != 0 ? get(worker, words[DIVISIBLE] != 0, path, err) : 0;
}
