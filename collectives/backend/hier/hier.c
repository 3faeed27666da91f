/* See hier.h: how the groups form, which of them carries a call, waiting, and the end. */
#include "backend/hier/hier.h"
#include "backend/ucx/ucx_worker.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOTH_WAIT_NS = 100000 }; /* to sleep on one level while the other is under way, too */

/* ---- where ranks live ------------------------------------------------------------------------*/

/* Fill `node_of` and `local_of`, an entry a rank: nodes are counted as ranks name them, the ranks
 * of a node as they come. Returns the ranks a node; 0 when nodes differ, or there is no memory. */
static int place_ranks(const struct ct_setup *setup, int *node_of, int *local_of, int *ret_nodes)
{
    const struct ct_job *job = setup->job;
    size_t all = (size_t)job->assignment.nnodes;
    int *number = calloc(all, sizeof *number), *count = calloc(all, sizeof *count);
    int nodes = 0, locals = 0;

    if (number == NULL || count == NULL)
        goto out;
    for (int i = 0; i < setup->size; i++) {
        ptrdiff_t at = ct_job_node(job, setup->ranks[i]) - job->nodes;

        if (count[at] == 0)
            number[at] = nodes++;
        node_of[i] = number[at];
        local_of[i] = count[at]++;
        locals = CT_MAX(locals, count[at]);
    }
    *ret_nodes = nodes;
    if (locals * nodes != setup->size)
        locals = 0;
out:
    free(number);
    free(count);
    return locals;
}

static bool allocate(struct ct_hier *hier, size_t size)
{
    hier->node_of = calloc(size, sizeof *hier->node_of);
    hier->local_of = calloc(size, sizeof *hier->local_of);
    hier->rank_at = calloc(size, sizeof *hier->rank_at);
    for (int i = 0; i < CT_LEVELS; i++) {
        hier->levels[i].counts = calloc(size, sizeof *hier->levels[i].counts);
        hier->levels[i].offsets = calloc(size, sizeof *hier->levels[i].offsets);
        if (hier->levels[i].counts == NULL || hier->levels[i].offsets == NULL)
            return false;
    }
    return hier->node_of != NULL && hier->local_of != NULL && hier->rank_at != NULL;
}

static void close_group(void *state)
{
    struct ct_hier *hier = state;

    if (hier == NULL)
        return;
    ct_group_free(hier->flat);
    for (int i = 0; i < CT_LEVELS; i++) {
        ct_group_free(hier->levels[i].group);
        free(hier->levels[i].counts);
        free(hier->levels[i].offsets);
    }
    free(hier->node_of);
    free(hier->local_of);
    free(hier->rank_at);
    free(hier->scratch);
    free(hier);
}

/* Several nodes, as many ranks on each, more than one. */
static bool suits(const struct ct_setup *setup)
{
    size_t size = (size_t)setup->size;
    int *places = calloc(2 * size, sizeof *places);
    int nodes = 0;
    bool suited =
        places != NULL && place_ranks(setup, places, places + size, &nodes) > 1 && nodes > 1;

    free(places);
    return suited;
}

/* ---- creation --------------------------------------------------------------------------------*/

static int no_memory(const struct ct_setup *setup, struct ct_error *err)
{
    return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
}

/* A member's blob; the sub-groups form by themselves. */
struct proposal {
    uint32_t fabric; /* 1: this one could go over ucx */
};

/* The backend between nodes: as auto's, ucx where all have a fabric for it. */
static const char *wire_of(const struct ct_setup *setup, const struct ct_blob *blobs)
{
    bool fabric = true;

    for (int i = 0; i < setup->size; i++) {
        struct proposal proposal;

        memcpy(&proposal, blobs[i].data, sizeof proposal);
        fabric = fabric && proposal.fabric != 0;
    }
    return fabric ? "ucx" : "tcp";
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct ct_hier *hier = calloc(1, sizeof *hier);

    if (hier == NULL)
        return no_memory(setup, err);
    *ret_state = hier;
    struct proposal proposal = {!setup->encrypt && ct_ucx_has_fabric(setup->job)};
    memcpy(ret_blob->data, &proposal, sizeof proposal);
    hier->rank = setup->rank;
    hier->size = setup->size;
    hier->tuning = setup->tuning;
    if (!allocate(hier, (size_t)setup->size))
        return no_memory(setup, err);
    hier->locals = place_ranks(setup, hier->node_of, hier->local_of, &hier->nodes);
    if (hier->locals == 0)
        return no_memory(setup, err);
    size_t least = (size_t)hier->nodes * CT_HIER_ELEMENT_MAX;
    hier->tuning.hier_piece_bytes = (CT_MAX(setup->tuning.hier_piece_bytes, least) + 63) / 64 * 64;
    hier->scratch = aligned_alloc(64, CT_HIER_SETS * hier->tuning.hier_piece_bytes);
    if (hier->scratch == NULL)
        return no_memory(setup, err);
    hier->node = hier->node_of[setup->rank];
    hier->local = hier->local_of[setup->rank];
    hier->in_order = true;
    for (int i = 0; i < setup->size; i++) {
        int at = hier->node_of[i] * hier->locals + hier->local_of[i];

        hier->rank_at[at] = i;
        hier->in_order = hier->in_order && at == i;
    }
    return 0;
}

