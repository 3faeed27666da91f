/* See nccl_group.h: how a group's communicators come to be.
 *
 *     prepare    a card: GPU, version, kept communicator, a unique id if others may need it
 *     connect    the host group, then the first communicator, by the first way open to all:
 *                  1. it was split off the parent's already (ct_group_split)
 *                  2. all kept the same one from the last round: shrink it (nccl_kept.h)
 *                  3. fresh unique ids
 *                and from it by a split the one of messages
 *     split      of the first communicator, for the parts that ct_group_split is about to make
 *     register   memory with the communicators that reduce and gather
 *
 * All members take the same way: the cards, or messages over the host group, have what they need to
 * know of each other. */
#include "backend/nccl/nccl_group.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    POLL_NS = 500000,  /* how long to sleep while a communicator forms */
    QUERY_EVERY = 100, /* polls until the store is queried for failures */
    RANKS_AN_ID = 128,
    IDLE_MS = 1000,    /* what was kept is revoked long since */
    SHRINK_MS = 10000, /* until shrinking is given up, and a fresh id taken */
};

/* A member's blob. */
struct card {
    uint8_t unique[16]; /* the GPU's */
    int32_t version;
    int32_t shares; /* NCCL was told to take several ranks a GPU */
    int32_t has_id;
    int32_t has_split; /* its communicator was split off the parent's */
    uint64_t kept;     /* the tag of what it kept, its rank there and the size of it */
    int32_t kept_rank, kept_size;
    struct ct_nccl_id id;
};
_Static_assert(sizeof(struct card) <= CT_BLOB_BYTES, "fits the blob");

/* A member that forms communicators, and the others' blobs. */
struct forming {
    struct ct_nccl_group *group;
    const struct ct_setup *setup;
    const struct ct_blob *blobs;
};

/* ---- cards -----------------------------------------------------------------------------------*/

/* As many unique ids as roots: the members that make them are spread evenly. */
static int id_count(const struct ct_nccl *nccl, int size)
{
    return nccl->lib.ncclCommInitRankScalable == NULL ? 1 : 1 + (size - 1) / RANKS_AN_ID;
}

static int maker_of(int id, int count, int size)
{
    return (int)((int64_t)id * size / count);
}

static bool makes_id(const struct ct_nccl *nccl, const struct ct_setup *setup)
{
    int count = id_count(nccl, setup->size);

    for (int i = 0; i < count; i++)
        if (maker_of(i, count, setup->size) == setup->rank)
            return true;
    return false;
}

