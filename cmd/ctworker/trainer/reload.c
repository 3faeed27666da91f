/* See reload.h.
 *
 *   look     each sums up a share of each file: does it see what rank 0 sees, and is it whole?
 *   read     each the parts that it holds, into memory; only when all have them, into the executor
 */
#include "reload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells of its look or its reading. */
struct report {
    int64_t code;
    uint64_t identity; /* of state.json; 0: not seen */
    struct ct_ckpt_shares shares;
    char why[400];
};

static void set_report(struct report *report, int code, const struct ct_error *why)
{
    report->code = code;
    (void)snprintf(report->why, sizeof report->why, "%.*s", (int)sizeof report->why - 1, why->text);
}

/* The reports of all, this rank's being in its place. */
static int gather_reports(struct ct_worker *worker, struct report *all, struct ct_error *err)
{
    int code = ct_all_gather(worker->group, ct_inplace(all, sizeof *all, CT_U8), NULL);

    return ct_group_explain(worker->group, code, err);
}

/* The first failure is everybody's. */
static int first_failure(struct ct_worker *worker, const struct report *all, struct ct_error *err)
{
    for (int rank = 0; rank < worker->me->world; rank++)
        if (all[rank].code != 0) {
            worker->scope = CT_SCOPE_JOB;
            return ct_error_set(err, (int)all[rank].code, "%s", all[rank].why);
        }
    return 0;
}

static int look(struct ct_worker *worker, const char *path, struct report *all, bool *ret_seen,
                struct ct_error *err)
{
    int rank = worker->me->rank, world = worker->me->world;
    struct report *mine = &all[rank];
    struct ct_ckpt_shares sum = {{0}};
    struct ct_error why = {0};

    if (ct_ckpt_identity(path, &mine->identity))
        set_report(mine, ct_ckpt_verify(path, rank, world, &mine->shares, &why), &why);
    int code = gather_reports(worker, all, err);
    *ret_seen = code == 0;
    for (int i = 0; i < world; i++) {
        *ret_seen = *ret_seen && all[i].identity == all[0].identity;
        for (size_t file = 0; file < CT_CKPT_MAX_FILES; file++)
            sum.crc32c[file] ^= all[i].shares.crc32c[file];
    }
    if (code != 0 || !*ret_seen)
        return code;
    code = first_failure(worker, all, err);
    if (code != 0)
        return code;
    worker->scope = CT_SCOPE_JOB;
    return ct_ckpt_judge(path, &sum, err);
}

size_t ct_reload_files(const struct ct_worker *worker, const char *path)
{
    const struct ct_snapshot *snapshot = &worker->snapshot;
    size_t count = snapshot->file_count;

    if (count <= CT_SNAPSHOT_EMA || ct_ckpt_holds(path, snapshot->files[CT_SNAPSHOT_EMA].name))
        return count;
    if (worker->me->rank == 0)
        ct_log_event(worker->log, CT_LOG_WARN, "resume_average",
                     "%s has no ema.safetensors: the average of the parameters begins here", path);
    return CT_SNAPSHOT_EMA;
}

/* An average that is not there has the parameters' bytes: entries of both files are alike. */
static int borrow_average(struct ct_ckpt_places *places, const struct ct_snapshot *snapshot,
                          struct ct_error *err)
{
    size_t count = snapshot->files[CT_SNAPSHOT_EMA].count;
    uint64_t *at = calloc(count + 1, sizeof *at);

    if (at == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the places of %zu tensors", count);
    memcpy(at, places->at[CT_SNAPSHOT_MODEL], count * sizeof *at);
    places->at[CT_SNAPSHOT_EMA] = at;
    places->size[CT_SNAPSHOT_EMA] = places->size[CT_SNAPSHOT_MODEL];
    places->count = CT_SNAPSHOT_EMA + 1;
    return 0;
}

static int read_portion(struct ct_worker *worker, const char *path, struct ct_portion *portion,
                        struct ct_error *err)
{
    const struct ct_snapshot *snapshot = &worker->snapshot;
    size_t count = ct_reload_files(worker, path);
    struct ct_ckpt_places places = {.count = 0};
    int code = ct_ckpt_find(&places, path, snapshot->files, count, err);

    if (code == 0 && count < snapshot->file_count)
        code = borrow_average(&places, snapshot, err);
    if (code == 0)
        code = ct_portion_list(portion, snapshot, &worker->plan, &places, CT_PORTION_HELD, err);
    for (size_t i = 0; code == 0 && i < portion->count; i++)
        if (portion->parts[i].file >= count)
            portion->parts[i].file = CT_SNAPSHOT_MODEL;
    if (code == 0)
        code = ct_ckpt_read(path, snapshot->files, portion->parts, portion->count, err);
    ct_ckpt_places_deinit(&places);
    return code;
}

int ct_reload(struct ct_worker *worker, const char *path, bool *ret_seen, struct ct_error *err)
{
    struct report *all = calloc((size_t)worker->me->world, sizeof *all);
    struct ct_portion portion = {.count = 0};
    struct ct_error why = {0};

    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", worker->me->world);
    ct_job_at(worker->job, CT_AT_CHECKPOINT, 0);
    int code = look(worker, path, all, ret_seen, err);
    if (code == 0 && *ret_seen) {
        int own = read_portion(worker, path, &portion, &why);
        set_report(&all[worker->me->rank], own, &why);
        code = gather_reports(worker, all, err);
        if (code == 0)
            code = first_failure(worker, all, err);
        if (code == 0)
            ct_portion_copy_in(&portion, worker->exec);
    }
    ct_job_at(worker->job, CT_AT_START, worker->step);
    ct_portion_deinit(&portion);
    free(all);
    return code;
}