/* One of the groups that this one is made of: the members in the order of `rank_at`, from `first`
 * on, every `stride`-th. */
static int make_part(struct ct_hier *hier, const struct ct_setup *setup,
                     const struct ct_group_options *how, const int places[3],
                     struct ct_group **ret_group, struct ct_error *err)
{
    int count = places[0], first = places[1], stride = places[2];
    int *ranks = calloc((size_t)count, sizeof *ranks);
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);
    struct ct_tuning tuning = *setup->given;
    struct ct_group_options options = *how;
    int code;

    if (ranks == NULL)
        return no_memory(setup, err);
    for (int i = 0; i < count; i++)
        ranks[i] = setup->ranks[stride > 0 ? hier->rank_at[first + i * stride] : i];
    options.ranks = ranks;
    options.nranks = count;
    options.encrypt = setup->encrypt;
    options.timeout_ms = setup->deadline_ns > now ? (setup->deadline_ns - now) / 1000000u + 1 : 1;
    tuning.inner = true;
    code = ct_group_make(setup->job, &options, &tuning, NULL, ret_group, err);
    free(ranks);
    return code;
}

/* All three are made whatever becomes of the first: members on other nodes wait for this one. */
static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    struct ct_hier *hier = state;
    const char *wire = wire_of(setup, blobs);
    char local[160], column[160], flat[160];
    struct ct_error later = {0};
    const struct {
        struct ct_group **group;
        struct ct_group_options options;
        int places[3]; /* count, first, stride in rank_at; stride 0: all, as they are */
    } parts[] = {
        {&hier->levels[CT_LEVEL_LOCAL].group,
         {.name = local},
         {hier->locals, hier->node * hier->locals, 1}},
        {&hier->levels[CT_LEVEL_ACROSS].group,
         {.name = column, .backend = wire},
         {hier->nodes, hier->local, hier->locals}},
        {&hier->flat, {.name = flat, .backend = wire}, {hier->size, 0, 0}},
    };
    int code = 0;

    (void)snprintf(local, sizeof local, "%s/node%d", setup->key, hier->node);
    (void)snprintf(column, sizeof column, "%s/column%d", setup->key, hier->local);
    (void)snprintf(flat, sizeof flat, "%s/flat", setup->key);
    for (size_t i = 0; i < CT_COUNT(parts); i++) {
        int made = make_part(hier, setup, &parts[i].options, parts[i].places, parts[i].group,
                             code == 0 ? err : &later);

        code = code == 0 ? made : code;
    }
    return code;
}

static void finish_setup(void *state)
{
    (void)state;
}

/* ---- calls -----------------------------------------------------------------------------------*/

static bool same_node(const struct ct_hier *hier, int peer)
{
    return hier->node_of[peer] == hier->node;
}

/* A message within the node, in the node's ranks. The backend keeps what it wants in the task. */
static int local_transfer(struct ct_hier *hier, struct ct_task *task, struct ct_error *err)
{
    const struct ct_group *local = hier->levels[CT_LEVEL_LOCAL].group;
    struct ct_task inner = *task;

    inner.call.rank = local->rank;
    inner.call.size = local->size;
    inner.call.peer = hier->local_of[task->call.peer];
    int code = local->backend->progress(local->state, &inner, err);
    inner.call = task->call;
    *task = inner;
    return code;
}

/* The group that carries all of this call; NULL: the levels do. */
static struct ct_group *carrier(const struct ct_hier *hier, const struct ct_call *call)
{
    if (ct_call_is_transfer(call))
        return same_node(hier, call->peer) ? hier->levels[CT_LEVEL_LOCAL].group : hier->flat;
    return ct_hier_is_flat(hier, call) ? hier->flat : NULL;
}

static int tend(const struct ct_group *group, struct ct_error *err)
{
    return group->backend->tend != NULL ? group->backend->tend(group->state, err) : 0;
}

/* A member that sends this one something may have to connect first, whatever this one waits for.
 * The group that this call makes progress on does so itself; `group`: as of `carrier`. */
