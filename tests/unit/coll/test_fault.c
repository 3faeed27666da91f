/* What happens when a member is late, gone, revoked or does something else: every call ends with
 * its code, none hangs, and the group stays broken.
 *
 * The last rank is the culprit; the others make one call that needs it. */
#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

TestSuite(fault, .timeout = 60);

enum { COUNT = 5000, LONG = 24 << 20, WORLD = 3, OPS = 9, CASES = RIG_BACKENDS * OPS };

struct scene {
    int op;
    _Atomic int entered;    /* ranks that are about to call */
    pthread_barrier_t left; /* all have seen how their call ended */
    int codes[WORLD];
    int later_codes[WORLD];
    char texts[WORLD][1024];
    uint64_t elapsed_ms[WORLD];
};

static void scene_init(struct scene *scene, int op)
{
    *scene = (struct scene){.op = op};
    cr_assert_eq(pthread_barrier_init(&scene->left, NULL, WORLD), 0);
}

/* Operation `op` as a rank that is not the culprit makes it: it cannot end without the culprit. */
static int call(struct ct_group *group, int op, char *buffer)
{
    struct ct_data data = ct_inplace(buffer, COUNT, CT_F32);
    int culprit = WORLD - 1;

    switch (op) {
    case 0:
        return ct_all_reduce(group, data, CT_REDUCE_SUM, NULL);
    case 1:
        return ct_broadcast(group, data, culprit, NULL);
    case 2:
        return ct_all_gather(group, data, NULL);
    case 3:
        return ct_reduce_scatter(group, data, CT_REDUCE_SUM, NULL);
    case 4:
        return ct_barrier(group, NULL);
    case 5:
        return ct_recv(group, data, culprit, NULL);
    case 7:
        return ct_scatter(group, data, culprit, NULL);
    case 8:
        return ct_all_to_all(group, data, NULL);
    default: /* more than any buffer on the way takes */
        return ct_send(group, ct_inplace(buffer, LONG, CT_U8), culprit, NULL);
    }
}

static void make_call(struct ct_group *group, struct scene *scene)
{
    int rank = ct_group_rank(group);
    char *buffer = calloc(1, LONG);

    CT_ASSERT(buffer != NULL);
    atomic_fetch_add(&scene->entered, 1);
    uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);
    scene->codes[rank] = call(group, scene->op, buffer);
    scene->elapsed_ms[rank] = ct_clock_mono_ms(&ct_clock_system) - start_ms;
    scene->later_codes[rank] = ct_barrier(group, NULL);
    memcpy(scene->texts[rank], ct_group_failure(group)->text, sizeof scene->texts[rank]);
    free(buffer);
}

static void await_others(const struct scene *scene)
{
    while (atomic_load(&scene->entered) < WORLD - 1)
        (void)sched_yield();
}

static bool is_culprit(const struct ct_group *group)
{
    return ct_group_rank(group) == WORLD - 1;
}

static void expect(const struct scene *scene, int code, const char *word)
{
    for (int rank = 0; rank < WORLD - 1; rank++) {
        cr_assert_eq(scene->codes[rank], code, "op %d, rank %d: %s: %s", scene->op, rank,
                     ct_error_name(scene->codes[rank]), scene->texts[rank]);
        cr_assert_eq(scene->later_codes[rank], code);
        cr_assert_not_null(strstr(scene->texts[rank], word), "%s", scene->texts[rank]);
    }
}

static int indices[CASES];

static struct criterion_test_params all_cases(void)
{
    for (int i = 0; i < CASES; i++)
        indices[i] = i;
    return cr_make_param_array(int, indices, (size_t)(rig_backend_count() * OPS));
}

static struct rig rig_of(int index, struct scene *scene)
{
    scene_init(scene, index % OPS);
    return (struct rig){.backend = rig_backends[index / OPS], .world = WORLD, .shared = scene};
}

/* ---- revocation ------------------------------------------------------------------------------*/

