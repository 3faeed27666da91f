/* Steps that survive the loss of ranks; see ctrun.h, part "steps".
 *
 *   begin_step --> was the last one completed? --> agree on who goes on --> 0
 *                      group broken, or revoked, or a boundary
 *                          v
 *                      regroup --> enter: group, who holds what, the base gives its state
 *
 * The state is whole between two calls whose step was completed, and also when the step broke off,
 * because it is changed only after the step's last collective. */
#include "job/job_state.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "job/state_recovery.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS_MAX = 256, NAME_BYTES = 64 };

struct region {
    char name[NAME_BYTES];
    void *data;
    size_t bytes;
};

struct ct_job_state {
    struct region regions[REGIONS_MAX];
    size_t count;
    size_t bytes;                /* of all */
    struct ct_state_calls calls; /* no functions: all state lies in regions */
    struct ct_group *group;
    uint64_t lineage; /* the last round in which all ranks had the state; 0: none */
    uint64_t number;  /* completed steps */
    bool under_way;   /* the caller was sent into a step */
    bool abandoned;   /* and has given it up */
    bool all_stop;    /* before this step, as all have agreed */
    uint64_t stop_ms; /* when this rank began to wait until all do; 0: no stop was seen */
};

static struct ct_job_state *state_of(struct ct_job *job)
{
    if (job->state == NULL)
        job->state = calloc(1, sizeof *job->state);
    return job->state;
}

void ct_job_state_free(struct ct_job_state *state)
{
    if (state != NULL)
        ct_group_free(state->group);
    free(state);
}

int ct_job_register_state(struct ct_job *job, const char *name, void *data, size_t bytes,
                          struct ct_error *err)
{
    struct ct_job_state *state = state_of(job);

    if (state == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the state of a job");
    if (state->group != NULL)
        return ct_error_set(err, CT_EUSAGE, "state \"%s\" is registered after the first step",
                            name);
    if (state->count == REGIONS_MAX)
        return ct_error_set(err, CT_ELIMIT, "state \"%s\": at most %d parts can be registered",
                            name, REGIONS_MAX);
    struct region *region = &state->regions[state->count];
    if (!ct_str_copy(region->name, sizeof region->name, name))
        return ct_error_set(err, CT_ELIMIT, "state \"%s\": a name has at most %d bytes", name,
                            NAME_BYTES - 1);
    region->data = data;
    region->bytes = bytes;
    state->bytes += bytes;
    state->count++;
    return 0;
}

int ct_job_register_calls(struct ct_job *job, const struct ct_state_calls *calls,
                          struct ct_error *err)
{
    struct ct_job_state *state = state_of(job);

    if (state == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the state of a job");
    if (state->group != NULL || state->calls.digest != NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "state by functions is registered once, before the first step");
    state->calls = *calls;
    return 0;
}

/* ---- what this rank holds -------------------------------------------------------------------- */

static uint64_t digest_of(const struct ct_job_state *state)
{
    uint64_t digest = state->number;

    for (size_t i = 0; i < state->count; i++)
        digest = ct_hash64(state->regions[i].data, state->regions[i].bytes, digest);
    if (state->calls.digest != NULL) {
        uint64_t own = state->calls.digest(state->calls.context);
        digest = ct_hash64(&own, sizeof own, digest);
    }
    return digest;
}

/* Of names and sizes: the same on all ranks. */
static uint64_t layout_of(const struct ct_job_state *state)
{
    uint64_t layout = state->count + (state->calls.digest != NULL ? REGIONS_MAX + 1 : 0);

    for (size_t i = 0; i < state->count; i++)
        layout = ct_hash64(state->regions[i].name, strlen(state->regions[i].name),
                           layout ^ state->regions[i].bytes);
    return layout;
}

static void copy(const struct ct_job_state *state, char *memory, bool back)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct region *region = &state->regions[i];

        memcpy(back ? region->data : memory, back ? memory : region->data, region->bytes);
        memory += region->bytes;
    }
}

/* ---- healing --------------------------------------------------------------------------------- */

static int gather(struct ct_job *job, struct ct_holding *all, struct ct_error *err)
{
    struct ct_job_state *state = job->state;

    all[job->assignment.rank] = (struct ct_holding){.lineage = state->lineage,
                                                    .step = state->number,
                                                    .digest = digest_of(state),
                                                    .own = {layout_of(state)}};
    return ct_group_explain(
        state->group, ct_all_gather(state->group, ct_inplace(all, sizeof *all, CT_U8), NULL), err);
}