static int tend_others(const struct ct_hier *hier, const struct ct_group *group,
                       struct ct_error *err)
{
    const struct ct_hier_level *across = &hier->levels[CT_LEVEL_ACROSS];
    int code = group == hier->flat ? 0 : tend(hier->flat, err);

    if (code != 0 || (group == NULL && across->busy))
        return code;
    return tend(across->group, err);
}

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    struct ct_hier *hier = state;
    struct ct_group *group = carrier(hier, &task->call);
    int code = tend_others(hier, group, err);

    if (code != 0)
        return code;
    if (group == NULL)
        code = ct_hier_collective(hier, task, err);
    else if (group == hier->flat)
        code = group->backend->progress(group->state, task, err);
    else
        code = local_transfer(hier, task, err);
    if (code == 0) {
        bool levels = group == NULL;

        hier->waits_local |= group == hier->levels[CT_LEVEL_LOCAL].group ||
                             (levels && hier->levels[CT_LEVEL_LOCAL].busy);
        hier->waits_tcp[0] |= levels && hier->levels[CT_LEVEL_ACROSS].busy;
        hier->waits_tcp[1] |= group == hier->flat;
    }
    return code;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

/* A poll includes the sockets. */
static int spins(const void *state)
{
    const struct ct_group *flat = ((const struct ct_hier *)state)->flat;

    return flat->backend->spins(flat->state);
}

static uint32_t arm(void *state)
{
    struct ct_hier *hier = state;
    const struct ct_group *local = hier->levels[CT_LEVEL_LOCAL].group;

    hier->waits_local = hier->waits_tcp[0] = hier->waits_tcp[1] = false;
    return local->backend->arm(local->state);
}

/* Where all waits are for one group, on that; else briefly on one, for each has its own wakeup.
 */
static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    struct ct_hier *hier = state;
    const struct ct_group *local = hier->levels[CT_LEVEL_LOCAL].group;
    bool across = hier->waits_tcp[0], flat = hier->waits_tcp[1];
    const struct ct_group *other = flat ? hier->flat : hier->levels[CT_LEVEL_ACROSS].group;
    bool alone = hier->waits_local ? !across && !flat : across != flat;

    if (timeout_ns == 0 || (!across && !flat)) {
        local->backend->park(local->state, armed, timeout_ns);
        return;
    }
    local->backend->park(local->state, armed, 0);
    uint32_t other_armed = other->backend->arm(other->state);
    other->backend->park(other->state, other_armed,
                         alone ? timeout_ns : CT_MIN(timeout_ns, (uint64_t)BOTH_WAIT_NS));
}

/* The rank of the group that a call of a part waits for. */
static int missing_in(const struct ct_hier *hier, enum ct_level level, const struct ct_task *task)
{
    const struct ct_group *group = hier->levels[level].group;
    int missing = group->backend->missing(group->state, task);

    if (missing < 0)
        return -1;
    return level == CT_LEVEL_LOCAL ? ct_hier_rank(hier, hier->node, missing)
                                   : ct_hier_rank(hier, missing, hier->local);
}

static int missing(void *state, const struct ct_task *task)
{
    const struct ct_hier *hier = state;
    const struct ct_group *group = carrier(hier, &task->call);

    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    if (group != NULL)
        return group->backend->missing(group->state, task);
    for (int i = 0; i < CT_LEVELS; i++) {
        const struct ct_hier_level *level = &hier->levels[i];
        int found = level->busy ? missing_in(hier, (enum ct_level)i, &level->task) : -1;

        if (found >= 0)
            return found;
    }
    return -1;
}

/* ---- the end ---------------------------------------------------------------------------------*/

static void fail(void *state, int code)
{
    struct ct_hier *hier = state;

    for (int i = 0; i < CT_LEVELS; i++)
        hier->levels[i].group->backend->fail(hier->levels[i].group->state, code);
    hier->flat->backend->fail(hier->flat->state, code);
}

/* Wake all three: it sleeps on one of them. */
static void wake(void *state)
{
    struct ct_hier *hier = state;

    for (int i = 0; i < CT_LEVELS; i++)
        hier->levels[i].group->backend->wake(hier->levels[i].group->state);
    hier->flat->backend->wake(hier->flat->state);
}

/* The node's members; tcp notifies the others. */
static void revoke(void *state)
{
    const struct ct_group *local = ((struct ct_hier *)state)->levels[CT_LEVEL_LOCAL].group;

    if (local->backend->revoke != NULL)
        local->backend->revoke(local->state);
}

const struct ct_backend ct_backend_hier = {
    .name = "hier",
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
    .finish_setup = finish_setup,
    .progress = progress,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .wake = wake,
    .revoke = revoke,
    .close = close_group,
};