static int make_id(const struct ct_nccl *nccl, struct ct_nccl_id *ret_id, struct ct_error *err)
{
    int result = nccl->lib.ncclGetUniqueId(ret_id);

    return result == CT_NCCL_SUCCESS ? 0
                                     : ct_nccl_error(&nccl->lib, NULL, result, "no unique id", err);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* The parent's entry for the communicator that was split off for this part; NULL if none. */
static struct ct_nccl_communicator *split_off_of(const struct ct_setup *setup)
{
    const struct ct_group *parent = setup->parent;

    if (parent == NULL || parent->backend != &ct_backend_nccl)
        return NULL;
    return &((struct ct_nccl_group *)parent->state)->communicators[CT_NCCL_SPLIT_OFF];
}

/* "device" of "device/3". A part's communicator is not kept, nor one of a longer name. */
static void name_origin(struct ct_nccl_group *group, const struct ct_setup *setup)
{
    const char *end = strrchr(setup->key, '/');
    size_t length = end != NULL ? (size_t)(end - setup->key) : strlen(setup->key);

    if (setup->parent == NULL && length < sizeof group->origin.name)
        memcpy(group->origin.name, setup->key, length);
    group->origin.rank = setup->rank;
    group->origin.size = setup->size;
}

static int write_card(struct ct_nccl_group *group, const struct ct_setup *setup,
                      struct ct_blob *ret_blob, struct ct_error *err)
{
    const struct ct_nccl_communicator *split_off = split_off_of(setup);
    const struct ct_nccl_kept *kept = ct_nccl_kept_find(group->nccl, group->origin.name);
    struct card card = {.version = group->nccl->lib.version,
                        .shares = is_set("NCCL_HOSTID") || is_set("NCCL_MULTI_RANK_GPU_ENABLE")};
    int code = 0;

    memcpy(card.unique, setup->device->unique, sizeof card.unique);
    (void)pthread_mutex_lock(&group->nccl->lock);
    card.has_split = split_off != NULL && split_off->comm != NULL;
    ct_nccl_unlock(group->nccl);
    if (kept != NULL) {
        card.kept = kept->origin.tag;
        card.kept_rank = kept->origin.rank;
        card.kept_size = kept->origin.size;
    }
    /* an unused id keeps a thread and a socket of NCCL's for the life of the process */
    card.has_id = !card.has_split && kept == NULL && makes_id(group->nccl, setup);
    if (card.has_id)
        code = make_id(group->nccl, &card.id, err);
    memcpy(ret_blob->data, &card, sizeof card);
    return code;
}

int ct_nccl_group_prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                          struct ct_error *err)
{
    struct ct_nccl_group *group = calloc(1, sizeof *group);

    if (group == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    *ret_state = group;
    if (is_set("NCCL_COMM_BLOCKING"))
        return ct_error_set(
            err, CT_EUNSUPPORTED,
            "NCCL_COMM_BLOCKING makes NCCL wait where nobody could end it: unset it");
    int code = ct_nccl_of_job(setup->job, &group->nccl, err);
    if (code == 0)
        code = ct_staged_init(&group->staged, setup, err);
    if (code != 0)
        return code;
    name_origin(group, setup);
    return write_card(group, setup, ret_blob, err);
}

static struct card card_of(const struct ct_blob *blobs, int member)
{
    struct card card;

    memcpy(&card, blobs[member].data, sizeof card);
    return card;
}

/* One version for all, and a GPU each. */
static int check_cards(const struct ct_setup *setup, const struct ct_blob *blobs,
                       struct ct_error *err)
{
    struct card first = card_of(blobs, 0);

    for (int i = 1; i < setup->size; i++) {
        struct card card = card_of(blobs, i);

        if (card.version != first.version)
            return ct_error_set(err, CT_EUNSUPPORTED,
                                "rank %d has NCCL %d, rank %d has %d: all need the same",
                                setup->ranks[0], first.version, setup->ranks[i], card.version);
        for (int j = 0; j < i && !card.shares; j++) {
            struct card other = card_of(blobs, j);

            if (memcmp(card.unique, other.unique, sizeof card.unique) == 0)
                return ct_error_set(err, CT_EUNSUPPORTED,
                                    "ranks %d and %d share a GPU, which NCCL refuses",
                                    setup->ranks[j], setup->ranks[i]);
        }
    }
    return 0;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static bool is_past(uint64_t deadline_ns)
{
    return ct_clock_mono_ns(&ct_clock_system) >= deadline_ns;
}

static int poll_locked(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                       struct ct_error *err)
{
    (void)pthread_mutex_lock(&group->nccl->lock);
    int code = ct_nccl_communicator_poll(group->nccl, communicator, err);
    ct_nccl_unlock(group->nccl);
    return code;
}

/* Sleep a moment, unless it is too late or the round is over. */
static int wait_a_while(const struct ct_nccl_group *group, uint64_t deadline_ns, const char *what,
                        struct ct_error *err)
{
    if (ct_job_revoked(group->staged.job))
        return ct_error_set(err, CT_EREVOKED, "the round was revoked");
    if (is_past(deadline_ns))
        return ct_error_set(err, CT_ETIMEOUT, "NCCL did not %s of %d ranks in time", what,
                            group->staged.size);
    (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    return 0;
}

/* Poll the communicator that forms (its parent, while it is split off) until it is there. */
static int await(const struct forming *forming, struct ct_nccl_communicator *communicator,
                 struct ct_nccl_communicator *polled, struct ct_error *err)
{
    for (int polls = 0;; polls++) {
        int code = poll_locked(forming->group, polled, err);

        if (code == CT_ECLOSED) /* a connection that cannot be made: another backend may do */
            return err->code = CT_EUNAVAILABLE;
        if (code < 0)
            return code;
        if (code == 1 && communicator->comm != NULL)
            return 0;
        if (polls % QUERY_EVERY == QUERY_EVERY - 1)
            code = forming->setup->failed_elsewhere(forming->setup, err);
        if (code >= 0)
            code = wait_a_while(forming->group, forming->setup->deadline_ns, "make a communicator",
                                err);
        if (code != 0)
            return code;
    }
}

/* ---- fresh -----------------------------------------------------------------------------------*/

/* Some member has made no id, expecting to need none: all make and exchange them now. */
static int exchange_ids(const struct forming *forming, struct ct_nccl_id *ids, int count,
                        struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;
    struct ct_group *host = group->staged.host;
    struct ct_nccl_id *all = calloc((size_t)forming->setup->size, sizeof *all), mine = {{0}};
    int code = 0;

    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %d ids", forming->setup->size);
    if (makes_id(group->nccl, forming->setup))
        code = make_id(group->nccl, &mine, err);
    if (code == 0) {
        code = ct_all_gather(host, ct_from_to(&mine, all, sizeof mine, CT_U8), NULL);
        code = ct_group_explain(host, code, err);
    }
    for (int i = 0; i < count; i++)
        ids[i] = all[maker_of(i, count, forming->setup->size)];
    free(all);
    return code;
}

static int collect_ids(const struct forming *forming, struct ct_nccl_id *ids, int count,
                       struct ct_error *err)
{
    bool complete = true;

    for (int i = 0; i < count; i++) {
        struct card card = card_of(forming->blobs, maker_of(i, count, forming->setup->size));

        ids[i] = card.id;
        complete = complete && card.has_id;
    }
    return complete ? 0 : exchange_ids(forming, ids, count, err);
}

static int form_fresh(const struct forming *forming, struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;
    const struct ct_setup *setup = forming->setup;
    struct ct_nccl_communicator *communicator = &group->communicators[CT_NCCL_MAIN];
    int count = id_count(group->nccl, setup->size);
    struct ct_nccl_id *ids = calloc((size_t)count, sizeof *ids);

    if (ids == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    int code = collect_ids(forming, ids, count, err);
    if (code == 0) {
        group->origin.tag = ct_hash64(&ids[0], sizeof ids[0], 0) | 1;
        (void)pthread_mutex_lock(&group->nccl->lock);
        code = ct_nccl_communicator_form(group->nccl, communicator, setup->rank, setup->size, ids,
                                         count, err);
        ct_nccl_unlock(group->nccl);
    }
    free(ids);
    return code == 0 ? await(forming, communicator, communicator, err) : code;
}

/* ---- split off the parent's ------------------------------------------------------------------*/

static bool all_have_split(const struct forming *forming)
{
    bool all = true;

    for (int i = 0; i < forming->setup->size; i++)
        all = all && card_of(forming->blobs, i).has_split;
    return all;
}

static int use_split_off(const struct forming *forming, struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;
    struct ct_nccl_communicator *split_off = split_off_of(forming->setup),
                                *main = &group->communicators[CT_NCCL_MAIN];

    (void)pthread_mutex_lock(&group->nccl->lock);
    main->comm = split_off->comm;
    split_off->comm = NULL;
    ct_nccl_unlock(group->nccl);
    if (main->comm == NULL) /* as a round ends, all communicators go */
        return ct_error_set(err, CT_EREVOKED, "the round was revoked");
    return await(forming, main, main, err);
}

/* End the communicator that was split off last, if no part has used it. */
static void end_split_off(struct ct_nccl_group *group)
{
    struct ct_nccl_communicator *split_off = &group->communicators[CT_NCCL_SPLIT_OFF];
    struct ct_nccl_end how = {.nccl = group->nccl, .communicators = split_off, .count = 1};

    if (split_off->comm == NULL || !ct_nccl_communicators_end(group->staged.job, &how))
        return;
    (void)pthread_mutex_lock(&group->nccl->lock);
    ct_nccl_communicator_list(group->nccl, split_off, group->staged.device);
    ct_nccl_unlock(group->nccl);
}

/* Where NCCL refuses or fails, the parts find none that was split off and take fresh ids; a parent
 * that has failed by it says so at its next call. One that is still at it when time is over can
 * neither be asked again nor be used. */
int ct_nccl_group_split(void *state, int colour, int key, uint64_t deadline_ns,
                        struct ct_error *err)
{
    struct ct_nccl_group *group = state;
    struct ct_nccl_communicator *main = &group->communicators[CT_NCCL_MAIN],
                                *split_off = &group->communicators[CT_NCCL_SPLIT_OFF];
    struct ct_error why = {0};

    end_split_off(group);
    if (ct_nccl_lacks(&group->nccl->lib, CT_NCCL_SPLIT) != NULL)
        return 0;
    int code = ct_nccl_communicator_query(main, err);
    if (code != 0)
        return code;
    (void)pthread_mutex_lock(&group->nccl->lock);
    code = main->comm == NULL
               ? ct_nccl_communicator_poll(group->nccl, main, err)
               : ct_nccl_communicator_split(group->nccl, split_off, main,
                                            colour < 0 ? CT_NCCL_NO_COLOUR : colour, key, &why);
    ct_nccl_unlock(group->nccl);
    while (code == 0 && why.code == 0) {
        int done = poll_locked(group, main, &why);

        if (done == 1)
            return 0;
        if (done < 0)
            return done == CT_EREVOKED ? ct_error_set(err, done, "%s", why.text) : 0;
        code = wait_a_while(group, deadline_ns, "split a communicator", err);
    }
    return why.code != 0 ? 0 : code;
}

/* ---- shrunk ----------------------------------------------------------------------------------*/

static struct ct_nccl_origin *origins_of(const struct forming *forming)
{
    int size = forming->setup->size;
    struct ct_nccl_origin *origins = calloc((size_t)size, sizeof *origins);

    for (int i = 0; i < size && origins != NULL; i++) {
        struct card card = card_of(forming->blobs, i);

        origins[i] = (struct ct_nccl_origin){
            .tag = card.kept, .rank = card.kept_rank, .size = card.kept_size};
    }
    return origins;
}

/* *ret_all: whether `mine` is true at every member. */
static int agree(const struct forming *forming, bool mine, bool *ret_all, struct ct_error *err)
{
    struct ct_group *host = forming->group->staged.host;
    int32_t yes = mine;
    int code = ct_all_reduce(host, ct_inplace(&yes, 1, CT_I32), CT_REDUCE_MIN, NULL);

    *ret_all = yes == 1;
    return ct_group_explain(host, code, err);
}

/* Until the shrunk one is there, at this member. */
static bool shrink_here(struct ct_nccl_group *group, struct ct_nccl_kept *kept, int *missing,
                        int count)
{
    uint64_t deadline_ns = ct_clock_mono_ns(&ct_clock_system) + SHRINK_MS * (uint64_t)1000000;
    struct ct_nccl_communicator *main = &group->communicators[CT_NCCL_MAIN];
    struct ct_nccl_config config = ct_nccl_config();
    struct ct_error unread = {0};

    (void)pthread_mutex_lock(&group->nccl->lock);
    int result = group->nccl->lib.ncclCommShrink(kept->communicator.comm, missing, count,
                                                 &main->comm, &config, CT_NCCL_SHRINK_DEFAULT);
    ct_nccl_unlock(group->nccl);
    int code = result == CT_NCCL_SUCCESS || result == CT_NCCL_IN_PROGRESS ? 0 : CT_EUNSUPPORTED;
    while (code == 0) {
        code = poll_locked(group, &kept->communicator, &unread);
        if (code == 0)
            code = wait_a_while(group, deadline_ns, "shrink a communicator", &unread);
    }
    return code == 1 && main->comm != NULL;
}

/* Free the communicator that was made here: other members have none. */
static int clear_main(struct ct_nccl_group *group, struct ct_error *err)
{
    struct ct_nccl_communicator *main = &group->communicators[CT_NCCL_MAIN];
    const struct ct_accel *device = main->device;
    struct ct_nccl_end how = {.nccl = group->nccl, .communicators = main, .count = 1};

    if (main->comm == NULL)
        return 0;
    if (!ct_nccl_communicators_end(group->staged.job, &how))
        return ct_error_set(err, CT_EHUNG, "NCCL does not give a communicator back");
    return ct_nccl_communicator_open(group->nccl, main, device, err);
}

/* 1: shrunk, at all members; 0: at none; negative: the host group failed. */
static int form_shrunk(const struct forming *forming, struct ct_nccl_kept *kept,
                       const struct ct_nccl_origin *origins, struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;

    CT_ASSERT(origins[0].size > 0);
    int *missing = calloc((size_t)origins[0].size, sizeof *missing);
    bool all = false;
    int code = agree(forming,
                     missing != NULL &&
                         ct_nccl_wait_idle(&group->nccl->lib, kept->communicator.comm, IDLE_MS),
                     &all, err);

    if (code == 0 && all) {
        int count = ct_nccl_kept_missing(origins, forming->setup->size, missing);

        code = agree(forming, shrink_here(group, kept, missing, count), &all, err);
    }
    free(missing);
    group->origin.tag = (origins[0].tag * 6364136223846793005u + 1442695040888963407u) | 1;
    return code != 0 ? code : all;
}

/* Shrink what was kept, if all can, and end it in any case. As form_shrunk. */
static int try_kept(const struct forming *forming, struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;
    struct ct_nccl_kept *kept = ct_nccl_kept_find(group->nccl, group->origin.name);
    struct ct_nccl_origin *origins = origins_of(forming);
    int code = 0;

    if (origins == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks",
                            forming->setup->size);
    if (ct_nccl_kept_fits(origins, forming->setup->size))
        code = form_shrunk(forming, kept, origins, err);
    free(origins);
    ct_nccl_kept_end(group->staged.job, group->nccl, kept);
    if (code == 0)
        code = clear_main(group, err);
    return code;
}

/* ---- all of it -------------------------------------------------------------------------------*/

static int form_main(const struct forming *forming, struct ct_error *err)
{
    if (all_have_split(forming))
        return use_split_off(forming, err);
    int code = forming->setup->parent == NULL ? try_kept(forming, err) : 0;
    if (code == 0)
        return form_fresh(forming, err);
    return CT_MIN(code, 0);
}

/* Two members that exchange messages cannot ask the others to make a communicator for it. */
static int form_pairs(const struct forming *forming, struct ct_error *err)
{
    struct ct_nccl_group *group = forming->group;
    struct ct_nccl_communicator *main = &group->communicators[CT_NCCL_MAIN];
    struct ct_nccl_communicator *pairs = &group->communicators[CT_NCCL_PAIRS];

    (void)pthread_mutex_lock(&group->nccl->lock);
    int code = ct_nccl_communicator_split(group->nccl, pairs, main, 0, forming->setup->rank, err);
    ct_nccl_unlock(group->nccl);
    return code == 0 ? await(forming, pairs, main, err) : code;
}

static int open_communicators(struct ct_nccl_group *group, const struct ct_setup *setup,
                              struct ct_error *err)
{
    int code = 0;

    group->opened = true;
    for (int i = 0; i < CT_NCCL_COMMS; i++) /* all, for all are ended */
        group->communicators[i].device = setup->device;
    for (int i = 0; i < CT_NCCL_KINDS && code == 0; i++)
        code = ct_nccl_communicator_open(group->nccl, &group->communicators[i], setup->device, err);
    (void)pthread_mutex_lock(&group->nccl->lock);
    ct_nccl_communicator_list(group->nccl, &group->communicators[CT_NCCL_SPLIT_OFF], setup->device);
    ct_nccl_unlock(group->nccl);
    return code;
}

int ct_nccl_group_connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                          struct ct_error *err)
{
    struct ct_nccl_group *group = state;
    const struct forming forming = {group, setup, blobs};
    int code = check_cards(setup, blobs, err);

    if (code == 0)
        code = ct_staged_connect(&group->staged, setup, err);
    if (code == 0 && ct_nccl_check_init(&group->check, group->staged.host) != 0)
        code = ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    if (code == 0)
        code = open_communicators(group, setup, err);
    if (code == 0)
        code = form_main(&forming, err);
    if (code == 0)
        code = form_pairs(&forming, err);
    group->failed = code != 0;
    return code;
}

/* ---- memory ----------------------------------------------------------------------------------*/

/* Messages gain nothing by it, and memory is registered with later communicators when they are
 * made. */
static bool uses_windows(const struct ct_nccl_group *group, int communicator)
{
    return communicator != CT_NCCL_PAIRS && communicator < CT_NCCL_KINDS &&
           group->communicators[communicator].comm != NULL;
}

int ct_nccl_group_register(void *state, void *memory, uint64_t deadline_ns, struct ct_error *err)
{
    struct ct_nccl_group *group = state;
    struct ct_nccl *nccl = group->nccl;
    int code = 0;

    if (group->registered_count == CT_NCCL_VIEWS)
        return 0;
    (void)pthread_mutex_lock(&nccl->lock);
    struct ct_nccl_memory *known = ct_nccl_memory_find(nccl, memory);
    CT_ASSERT(known != NULL);
    ct_nccl_memory_use(known);
    group->registered[group->registered_count++] = known;
    ct_nccl_unlock(nccl);
    for (int i = 0; i < CT_NCCL_COMMS && code == 0; i++)
        for (int done = 0; uses_windows(group, i) && done == 0 && code == 0;) {
            (void)pthread_mutex_lock(&nccl->lock);
            done = ct_nccl_communicator_cover(nccl, &group->communicators[i], group->registered,
                                              group->registered_count, err);
            ct_nccl_unlock(nccl);
            code = CT_MIN(done, 0);
            if (done == 0)
                code = wait_a_while(group, deadline_ns, "register memory", err);
        }
    return code;
}
