/* Members that call different things: each of them ends, in bounded time, with CT_EMISMATCH and a
 * sentence that names both sides, on each backend; none gets data. */
#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(mismatch, .timeout = 120);

enum { WORLD = 3, COUNT = 600, BOUND_MS = 2000 };

/* A call as all make it, or, `wrong`, as one rank does. `data` has WORLD * COUNT elements. */
typedef int (*caller)(struct ct_group *group, bool wrong, float *data);

static struct ct_data of(float *data, bool wrong)
{
    return ct_inplace(data, wrong ? COUNT - 1 : COUNT, CT_F32);
}

static int count_of_all_reduce(struct ct_group *group, bool wrong, float *data)
{
    return ct_all_reduce(group, of(data, wrong), CT_REDUCE_SUM, NULL);
}

static int type_of_all_reduce(struct ct_group *group, bool wrong, float *data)
{
    struct ct_data what = ct_inplace(data, COUNT, wrong ? CT_I32 : CT_F32);

    return ct_all_reduce(group, what, CT_REDUCE_SUM, NULL);
}

static int operation_of_all_reduce(struct ct_group *group, bool wrong, float *data)
{
    return ct_all_reduce(group, of(data, false), wrong ? CT_REDUCE_MAX : CT_REDUCE_SUM, NULL);
}

static int tag_of_barrier(struct ct_group *group, bool wrong, float *data)
{
    struct ct_options options = {.tag = wrong ? 9 : 8};

    (void)data;
    return ct_barrier(group, &options);
}

static int another_operation(struct ct_group *group, bool wrong, float *data)
{
    return wrong ? ct_all_gather(group, ct_inplace(data, COUNT / WORLD, CT_F32), NULL)
                 : ct_all_reduce(group, of(data, false), CT_REDUCE_SUM, NULL);
}

static int root_of_broadcast(struct ct_group *group, bool wrong, float *data)
{
    return ct_broadcast(group, of(data, false), wrong ? 1 : 0, NULL);
}

/* None waits for another, so none can tell before the next call. */
static int own_root_of_broadcast(struct ct_group *group, bool wrong, float *data)
{
    (void)wrong;
    return ct_broadcast(group, of(data, false), ct_group_rank(group), NULL);
}

static int own_root_of_scatter(struct ct_group *group, bool wrong, float *data)
{
    (void)wrong;
    return ct_scatter(group, ct_inplace(data, 1, CT_F32), ct_group_rank(group), NULL);
}

static int root_of_gather(struct ct_group *group, bool wrong, float *data)
{
    return ct_gather(group, of(data, false), wrong ? 1 : 0, NULL);
}

static int count_of_scatter(struct ct_group *group, bool wrong, float *data)
{
    return ct_scatter(group, of(data, wrong), 0, NULL);
}

static int count_of_reduce(struct ct_group *group, bool wrong, float *data)
{
    return ct_reduce(group, of(data, wrong), CT_REDUCE_MAX, 0, NULL);
}

static int count_of_reduce_scatter(struct ct_group *group, bool wrong, float *data)
{
    return ct_reduce_scatter(group, of(data, wrong), CT_REDUCE_SUM, NULL);
}

static int count_of_all_to_all(struct ct_group *group, bool wrong, float *data)
{
    return ct_all_to_all(group, of(data, wrong), NULL);
}

static int parts_of_all_gather_v(struct ct_group *group, bool wrong, float *data)
{
    size_t counts[WORLD] = {5, 6, wrong ? 8 : 7}, offsets[WORLD] = {0, 10, 20};
    struct ct_parts parts = {counts, offsets};
    struct ct_data what = ct_inplace(data, counts[ct_group_rank(group)], CT_F32);

    return ct_all_gather_v(group, what, parts, NULL);
}

static int parts_of_all_to_all_v(struct ct_group *group, bool wrong, float *data)
{
    size_t out[WORLD] = {wrong ? 4 : 5, 5, 5}, in[WORLD] = {5, 5, 5}, offsets[WORLD] = {0, 10, 20};
    struct ct_data what = ct_from_to(data, data + COUNT, 0, CT_F32);

    return ct_all_to_all_v(group, what, (struct ct_parts){out, offsets},
                           (struct ct_parts){in, offsets}, NULL);
}

static int order_of_handles(struct ct_group *group, bool wrong, float *data)
{
    struct ct_request *first = NULL, *second = NULL;
    int code = wrong ? ct_barrier_start(group, NULL, &first)
                     : ct_all_reduce_start(group, of(data, false), CT_REDUCE_SUM, NULL, &first);

    if (code == 0)
        code = wrong ? ct_all_reduce_start(group, of(data, false), CT_REDUCE_SUM, NULL, &second)
                     : ct_barrier_start(group, NULL, &second);
    if (code == 0)
        code = ct_wait(first);
    return second != NULL && ct_wait(second) != 0 && code == 0 ? CT_EMISMATCH : code;
}