/* The base's number and state to all; then equal digests everywhere. */
static int broadcast_state(struct ct_job *job, int base, struct ct_holding *all,
                           struct ct_error *err)
{
    struct ct_job_state *state = job->state;
    uint64_t number = state->number;
    int code = ct_broadcast(state->group, ct_inplace(&number, 1, CT_I64), base, NULL);

    for (size_t i = 0; code == 0 && i < state->count; i++)
        code = ct_broadcast(state->group,
                            ct_inplace(state->regions[i].data, state->regions[i].bytes, CT_U8),
                            base, NULL);
    if (code == 0 && state->calls.broadcast != NULL)
        code = state->calls.broadcast(state->calls.context, state->group, base);
    if (code != 0)
        return ct_group_explain(state->group, code, err);
    state->number = number;
    code = gather(job, all, err);
    for (int rank = 0; code == 0 && rank < job->assignment.world; rank++)
        if (all[rank].digest != all[base].digest)
            code =
                ct_error_set(err, CT_EDIVERGED,
                             "rank %d did not get the state of rank %d as it is: a device or its "
                             "memory is broken, or there is a bug",
                             rank, base);
    return code;
}

/* Who is behind keeps what it has until it has the newer: the base may be lost meanwhile. Who holds
 * the same as the base is given what it has. */
static int recover_from(struct ct_job *job, int base, struct ct_holding *all, struct ct_error *err)
{
    struct ct_job_state *state = job->state;
    const struct ct_holding *mine = &all[job->assignment.rank];
    uint64_t number = state->number;
    bool behind = mine->lineage > 0 && !ct_state_recovery_is_equal(mine, &all[base]);
    char *kept = behind ? malloc(state->bytes + 1) : NULL;

    if (behind && kept == NULL)
        state->lineage = 0;
    if (kept != NULL)
        copy(state, kept, false);
    int code = broadcast_state(job, base, all, err);
    if (code != 0 && kept != NULL)
        copy(state, kept, true);
    if (code != 0)
        state->number = number;
    free(kept);
    return code;
}

/* Choose the base from what all hold; at the very start it is rank 0. */
static int choose(const struct ct_job *job, const struct ct_holding *all, int *ret_base,
                  struct ct_error *err)
{
    const struct ct_assignment *me = &job->assignment;
    int base = me->lineage > 0 ? ct_state_recovery_base(all, me->world, me->lineage) : 0;

    for (int rank = 1; rank < me->world; rank++)
        if (all[rank].own[0] != all[0].own[0])
            return ct_error_set(err, CT_EUSAGE,
                                "rank %d has registered other state than rank 0 (names, sizes or "
                                "order)",
                                rank);
    if (base < 0 || (me->lineage == 0 && job->state->lineage > 0))
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "nobody holds the state of the job any more: all ranks start anew");
    int odd = me->lineage > 0 ? ct_state_recovery_diverged(all, me->world, base) : -1;
    if (odd >= 0)
        return ct_error_set(
            err, CT_EDIVERGED,
            "ranks %d and %d hold different states of step %" PRIu64
            ": a device or its memory computes wrongly, or a rank changed its state "
            "on its own",
            base, odd, all[base].step);
    *ret_base = base;
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int enter_round(struct ct_job *job, struct ct_error *err)
{
    static const struct ct_group_options options = {.name = "steps"};
    struct ct_job_state *state = job->state;
    int world = job->assignment.world, base = 0;
    struct ct_holding *all = calloc((size_t)world, sizeof *all);

    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", world);
    int code = ct_group_new(job, &options, &state->group, err);
    if (code == 0)
        code = gather(job, all, err);
    if (code == 0)
        code = choose(job, all, &base, err);
    if (code == 0 && ct_state_recovery_needed(all, world, base))
        code = recover_from(job, base, all, err);
    free(all);
    if (code == 0) {
        state->lineage = job->assignment.generation;
        (void)ct_job_healed(job);
    }
    return code;
}

static void leave_round(struct ct_job_state *state)
{
    ct_group_free(state->group);
    state->group = NULL;
    state->under_way = false;
    state->abandoned = false;
}

