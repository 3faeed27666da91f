/* See odd_rank.h. */
#include "diagnose/odd_rank.h"

#include "base/assert.h"

#include <string.h>

/* ---- who ------------------------------------------------------------------------------------ */

static bool is_in_call(const struct ct_hung_rank *rank)
{
    return rank->place.known && rank->place.call[0] != '\0';
}

/* The first in this state, by rank; `count` without any. */
static size_t find_state(const struct ct_hung_rank *ranks, size_t count, char state)
{
    size_t found = count;

    for (size_t i = 0; i < count; i++)
        if (ranks[i].state == state && (found == count || ranks[i].rank < ranks[found].rank))
            found = i;
    return found;
}

/* How many ranks are where this one is? */
static size_t count_equal(const struct ct_hung_rank *ranks, size_t count, size_t index)
{
    size_t equal = 0;

    for (size_t i = 0; i < count; i++)
        equal += ct_python_place_equal(&ranks[i].place, &ranks[index].place);
    return equal;
}

/* Is `a` a likelier culprit than `b`? One whose stack is known, which works while others sleep, at
 * a place where fewer are. */
static bool is_odder(const struct ct_hung_rank *ranks, size_t count, size_t a, size_t b)
{
    size_t with_a = count_equal(ranks, count, a), with_b = count_equal(ranks, count, b);

    if (ranks[a].place.known != ranks[b].place.known)
        return ranks[a].place.known;
    if (with_a != with_b)
        return with_a < with_b;
    if (ranks[a].works != ranks[b].works)
        return ranks[a].works;
    return ranks[a].rank < ranks[b].rank;
}

/* The likeliest of those that are in no collective; `count` without any. */
static size_t find_outside(const struct ct_hung_rank *ranks, size_t count)
{
    size_t found = count;

    for (size_t i = 0; i < count; i++)
        if (!is_in_call(&ranks[i]) && (found == count || is_odder(ranks, count, i, found)))
            found = i;
    return found;
}

/* Is a group of `count_a` ranks at the place of `a` a better comparison than that of `b`? One in a
 * collective is, then a larger one. */
static bool is_better(const struct ct_hung_rank *a, size_t count_a, const struct ct_hung_rank *b,
                      size_t count_b)
{
    if (is_in_call(a) != is_in_call(b))
        return is_in_call(a);
    return count_a > count_b;
}

/* The best group of ranks at one place to compare the culprit with. */
static void compare(const struct ct_hung_rank *ranks, size_t count, struct ct_odd *odd)
{
    odd->other = odd->culprit;
    odd->others = 0;
    for (size_t i = 0; i < count; i++) {
        size_t equal = count_equal(ranks, count, i);

        if (ct_python_place_equal(&ranks[i].place, &ranks[odd->culprit].place))
            continue;
        if (odd->others > 0 && !is_better(&ranks[i], equal, &ranks[odd->other], odd->others))
            continue;
        odd->other = i;
        odd->others = equal;
    }
}

/* How many collectives of the group a rank has called; false: it knows no group of this name. */
static bool calls_of(const struct ct_hung_rank *rank, const char *group, uint64_t *ret_calls)
{
    for (size_t i = 0; i < rank->flight.group_count; i++)
        if (strcmp(rank->flight.groups[i].name, group) == 0) {
            *ret_calls = rank->flight.groups[i].calls;
            return true;
        }
    return false;
}

/* Has another rank called more collectives of this rank's group? Then the most of any. */
static bool is_behind(const struct ct_hung_rank *ranks, size_t count, size_t index, size_t group,
                      uint64_t *ret_most)
{
    const struct ct_torch_group *own = &ranks[index].flight.groups[group];
    uint64_t calls;

    *ret_most = own->calls;
    for (size_t i = 0; i < count; i++)
        if (calls_of(&ranks[i], own->name, &calls) && calls > *ret_most)
            *ret_most = calls;
    return *ret_most > own->calls;
}

/* The rank that is behind by most, then the lowest one. */
static bool find_behind(const struct ct_hung_rank *ranks, size_t count, struct ct_odd *odd)
{
    uint64_t worst = 0, most;

    for (size_t i = 0; i < count; i++)
        for (size_t group = 0; group < ranks[i].flight.group_count; group++) {
            if (!is_behind(ranks, count, i, group, &most))
                continue;
            uint64_t missing = most - ranks[i].flight.groups[group].calls;
            if (missing < worst || (missing == worst && ranks[i].rank >= ranks[odd->culprit].rank))
                continue;
            worst = missing;
            *odd =
                (struct ct_odd){.kind = CT_ODD_BEHIND, .culprit = i, .group = group, .calls = most};
        }
    return worst > 0;
}

