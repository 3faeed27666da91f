/* See helper.h. */
#include "group/helper.h"

#include "group/group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POLLS = 20, SLICE_NS = 10000000 };

/* ---- the futex word --------------------------------------------------------------------------*/

static void sleep_while_owner(_Atomic uint32_t *owner, uint32_t value)
{
    (void)syscall(SYS_futex, owner, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *owner)
{
    (void)syscall(SYS_futex, owner, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool move(_Atomic uint32_t *owner, enum ct_helper_owner from, enum ct_helper_owner to)
{
    uint32_t expected = from;

    return atomic_compare_exchange_strong(owner, &expected, to);
}

/* ---- the helper ------------------------------------------------------------------------------*/

static bool owns(const struct ct_helper *helper)
{
    return atomic_load(&helper->owner) == CT_HELPER_OWNS;
}

/* Advance, parked at times, until no request is open or the group is recalled. A recall between
 * arming and parking triggers a wakeup that has been armed. */
static void run(struct ct_group *group)
{
    const struct ct_backend *backend = group->backend;

    while (owns(&group->helper) && group->queued > 0) {
        uint64_t moves = group->moves;

        for (int i = 0; i < POLLS && group->moves == moves && group->queued > 0; i++)
            ct_group_advance(group);
        if (group->moves != moves || group->queued == 0)
            continue;
        uint32_t armed = backend->arm(group->state);
        ct_group_advance(group);
        bool idle = owns(&group->helper) && group->moves == moves && group->queued > 0;
        backend->park(group->state, armed, idle ? SLICE_NS : 0);
    }
}

static void *helper_main(void *argument)
{
    struct ct_group *group = argument;
    _Atomic uint32_t *owner = &group->helper.owner;

    while (atomic_load(owner) != CT_HELPER_ENDED) {
        if (!move(owner, CT_HELPER_OFFERED, CT_HELPER_OWNS)) {
            sleep_while_owner(owner, CT_HELPER_NONE);
            continue;
        }
        run(group);
        if (atomic_exchange(owner, CT_HELPER_NONE) == CT_HELPER_RECALLED)
            wake(owner);
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static bool create(struct ct_group *group)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool created = pthread_create(&group->helper.thread, NULL, helper_main, group) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return created;
}

/* ---- the group's thread ----------------------------------------------------------------------*/

void ct_helper_acquire(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    while (helper->created && atomic_load(&helper->owner) != CT_HELPER_NONE) {
        if (move(&helper->owner, CT_HELPER_OFFERED, CT_HELPER_NONE))
            return;
        if (move(&helper->owner, CT_HELPER_OWNS, CT_HELPER_RECALLED))
            group->backend->wake(group->state);
        sleep_while_owner(&helper->owner, CT_HELPER_RECALLED);
    }
}

void ct_helper_release(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    if (group->queued == 0 || helper->disabled)
        return;
    if (!helper->created) {
        helper->created = create(group);
        helper->disabled = !helper->created;
    }
    if (!helper->created)
        return;
    atomic_store(&helper->owner, CT_HELPER_OFFERED);
    wake(&helper->owner);
}

bool ct_helper_is_busy(const struct ct_group *group)
{
    return group->helper.created && atomic_load(&group->helper.owner) == CT_HELPER_OWNS;
}

void ct_helper_end(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    if (!helper->created)
        return;
    ct_helper_acquire(group);
    atomic_store(&helper->owner, CT_HELPER_ENDED);
    wake(&helper->owner);
    (void)pthread_join(helper->thread, NULL);
    helper->created = false;
}