/* All ranks are at the same step, and none of them has to leave or to stop before it. */
static int agree(struct ct_job *job, struct ct_error *err)
{
    struct ct_job_state *state = job->state;
    int64_t number = (int64_t)state->number;
    int64_t all[] = {ct_job_boundary_requested(job), number, -number, state->stop_ms == 0};
    int code =
        ct_all_reduce(state->group, ct_inplace(all, CT_COUNT(all), CT_I64), CT_REDUCE_MAX, NULL);

    if (code != 0)
        return ct_group_explain(state->group, code, err);
    if (all[1] != number || -all[2] != number)
        return ct_error_set(err, CT_EMISMATCH,
                            "ranks are at steps %" PRId64 " to %" PRId64
                            ": each must go through the same steps",
                            -all[2], all[1]);
    state->all_stop = all[3] == 0;
    if (state->all_stop)
        return ct_error_set(err, CT_ECLOSED, "a stop was requested, before step %" PRId64, number);
    if (all[0] > 0)
        return ct_error_set(err, CT_EREVOKED, "the round ends before step %" PRId64, number);
    return 0;
}

bool ct_job_is_round_over(const struct ct_job *job, int code)
{
    if (job->link == NULL || code == 0)
        return false;
    return code == CT_EREVOKED || code == CT_ECLOSED ||
           (ct_job_revoked(job) && (code == CT_ETIMEOUT || code == CT_EUNSUPPORTED ||
                                    code == CT_EPROTOCOL || code == CT_EOS));
}

static bool survives(const struct ct_job_state *state)
{
    return state->count > 0 || state->calls.digest != NULL;
}

/* The first round, or the next ones until one holds. */
static int recover_round(struct ct_job *job, int code, struct ct_error *err)
{
    struct ct_job_state *state = job->state;

    while (!state->all_stop && ct_job_is_round_over(job, code) && survives(state)) {
        leave_round(state);
        const struct ct_ready ready = {
            .lineage = state->lineage, .step = state->number, .digest = digest_of(state)};
        code = ct_job_regroup(job, &ready, err);
        if (code != 0)
            return code;
        code = enter_round(job, err);
        if (code == 0)
            code = agree(job, err);
    }
    return code;
}

/* Whether this rank leaves without the others: it is not to save anything, or the others go on. A
 * stop of the whole job reaches all ranks at about the same time. */
static bool stops_alone(struct ct_job *job)
{
    enum { TOGETHER_MS = 1000 };
    struct ct_job_state *state = job->state;
    uint64_t deadline_ms = 0;

    if (!ct_job_stop_requested(job, &deadline_ms))
        return false;
    uint64_t now_ms = ct_clock_mono_ms(&ct_clock_system);
    if (state->stop_ms == 0)
        state->stop_ms = now_ms;
    return deadline_ms == 0 || state->lineage == 0 ||
           now_ms - state->stop_ms > CT_MIN(deadline_ms / 4, TOGETHER_MS);
}

/* Whether the step before was completed, and if so, count it. */
static int conclude(struct ct_job_state *state, struct ct_error *err)
{
    if (ct_group_failure(state->group)->code != 0)
        return ct_group_explain(state->group, ct_group_failure(state->group)->code, err);
    if (state->abandoned)
        return ct_error_set(err, CT_EREVOKED, "step %" PRIu64 " was abandoned", state->number);
    if (state->under_way)
        state->number++;
    state->under_way = false;
    return 0;
}

static int first_round(struct ct_job *job, const struct ct_job_step *step, struct ct_error *err)
{
    job->state->number = step->number;
    if (survives(job->state))
        (void)ct_job_survive(job);
    return enter_round(job, err);
}

int ct_job_begin_step(struct ct_job *job, struct ct_job_step *step, struct ct_error *err)
{
    struct ct_job_state *state = state_of(job);

    if (state == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the state of a job");
    step->all_stop = false;
    if (stops_alone(job))
        return ct_error_set(err, CT_ECLOSED, "a stop was requested");
    uint64_t generation = state->lineage;
    int code = generation == 0 ? first_round(job, step, err) : conclude(state, err);

    if (code == 0)
        code = agree(job, err);
    code = recover_round(job, code, err);
    if (code == 0 || state->all_stop) {
        step->regrouped = state->lineage != generation;
        step->number = state->number;
        step->group = state->group;
        step->all_stop = state->all_stop;
    }
    if (code != 0)
        return code;
    state->under_way = true;
    ct_job_at(job, CT_AT_STEP, (uint64_t)state->number);
    return 0;
}

void ct_job_abandon_step(struct ct_job *job)
{
    CT_ASSERT(job->state != NULL);
    job->state->abandoned = true;
}

uint64_t ct_digest(const void *data, size_t size, uint64_t seed)
{
    return ct_hash64(data, size, seed);
}
