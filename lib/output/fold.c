/* See fold.h. The lines that wait stand in a list, in the order in which they are to come out;
 * those of one hash in another, newest first. */
#include "output/fold.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHAINS = 2048,
    TEXT_BYTES = 1 << 20, /* of all that waits */
    MEMBERS = 1 << 20,    /* ranks of all that waits */
    STEPS = 64,           /* along a chain */
};

/* A waiting line. */
struct group {
    struct group *before, *after; /* in the order of coming out */
    struct group *newer, *older;  /* of its chain */
    uint64_t order;               /* grows along the list; 0: it does not wait */
    uint64_t born_ms;
    uint64_t hash;
    struct ct_buf text;
    struct ct_buf members; /* ranks, uint32_t */
    size_t count;          /* of them */
    size_t lasts;          /* of them: for whom it is the newest line */
};

struct ct_fold {
    uint32_t ranks, complete;
    void (*put)(void *context, const struct ct_folded *line);
    void *context;
    struct group *first, *last; /* of those that wait */
    uint64_t orders;
    size_t text_bytes, member_count; /* that wait */
    struct group *chains[CHAINS];    /* the newest of each */
    struct group groups[CT_FOLD_LINES];
    struct group *unused; /* by `after` */
    struct ct_buf names;
    struct group *newest[]; /* of each rank: its newest line; NULL: none waits */
};

struct ct_fold *ct_fold_new(uint32_t ranks, uint32_t complete,
                            void (*put)(void *context, const struct ct_folded *line), void *context)
{
    struct ct_fold *fold = calloc(1, sizeof *fold + ranks * sizeof(struct group *));

    if (fold == NULL)
        return NULL;
    fold->ranks = ranks;
    fold->complete = complete;
    fold->put = put;
    fold->context = context;
    for (size_t i = 0; i < CT_FOLD_LINES; i++) {
        struct group *group = &fold->groups[i];

        ct_buf_init(&group->text, 0);
        ct_buf_init(&group->members, 0);
        group->after = fold->unused;
        fold->unused = group;
    }
    ct_buf_init(&fold->names, 0);
    return fold;
}

void ct_fold_free(struct ct_fold *fold)
{
    if (fold == NULL)
        return;
    for (size_t i = 0; i < CT_FOLD_LINES; i++) {
        ct_buf_deinit(&fold->groups[i].text);
        ct_buf_deinit(&fold->groups[i].members);
    }
    ct_buf_deinit(&fold->names);
    free(fold);
}

/* ---- the two lists -------------------------------------------------------------------------- */

static void append(struct ct_fold *fold, struct group *group)
{
    group->order = ++fold->orders;
    group->before = fold->last;
    group->after = NULL;
    if (fold->last != NULL)
        fold->last->after = group;
    else
        fold->first = group;
    fold->last = group;
}

static void take_out(struct ct_fold *fold, struct group *group)
{
    if (group->before != NULL)
        group->before->after = group->after;
    else
        fold->first = group->after;
    if (group->after != NULL)
        group->after->before = group->before;
    else
        fold->last = group->before;
}

static void link_chain(struct ct_fold *fold, struct group *group)
{
    struct group **chain = &fold->chains[group->hash % CHAINS];

    group->newer = NULL;
    group->older = *chain;
    if (*chain != NULL)
        (*chain)->newer = group;
    *chain = group;
}

static void unlink_chain(struct ct_fold *fold, struct group *group)
{
    if (group->newer != NULL)
        group->newer->older = group->older;
    else
        fold->chains[group->hash % CHAINS] = group->older;
    if (group->older != NULL)
        group->older->newer = group->newer;
}

/* ---- out ------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    uint32_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static uint32_t member_at(const struct group *group, size_t i)
{
    uint32_t rank;

    memcpy(&rank, group->members.data + i * sizeof rank, sizeof rank);
    return rank;
}

/* "0-2,5", of sorted ranks. */
static void put_names(struct ct_buf *names, const struct group *group)
{
    size_t ranges = 0;

    ct_buf_clear(names);
    for (size_t i = 0, end; i < group->count; i = end) {
        uint32_t first = member_at(group, i);

        if (ranges++ == CT_FOLD_RANGES) {
            (void)ct_buf_puts(names, ",...");
            return;
        }
        for (end = i + 1; end < group->count && member_at(group, end) == first + (end - i);)
            end++;
        (void)ct_buf_printf(names, "%s%u", i > 0 ? "," : "", first);
        if (end - i > 1)
            (void)ct_buf_printf(names, "-%u", member_at(group, end - 1));
    }
}

