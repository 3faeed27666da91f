/* Groups at work together share what there is: none of them waits until another has nothing to do.
 * Each goes on until all have made their calls, so a group that had to wait would wait for ever:
 * counted in calls of equal size, and no thread's late start matters. */
#include "base/assert.h"
#include "rig.h"
#include "thread_ranks.h"

#include <pthread.h>
#include <stdatomic.h>

TestSuite(fair, .timeout = 60);

enum { WORLD = 2, GROUPS = 2, COUNT = 64 << 10, CALLS = 60, MOST = 200 * CALLS };

struct scene {
    _Atomic int unfinished; /* groups that have not made their calls yet */
    int calls[GROUPS];      /* of rank 0 */
};

struct part {
    struct scene *scene;
    struct ct_group *group;
    int index, line;
    float data[COUNT];
};

/* Until all groups are through, or hope is gone; rank 0's first element tells the other members. */
static void *work(void *argument)
{
    struct part *part = argument;
    bool first = ct_group_rank(part->group) == 0, over;
    int calls = 0;

    do {
        if (first && calls == CALLS)
            atomic_fetch_sub(&part->scene->unfinished, 1);
        over = first && (atomic_load(&part->scene->unfinished) == 0 || calls == MOST);
        part->data[0] = over ? 1.0f : 0.0f;
        if (ct_all_reduce(part->group, ct_inplace(part->data, COUNT, CT_F32), CT_REDUCE_SUM,
                          NULL) != 0)
            part->line = __LINE__;
        calls++;
    } while (part->line == 0 && part->data[0] == 0.0f);
    if (first)
        part->scene->calls[part->index] = calls;
    return NULL;
}

static int work_on_both(struct ct_job *job, void *context)
{
    struct part parts[GROUPS];
    pthread_t threads[GROUPS];
    struct ct_error err;
    int line = 0;

    for (int i = 0; i < GROUPS; i++) {
        struct ct_group_options options = {.name = i == 0 ? "a" : "b", .backend = "tcp"};

        parts[i] = (struct part){.scene = context, .index = i};
        if (ct_group_new(job, &options, &parts[i].group, &err) != 0)
            return __LINE__;
    }
    for (int i = 0; i < GROUPS; i++)
        if (pthread_create(&threads[i], NULL, work, &parts[i]) != 0)
            return __LINE__;
    for (int i = 0; i < GROUPS; i++) {
        (void)pthread_join(threads[i], NULL);
        line = line != 0 ? line : parts[i].line;
        ct_group_free(parts[i].group);
    }
    return line;
}

Test(fair, two_groups_on_one_network_both_get_on)
{
    static struct scene scene = {.unfinished = GROUPS};
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(WORLD, &world), 0);
    cr_assert_eq(thread_ranks_run(world, work_on_both, &scene), 0);
    ct_thread_world_free(world);
    for (int i = 0; i < GROUPS; i++)
        cr_assert_geq(scene.calls[i], CALLS, "group %d: %d calls, the other %d", i, scene.calls[i],
                      scene.calls[1 - i]);
}