/* The last rank sends to rank 0, which wants something else. */
static int type_of_message(struct ct_group *group, bool wrong, float *data)
{
    struct ct_data what = ct_inplace(data, COUNT, wrong ? CT_I32 : CT_F32);

    if (wrong)
        return ct_send(group, what, 0, NULL);
    return ct_group_rank(group) == 0 ? ct_recv(group, what, WORLD - 1, NULL) : 0;
}

static int count_in_exchange(struct ct_group *group, bool wrong, float *data)
{
    int rank = ct_group_rank(group), next = (rank + 1) % WORLD, last = (rank + WORLD - 1) % WORLD;
    struct ct_transfer both[] = {ct_transfer_to(next, data, wrong ? COUNT - 1 : COUNT, CT_F32),
                                 ct_transfer_from(last, data + COUNT, COUNT, CT_F32)};

    return ct_exchange(group, both, 2, NULL);
}

static const struct {
    const char *name;
    caller call;
} rows[] = {
    {"count of all_reduce", count_of_all_reduce},
    {"type of all_reduce", type_of_all_reduce},
    {"operation of all_reduce", operation_of_all_reduce},
    {"tag of barrier", tag_of_barrier},
    {"another operation", another_operation},
    {"root of broadcast", root_of_broadcast},
    {"every member its own root of broadcast", own_root_of_broadcast},
    {"every member its own root of scatter", own_root_of_scatter},
    {"root of gather", root_of_gather},
    {"count of scatter", count_of_scatter},
    {"count of reduce", count_of_reduce},
    {"count of reduce_scatter", count_of_reduce_scatter},
    {"count of all_to_all", count_of_all_to_all},
    {"parts of all_gather_v", parts_of_all_gather_v},
    {"parts of all_to_all_v", parts_of_all_to_all_v},
    {"order of handles", order_of_handles},
    {"type of message", type_of_message},
    {"count in exchange", count_in_exchange},
};
enum { ROWS = CT_COUNT(rows), CASES = 3 * ROWS };

struct scene {
    caller call;
    pthread_barrier_t left;
    int codes[WORLD];
    char texts[WORLD][1024];
    uint64_t took_ms[WORLD];
};

/* The call and, for who was through with it before anybody could tell, one that needs all. */
static int disagree(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    int rank = ct_group_rank(group);
    float *data = calloc((size_t)WORLD * COUNT * 2, sizeof *data);
    uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

    CT_ASSERT(data != NULL);
    int code = scene->call(group, rank == WORLD - 1, data);
    scene->codes[rank] = code != 0 ? code : ct_barrier(group, NULL);
    scene->took_ms[rank] = ct_clock_mono_ms(&ct_clock_system) - start_ms;
    memcpy(scene->texts[rank], ct_group_failure(group)->text, sizeof scene->texts[rank]);
    (void)pthread_barrier_wait(&scene->left);
    free(data);
    return 0;
}

static int indices[CASES];

ParameterizedTestParameters(mismatch, every_member_is_told_what_both_sides_called)
{
    for (int i = 0; i < CASES; i++)
        indices[i] = i;
    return cr_make_param_array(int, indices, CASES);
}
ParameterizedTest(int *index, mismatch, every_member_is_told_what_both_sides_called)
{
    struct scene scene = {.call = rows[*index % ROWS].call};
    struct rig rig = {.backend = rig_backends[*index / ROWS], .world = WORLD, .shared = &scene};

    cr_assert_eq(pthread_barrier_init(&scene.left, NULL, WORLD), 0);
    cr_assert_eq(rig_run(&rig, disagree), 0);
    for (int rank = 0; rank < WORLD; rank++) {
        cr_assert_eq(scene.codes[rank], CT_EMISMATCH, "%s, %s, rank %d: %s: %s", rig.backend,
                     rows[*index % ROWS].name, rank, ct_error_name(scene.codes[rank]),
                     scene.texts[rank]);
        cr_assert_not_null(strstr(scene.texts[rank], " called "), "%s, %s, rank %d: %s",
                           rig.backend, rows[*index % ROWS].name, rank, scene.texts[rank]);
        cr_assert_leq(scene.took_ms[rank], BOUND_MS, "%s, %s: %d ms", rig.backend,
                      rows[*index % ROWS].name, (int)scene.took_ms[rank]);
    }
}