static int revoke_the_round(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;

    if (is_culprit(group)) {
        await_others(scene);
        ct_thread_world_revoke(rig->threads);
    } else {
        make_call(group, scene);
    }
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

ParameterizedTestParameters(fault, a_revoked_round_ends_every_operation)
{
    return all_cases();
}
ParameterizedTest(int *index, fault, a_revoked_round_ends_every_operation)
{
    struct scene scene;
    struct rig rig = rig_of(*index, &scene);

    cr_assert_eq(rig_run(&rig, revoke_the_round), 0);
    expect(&scene, CT_EREVOKED, "revoked");
}

static void *revoke_group(void *group)
{
    ct_group_revoke(group);
    return NULL;
}

/* Each rank's own group, by a thread that takes no part in it. */
static int revoke_own_group(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    pthread_t thread;

    if (!is_culprit(group)) {
        if (pthread_create(&thread, NULL, revoke_group, group) != 0)
            return __LINE__;
        make_call(group, scene);
        (void)pthread_join(thread, NULL);
    }
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

ParameterizedTestParameters(fault, another_thread_can_revoke_a_group)
{
    static int backends[] = {0, OPS, 2 * OPS};

    return cr_make_param_array(int, backends, 3);
}
ParameterizedTest(int *index, fault, another_thread_can_revoke_a_group)
{
    struct scene scene;
    struct rig rig = rig_of(*index, &scene);

    cr_assert_eq(rig_run(&rig, revoke_own_group), 0);
    for (int rank = 0; rank < WORLD - 1; rank++)
        cr_assert(scene.codes[rank] == CT_EREVOKED ||
                      (rig.backend == rig_backends[2] && scene.codes[rank] == CT_ECLOSED),
                  "%s", scene.texts[rank]);
}

/* ---- timeout ---------------------------------------------------------------------------------*/

static int let_others_wait(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;

    if (!is_culprit(group))
        make_call(group, scene);
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

/* The first to run out of time tells the others, so one code may travel to the rest. */
ParameterizedTestParameters(fault, a_missing_rank_is_a_timeout)
{
    return all_cases();
}
ParameterizedTest(int *index, fault, a_missing_rank_is_a_timeout)
{
    struct scene scene;
    struct rig rig = rig_of(*index, &scene);
    int named = 0;

    rig.timeout_ms = 50;
    cr_assert_eq(rig_run(&rig, let_others_wait), 0);
    for (int rank = 0; rank < WORLD - 1; rank++) {
        cr_assert(scene.codes[rank] == CT_ETIMEOUT || scene.codes[rank] == CT_ECLOSED, "%s",
                  scene.texts[rank]);
        cr_assert_eq(scene.later_codes[rank], scene.codes[rank]);
        if (strstr(scene.texts[rank], "no sign of rank") == NULL)
            continue;
        cr_assert_geq(scene.elapsed_ms[rank], 49);
        named++;
    }
    cr_assert_geq(named, 1);
}

static int test_until_over(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    struct ct_options options = {.timeout_ms = 30};
    struct ct_request *request;
    int code = 0;

    if (!is_culprit(group)) {
        if (ct_barrier_start(group, &options, &request) != 0)
            return __LINE__;
        while (code == 0)
            code = ct_test(request);
        scene->codes[ct_group_rank(group)] = code;
    }
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

Test(fault, who_only_tests_runs_into_the_timeout_too)
{
    struct scene scene;
    struct rig rig = rig_of(0, &scene);

    cr_assert_eq(rig_run(&rig, test_until_over), 0);
    for (int rank = 0; rank < WORLD - 1; rank++)
        cr_assert_eq(scene.codes[rank], CT_ETIMEOUT);
}

/* ---- a member that leaves --------------------------------------------------------------------*/

static int leave_at_once(struct ct_group *group, struct rig *rig)
{
    if (!is_culprit(group))
        make_call(group, rig->shared);
    return 0;
}

ParameterizedTestParameters(fault, a_member_that_leaves_ends_the_others)
{
    return all_cases();
}
ParameterizedTest(int *index, fault, a_member_that_leaves_ends_the_others)
{
    struct scene scene;
    struct rig rig = rig_of(*index, &scene);

    cr_assert_eq(rig_run(&rig, leave_at_once), 0);
    expect(&scene, CT_ECLOSED, "rank ");
}

/* The last messages of a member that has left are still there for the others. */
static int send_and_leave(struct ct_group *group, struct rig *rig)
{
    int rank = ct_group_rank(group), value = 7 + rank;
    struct ct_data data = ct_inplace(&value, 1, CT_I32);

    (void)rig;
    if (is_culprit(group))
        return ct_send(group, data, 0, NULL) == 0 ? 0 : __LINE__;
    if (rank == 0 && (ct_recv(group, data, WORLD - 1, NULL) != 0 || value != 7 + WORLD - 1))
        return __LINE__;
    return 0;
}

Test(fault, what_was_sent_before_leaving_arrives)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct rig rig = {.backend = rig_backends[i], .world = WORLD};

        cr_assert_eq(rig_run(&rig, send_and_leave), 0);
    }
}

/* ---- members that disagree -------------------------------------------------------------------*/

enum { DIFFERENCES = 9 };

/* What all call, but for the culprit, who differs in one thing. */
static int call_differently(struct ct_group *group, int difference, bool culprit, float *buffer)
{
    struct ct_options options = {.tag = culprit && difference == 3 ? 9 : 8};
    struct ct_data data = ct_inplace(buffer, COUNT, CT_F32);
    enum ct_reduce reduce = CT_REDUCE_SUM;

    if (!culprit)
        return difference >= 7 ? ct_broadcast(group, data, 0, &options)
                               : ct_all_reduce(group, data, reduce, &options);
    switch (difference) {
    case 0:
        data.count--;
        break;
    case 1:
        data.dtype = CT_I32;
        break;
    case 2:
        reduce = CT_REDUCE_MAX;
        break;
    case 4:
        options.mode = CT_MODE_INVARIANT;
        break;
    case 5:
        return ct_barrier(group, &options);
    case 6:
        return ct_all_gather(group, ct_inplace(buffer, COUNT / WORLD, CT_F32), &options);
    case 7:
        return ct_broadcast(group, data, 1, &options);
    case 8:
        return ct_all_reduce(group, data, reduce, &options);
    default:
        break;
    }
    return ct_all_reduce(group, data, reduce, &options);
}

static int disagree(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    int rank = ct_group_rank(group);
    float *buffer = calloc(COUNT, sizeof *buffer);

    CT_ASSERT(buffer != NULL);
    scene->codes[rank] = call_differently(group, scene->op, is_culprit(group), buffer);
    scene->later_codes[rank] = ct_barrier(group, NULL);
    memcpy(scene->texts[rank], ct_group_failure(group)->text, sizeof scene->texts[rank]);
    (void)pthread_barrier_wait(&scene->left);
    free(buffer);
    return 0;
}

/* A root may be through with its broadcast before anybody can tell; the next call shows it. */
static void check_disagreement(const struct scene *scene, const char *backend)
{
    int found = 0;

    for (int rank = 0; rank < WORLD; rank++) {
        cr_assert(scene->later_codes[rank] == CT_EMISMATCH ||
                      scene->later_codes[rank] == CT_ECLOSED,
                  "%s, difference %d, rank %d: %s %s", backend, scene->op, rank,
                  ct_error_name(scene->later_codes[rank]), scene->texts[rank]);
        found += scene->later_codes[rank] == CT_EMISMATCH &&
                 strstr(scene->texts[rank], "called") != NULL;
    }
    cr_assert_geq(found, 1, "%s, difference %d: nobody names it", backend, scene->op);
}

Test(fault, members_that_call_different_things_are_told)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        for (int difference = 0; difference < DIFFERENCES; difference++) {
            struct scene scene;
            struct rig rig = {.backend = rig_backends[i], .world = WORLD, .shared = &scene};

            scene_init(&scene, difference);
            cr_assert_eq(rig_run(&rig, disagree), 0);
            check_disagreement(&scene, rig_backends[i]);
        }
}

/* The culprit only listens in its call, so it alone can see the difference; it says so before it
 * hangs up. */
static int differ_from_a_listener(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    float buffer[COUNT] = {0};
    struct ct_data data = ct_inplace(buffer, COUNT, CT_F32);
    int rank = ct_group_rank(group);

    if (rank == 1)
        scene->codes[1] = ct_broadcast(group, data, 0, NULL);
    if (rank == 0)
        scene->codes[0] = ct_all_reduce(group, data, CT_REDUCE_SUM, NULL);
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

Test(fault, who_sees_a_difference_alone_tells_the_others)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct scene scene;
        struct rig rig = {.backend = rig_backends[i], .world = WORLD, .shared = &scene};

        scene_init(&scene, 0);
        cr_assert_eq(rig_run(&rig, differ_from_a_listener), 0);
        cr_assert_eq(scene.codes[0], CT_EMISMATCH, "%s", rig_backends[i]);
        cr_assert_eq(scene.codes[1], CT_EMISMATCH, "%s", rig_backends[i]);
    }
}

static int send_another_size(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    int rank = ct_group_rank(group);
    float buffer[COUNT] = {0};
    struct ct_options options = {.tag = scene->op == 1 && rank == 1 ? 5 : 0};
    struct ct_data data = ct_inplace(buffer, scene->op == 0 && rank == 1 ? 10 : COUNT, CT_F32);

    if (rank == 0)
        scene->codes[0] = ct_recv(group, data, 1, &options);
    if (rank == 1)
        (void)ct_send(group, data, 0, &options);
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

Test(fault, a_message_of_another_size_or_tag_is_refused)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        for (int difference = 0; difference < 2; difference++) {
            struct scene scene;
            struct rig rig = {.backend = rig_backends[i], .world = WORLD, .shared = &scene};

            scene_init(&scene, difference);
            cr_assert_eq(rig_run(&rig, send_another_size), 0);
            cr_assert_eq(scene.codes[0], CT_EMISMATCH, "%s", rig_backends[i]);
        }
}