static void put_first(struct ct_fold *fold)
{
    struct group *group = fold->first;

    CT_ASSERT(group != NULL && group->count > 0);
    take_out(fold, group);
    unlink_chain(fold, group);
    fold->text_bytes -= group->text.size;
    fold->member_count -= group->count;
    for (size_t i = 0; i < group->count && group->lasts > 0; i++) {
        uint32_t rank = member_at(group, i);

        if (rank < fold->ranks && fold->newest[rank] == group)
            fold->newest[rank] = NULL;
    }
    qsort(group->members.data, group->count, sizeof(uint32_t), compare);
    put_names(&fold->names, group);
    fold->put(fold->context, &(struct ct_folded){.ranks = ct_buf_str(&fold->names),
                                                 .count = (uint32_t)group->count,
                                                 .rank = member_at(group, 0),
                                                 .text = ct_buf_str(&group->text),
                                                 .size = group->text.size});
    group->order = 0;
    group->after = fold->unused;
    fold->unused = group;
}

static bool is_due(const struct ct_fold *fold, uint64_t now_ms)
{
    return now_ms - fold->first->born_ms >= CT_FOLD_MS || fold->first->count >= fold->complete ||
           fold->text_bytes > TEXT_BYTES || fold->member_count > MEMBERS;
}

void ct_fold_flush(struct ct_fold *fold, uint64_t now_ms, bool all)
{
    while (fold->first != NULL && (all || is_due(fold, now_ms)))
        put_first(fold);
}

/* ---- in ------------------------------------------------------------------------------------- */

/* May it come out after all that waits? So if no rank has written anything behind it, and it has
 * not waited long. */
static bool may_move(const struct group *group, uint64_t now_ms)
{
    return group->lasts == group->count && now_ms - group->born_ms < CT_FOLD_MS;
}

/* The equal line that one of `rank` may join: the first behind the rank's newest line, else one
 * that is moved behind it. NULL: none. */
static struct group *find(struct ct_fold *fold, uint64_t now_ms, uint32_t rank,
                          const struct group *like, const char *text)
{
    const struct group *newest = fold->newest[rank];
    uint64_t behind = newest != NULL ? newest->order : 0;
    struct group *found = NULL, *movable = NULL, *group = fold->chains[like->hash % CHAINS];

    for (int i = 0; i < STEPS && group != NULL; i++, group = group->older) {
        if (group->hash != like->hash || group->text.size != like->text.size || group == newest ||
            memcmp(ct_buf_str(&group->text), text, group->text.size) != 0)
            continue;
        if (group->order > behind && (found == NULL || group->order < found->order))
            found = group;
        else if (movable == NULL && may_move(group, now_ms))
            movable = group;
    }
    if (found != NULL || movable == NULL)
        return found;
    take_out(fold, movable);
    append(fold, movable);
    return movable;
}

static struct group *begin_group(struct ct_fold *fold, uint64_t now_ms, uint64_t hash,
                                 const char *text, size_t size)
{
    if (fold->unused == NULL)
        put_first(fold);
    struct group *group = fold->unused;
    ct_buf_clear(&group->text);
    ct_buf_clear(&group->members);
    if (ct_buf_append(&group->text, text, size) != 0 ||
        ct_buf_reserve(&group->members, sizeof(uint32_t)) == NULL)
        return NULL;
    fold->unused = group->after;
    group->born_ms = now_ms;
    group->hash = hash;
    group->count = group->lasts = 0;
    append(fold, group);
    link_chain(fold, group);
    fold->text_bytes += size;
    return group;
}

static bool join(struct ct_fold *fold, struct group *group, uint32_t rank)
{
    if (ct_buf_append(&group->members, &rank, sizeof rank) != 0)
        return false;
    group->count++;
    group->lasts++;
    fold->member_count++;
    if (rank >= fold->ranks)
        return true;
    if (fold->newest[rank] != NULL)
        fold->newest[rank]->lasts--;
    fold->newest[rank] = group;
    return true;
}

void ct_fold_add(struct ct_fold *fold, uint64_t now_ms, uint32_t rank, const char *text,
                 size_t size)
{
    const struct group like = {.hash = ct_hash64(text, size, 0), .text.size = size};
    struct group *group = rank < fold->ranks ? find(fold, now_ms, rank, &like, text) : NULL;

    if (group == NULL)
        group = begin_group(fold, now_ms, like.hash, text, size);
    if (group == NULL || !join(fold, group, rank)) {
        char name[16];

        (void)snprintf(name, sizeof name, "%u", rank);
        fold->put(fold->context,
                  &(struct ct_folded){
                      .ranks = name, .count = 1, .rank = rank, .text = text, .size = size});
    }
    ct_fold_flush(fold, now_ms, false);
}
