/* See recover_state.h. */
#include "recover_state.h"

#include "training_round.h"
#include "worker/agree.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- what follows a step --------------------------------------------------------------------- */

bool ct_state_recovery_redo(const struct ct_holding *all, int world, int base)
{
    if ((all[base].own[CT_HELD_MARKS] & CT_HELD_TRAINED) == 0)
        return false;
    for (int rank = 0; rank < world; rank++)
        if (ct_state_recovery_is_equal(&all[rank], &all[base]) &&
            all[rank].own[CT_HELD_COMPLETED] < all[base].step)
            return true;
    return (all[0].own[CT_HELD_MARKS] & CT_HELD_WRITES) == 0;
}

/* ---- giving ---------------------------------------------------------------------------------- */

/* What goes with the state. */
struct metadata {
    uint64_t step, position, skipped;
    struct ct_plateau plateau;
    struct ct_best best;
    struct ct_scaler scaler;
    struct ct_step_report last;
};

static int broadcast_metadata(struct ct_worker *worker, struct metadata *metadata, int base,
                              struct ct_error *err)
{
    if (worker->group == NULL)
        return 0;
    int code =
        ct_broadcast(worker->group, ct_inplace(metadata, sizeof *metadata, CT_U8), base, NULL);
    return ct_group_explain(worker->group, code, err);
}

static int broadcast_state(struct ct_worker *worker, int base, bool state,
                           struct metadata *metadata, struct ct_error *err)
{
    int code = broadcast_metadata(worker, metadata, base, err);

    if (code == 0 && state)
        code = ct_exec_share_state(worker->exec, base, err);
    if (code != 0 || !state)
        return code;
    worker->step = metadata->step;
    return ct_agree_replicas(worker, err);
}

/* ---- together -------------------------------------------------------------------------------- */

static int gather(struct ct_worker *worker, struct ct_holding *all, struct ct_error *err)
{
    all[worker->me->rank] =
        (struct ct_holding){.lineage = worker->lineage,
                            .step = worker->step,
                            .digest = worker->digest,
                            .own = {[CT_HELD_COMPLETED] = worker->post_step_done,
                                    [CT_HELD_MARKS] = (worker->report.active ? CT_HELD_WRITES : 0) |
                                                      (worker->has_last ? CT_HELD_TRAINED : 0)}};
    if (worker->group == NULL)
        return 0;
    int code = ct_all_gather(worker->group, ct_inplace(all, sizeof *all, CT_U8), NULL);
    return ct_group_explain(worker->group, code, err);
}

static int heal_from(struct ct_worker *worker, const struct ct_holding *all, int base,
                     struct ct_error *err)
{
    int world = worker->me->world, odd = ct_state_recovery_diverged(all, world, base);
    struct metadata metadata = {.step = worker->step,
                                .position = worker->position,
                                .skipped = worker->skipped,
                                .plateau = worker->plateau,
                                .best = worker->best,
                                .scaler = worker->scaler,
                                .last = worker->last};
    bool needed = ct_state_recovery_needed(all, world, base);
    uint64_t step = worker->step;

    if (odd >= 0) {
        worker->scope = CT_SCOPE_JOB;
        return ct_error_set(
            err, CT_EDIVERGED,
            "ranks %d and %d of the new round hold different states of step %" PRIu64
            ": a device or its memory computes wrongly, or there is a bug",
            base, odd, all[base].step);
    }
    if (worker->carry.tensors != NULL)
        ct_snapshot_put(&worker->carry, &worker->plan, worker->exec);
    /* Who is behind keeps what it has until it has the newer: the base may be lost meanwhile. */
    int code = ct_state_recovery_is_equal(&all[worker->me->rank], &all[base])
                   ? 0
                   : ct_round_carry(worker, err);
    if (code == 0)
        code = broadcast_state(worker, base, needed, &metadata, err);
    if (code != 0) {
        worker->step = step;
        return code;
    }
    worker->step = metadata.step;
    worker->position = metadata.position;
    worker->skipped = metadata.skipped;
    worker->plateau = metadata.plateau;
    worker->best = metadata.best;
    worker->scaler = metadata.scaler;
    worker->last = metadata.last;
    worker->has_last = (all[base].own[CT_HELD_MARKS] & CT_HELD_TRAINED) != 0;
    worker->repeat_post_step = ct_state_recovery_redo(all, world, base);
    worker->post_step_done = worker->repeat_post_step ? worker->step - 1 : worker->step;
    return 0;
}

int ct_state_recovery(struct ct_worker *worker, bool *ret_found, struct ct_error *err)
{
    *ret_found = false;
    if (worker->me->lineage == 0)
        return 0;
    struct ct_holding *all = calloc((size_t)worker->me->world, sizeof *all);
    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", worker->me->world);
    int code = gather(worker, all, err);
    int base = code == 0 ? ct_state_recovery_base(all, worker->me->world, worker->me->lineage) : -1;
    if (base >= 0) {
        *ret_found = true;
        code = heal_from(worker, all, base, err);
    }
    free(all);
    return code;
}