static void find_by_place(const struct ct_hung_rank *ranks, size_t count, struct ct_odd *odd)
{
    size_t known = 0, in_call = 0, odder = 0;

    for (size_t i = 0; i < count; i++) {
        known += ranks[i].place.known;
        in_call += is_in_call(&ranks[i]);
        odder = is_odder(ranks, count, i, odder) ? i : odder;
    }
    odd->culprit = odder;
    if (known == 0)
        odd->kind = CT_ODD_UNKNOWN;
    else if (count == 1)
        odd->kind = CT_ODD_ALONE;
    else if (in_call > 0 && in_call < count)
        odd->kind = CT_ODD_OUTSIDE;
    else if (count_equal(ranks, count, 0) == count)
        odd->kind = CT_ODD_SAME;
    else
        odd->kind =
            count_equal(ranks, count, odder) * 2 == count ? CT_ODD_DIFFER : CT_ODD_ELSEWHERE;
    if (odd->kind == CT_ODD_OUTSIDE)
        odd->culprit = find_outside(ranks, count);
}

void ct_odd_find(const struct ct_hung_rank *ranks, size_t count, struct ct_odd *ret_odd)
{
    size_t stopped = find_state(ranks, count, 'T'), disk = find_state(ranks, count, 'D');

    CT_ASSERT(count > 0);
    *ret_odd = (struct ct_odd){.kind = CT_ODD_STOPPED, .culprit = stopped};
    if (stopped == count && disk < count)
        *ret_odd = (struct ct_odd){.kind = CT_ODD_DISK, .culprit = disk};
    else if (stopped == count && !find_behind(ranks, count, ret_odd))
        find_by_place(ranks, count, ret_odd);
    compare(ranks, count, ret_odd);
}

/* ---- words ---------------------------------------------------------------------------------- */

/* " in all_reduce at /home/me/train.py:40 (main)" */
static void print_place(const struct ct_python_place *place, struct ct_buf *to)
{
    if (!place->known)
        return;
    if (place->call[0] != '\0')
        (void)ct_buf_printf(to, " in %s", place->call);
    (void)ct_buf_printf(to, " at %s:%u (%s)", place->file, place->line, place->function);
}

/* "; it has called 40 collectives of group default_pg (0), others 41" */
static void print_calls(const struct ct_odd *odd, const struct ct_hung_rank *culprit,
                        struct ct_buf *to)
{
    const struct ct_torch_group *group = &culprit->flight.groups[odd->group];

    (void)ct_buf_printf(to, "; it has called %llu collectives of group %s, others %llu",
                        (unsigned long long)group->calls, group->name,
                        (unsigned long long)odd->calls);
}

static void print_others(const struct ct_odd *odd, const struct ct_hung_rank *ranks,
                         struct ct_buf *to)
{
    const struct ct_hung_rank *other = &ranks[odd->other];
    const char *verb = is_in_call(other) ? "wait" : "are";

    if (odd->others == 0 || !other->place.known)
        return;
    if (odd->others == 1)
        (void)ct_buf_printf(to, "; rank %u %s", other->rank, is_in_call(other) ? "waits" : "is");
    else
        (void)ct_buf_printf(to, "; %zu ranks %s", odd->others, verb);
    print_place(&other->place, to);
    if (odd->kind == CT_ODD_DIFFER)
        (void)ct_buf_puts(to, ": neither of the two can be told to be at fault");
}

void ct_odd_print(const struct ct_odd *odd, const struct ct_hung_rank *ranks, size_t count,
                  uint64_t silent_ms, struct ct_buf *to)
{
    const struct ct_hung_rank *culprit = &ranks[odd->culprit];

    (void)ct_buf_printf(to, "rank %u (host %s, pid %d) hangs", culprit->rank, culprit->host,
                        culprit->pid);
    print_place(&culprit->place, to);
    bool is_outside = culprit->place.known && !is_in_call(culprit) && odd->others > 0 &&
                      is_in_call(&ranks[odd->other]);
    if (is_outside && odd->kind >= CT_ODD_BEHIND)
        (void)ct_buf_puts(to, ", outside of any collective");
    if (odd->kind == CT_ODD_SAME)
        (void)ct_buf_printf(to, ", as all %zu ranks do", count);
    if (culprit->child_pid != 0) {
        (void)ct_buf_printf(to, "; its child process %d is", culprit->child_pid);
        print_place(&culprit->child, to);
    }
    print_others(odd, ranks, to);
    if (odd->kind == CT_ODD_BEHIND)
        print_calls(odd, culprit, to);
    (void)ct_buf_printf(to, "; no sign of life for %.1f s; its process is %s",
                        (double)silent_ms / 1000, culprit->doing);
}
