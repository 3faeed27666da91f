/* See helper.h. */
#include "group/helper.h"

#include "group/group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOKS = 20, SLICE_NS = 10000000 };

/* ---- the word --------------------------------------------------------------------------------*/

static void sleep_while(_Atomic uint32_t *turn, uint32_t value)
{
    (void)syscall(SYS_futex, turn, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *turn)
{
    (void)syscall(SYS_futex, turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool move(_Atomic uint32_t *turn, enum ct_helper_turn from, enum ct_helper_turn to)
{
    uint32_t expected = from;

    return atomic_compare_exchange_strong(turn, &expected, to);
}

/* ---- the helper ------------------------------------------------------------------------------*/

static bool keeps(const struct ct_helper *helper)
{
    return atomic_load(&helper->turn) == CT_HELPER_HAS;
}

/* Advance, now and then asleep, until nothing is open or the group is asked for. What is asked for
 * between arming and parking rings a bell that has been armed. */
static void help(struct ct_group *group)
{
    const struct ct_backend *backend = group->backend;

    while (keeps(&group->helper) && group->queued > 0) {
        uint64_t moves = group->moves;

        for (int i = 0; i < LOOKS && group->moves == moves && group->queued > 0; i++)
            ct_group_advance(group);
        if (group->moves != moves || group->queued == 0)
            continue;
        uint32_t armed = backend->arm(group->state);
        ct_group_advance(group);
        bool idle = keeps(&group->helper) && group->moves == moves && group->queued > 0;
        backend->park(group->state, armed, idle ? SLICE_NS : 0);
    }
}

static void *helper_main(void *argument)
{
    struct ct_group *group = argument;
    _Atomic uint32_t *turn = &group->helper.turn;

    while (atomic_load(turn) != CT_HELPER_ENDS) {
        if (!move(turn, CT_HELPER_OFFERED, CT_HELPER_HAS)) {
            sleep_while(turn, CT_HELPER_NONE);
            continue;
        }
        help(group);
        if (atomic_exchange(turn, CT_HELPER_NONE) == CT_HELPER_ASKED)
            wake(turn);
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static bool make(struct ct_group *group)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&group->helper.thread, NULL, helper_main, group) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

/* ---- the group's thread ----------------------------------------------------------------------*/

void ct_helper_take(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    while (helper->made && atomic_load(&helper->turn) != CT_HELPER_NONE) {
        if (move(&helper->turn, CT_HELPER_OFFERED, CT_HELPER_NONE))
            return;
        if (move(&helper->turn, CT_HELPER_HAS, CT_HELPER_ASKED))
            group->backend->wake(group->state);
        sleep_while(&helper->turn, CT_HELPER_ASKED);
    }
}

void ct_helper_offer(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    if (group->queued == 0 || helper->refused)
        return;
    if (!helper->made) {
        helper->made = make(group);
        helper->refused = !helper->made;
    }
    if (!helper->made)
        return;
    atomic_store(&helper->turn, CT_HELPER_OFFERED);
    wake(&helper->turn);
}

bool ct_helper_works(const struct ct_group *group)
{
    return group->helper.made && atomic_load(&group->helper.turn) == CT_HELPER_HAS;
}

void ct_helper_end(struct ct_group *group)
{
    struct ct_helper *helper = &group->helper;

    if (!helper->made)
        return;
    ct_helper_take(group);
    atomic_store(&helper->turn, CT_HELPER_ENDS);
    wake(&helper->turn);
    (void)pthread_join(helper->thread, NULL);
    helper->made = false;
}
