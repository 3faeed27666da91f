/* Two lists of marks in the order of time: invocations and answers of the answered operations, and
 * the invocations of open ones. An operation that takes effect is taken out of its list; when no
 * candidate is left before the first answer, the last one that took effect is put back and the next
 * candidate is tried in its place. See linear.h. */
#include "history/linear.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWERED, OPEN, LISTS };
enum { FIRST_SLOTS = 1024, NONE = -1, LOOKS = 64 };

struct mark {
    uint64_t at_ns;
    size_t op;
    bool is_answer;
    int next, prev, answer; /* indices; `answer` is of an invocation, NONE if it is open */
    size_t bit;             /* of an open one, in masks */
};

struct slot {
    uint64_t key[2]; /* of the answered operations that have taken effect, and the state */
    size_t mask;     /* of the open ones */
};

struct placed {
    int mark, list;
    struct linear_state before;
};

struct search {
    const struct linear_op *ops;
    linear_apply_fn apply;
    struct mark *marks; /* those of a list stand behind its head, in the order of time */
    int heads[LISTS];
    struct placed *stack;
    size_t depth;
    size_t left; /* answered ones that have not taken effect */
    struct linear_state state;
    uint64_t set[2];     /* hash of the answered operations that have taken effect */
    uint64_t *open_mask; /* the open ones that have */
    size_t words;        /* of a mask */
    uint64_t *masks;     /* of the slots */
    size_t mask_size, mask_room;
    struct slot *slots;
    size_t slot_count, most;
    size_t looks; /* at slots: bounded too */
    struct linear_verdict verdict;
    size_t fewest_left;
};

/* ---- visited configurations ----------------------------------------------------------------- */

static bool is_free(const struct slot *slot)
{
    return slot->key[0] == 0 && slot->key[1] == 0;
}

/* Have all open operations of `mask` taken effect in `other` too? */
static bool is_within(const struct search *search, const uint64_t *mask, const uint64_t *other)
{
    for (size_t i = 0; i < search->words; i++)
        if ((mask[i] & ~other[i]) != 0)
            return false;
    return true;
}

/* The free slot for a configuration; NULL when it was looked at before, or one that had more open
 * operations left and the same else: what that could not explain this cannot. */
static struct slot *find_slot(struct search *search, const uint64_t key[2])
{
    size_t i = key[0] & (search->slot_count - 1);

    for (; !is_free(&search->slots[i]); i = (i + 1) & (search->slot_count - 1)) {
        const struct slot *slot = &search->slots[i];
        search->looks++;
        if (slot->key[0] == key[0] && slot->key[1] == key[1] &&
            is_within(search, search->masks + slot->mask, search->open_mask))
            return NULL;
    }
    return &search->slots[i];
}

static bool grow_slots(struct search *search)
{
    size_t count = search->slot_count * 2;
    struct slot *slots = calloc(count, sizeof *slots);

    if (slots == NULL)
        return false;
    for (size_t i = 0; i < search->slot_count; i++) {
        size_t k = search->slots[i].key[0] & (count - 1);
        while (!is_free(&slots[k]))
            k = (k + 1) & (count - 1);
        slots[k] = search->slots[i];
    }
    free(search->slots);
    search->slots = slots;
    search->slot_count = count;
    return true;
}

/* Keep the current mask; where. The first of all is empty, for the many without any. */
static bool keep_mask(struct search *search, size_t *ret_at)
{
    *ret_at = 0;
    if (is_within(search, search->open_mask, search->masks))
        return true;
    if (search->mask_size + search->words > search->mask_room) {
        size_t room = 2 * (search->mask_room + search->words);
        uint64_t *masks = realloc(search->masks, room * sizeof *masks);
        if (masks == NULL)
            return false;
        search->masks = masks;
        search->mask_room = room;
    }
    *ret_at = search->mask_size;
    memcpy(search->masks + search->mask_size, search->open_mask,
           search->words * sizeof *search->masks);
    search->mask_size += search->words;
    return true;
}

/* False: it was looked at before. Two sets with one hash of 128 bits do not occur. */
static bool visit(struct search *search, struct linear_state state)
{
    uint64_t salt = ct_mix64((uint64_t)state.a + ct_mix64((uint64_t)state.b));
    const uint64_t key[2] = {search->set[0] + salt, search->set[1] ^ ct_mix64(salt)};
    size_t mask;

    if (search->verdict.visited * 2 >= search->slot_count && !grow_slots(search)) {
        search->verdict.result = LINEAR_NO_MEMORY;
        return false;
    }
    struct slot *slot = find_slot(search, key);
    if (slot == NULL)
        return false;
    if (!keep_mask(search, &mask)) {
        search->verdict.result = LINEAR_NO_MEMORY;
        return false;
    }
    *slot = (struct slot){.key = {key[0], key[1]}, .mask = mask};
    search->verdict.visited++;
    if (search->verdict.visited >= search->most || search->looks >= LOOKS * search->most)
        search->verdict.result = LINEAR_GAVE_UP;
    return true;
}

/* An operation takes effect, or no longer does. */
static void flip(struct search *search, const struct mark *mark)
{
    if (mark->answer == NONE) {
        search->open_mask[mark->bit / 64] ^= 1ull << mark->bit % 64;
        return;
    }
    search->set[0] ^= ct_mix64(2 * mark->op + 1);
    search->set[1] ^= ct_mix64(~(2 * mark->op + 1));
}

/* ---- the lists ------------------------------------------------------------------------------ */

static void unlink_mark(struct search *search, int at)
{
    struct mark *marks = search->marks;

    marks[marks[at].prev].next = marks[at].next;
    if (marks[at].next != NONE)
        marks[marks[at].next].prev = marks[at].prev;
}

static void relink_mark(struct search *search, int at)
{
    struct mark *marks = search->marks;

    marks[marks[at].prev].next = at;
    if (marks[at].next != NONE)
        marks[marks[at].next].prev = at;
}

/* The answer that comes first: no candidate was invoked after it. */
static int first_answer(const struct search *search)
{
    int at = search->marks[search->heads[ANSWERED]].next;

    while (!search->marks[at].is_answer)
        at = search->marks[at].next;
    return at;
}

/* At equal times an invocation precedes an answer: they overlap. */
static int by_time(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->is_answer != y->is_answer)
        return x->is_answer ? 1 : -1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Fill marks from `from` on with a head and the marks of one list; where they end. */
static int fill_list(struct search *search, int list, size_t count, int from)
{
    struct mark *marks = search->marks;
    int end = from + 1;

    for (size_t i = 0; i < count; i++) {
        const struct linear_op *op = &search->ops[i];
        if ((op->end_ns == LINEAR_OPEN) != (list == OPEN))
            continue;
        marks[end++] = (struct mark){.at_ns = op->begin_ns, .op = i, .answer = NONE};
        if (list == ANSWERED)
            marks[end++] =
                (struct mark){.at_ns = op->end_ns, .op = i, .is_answer = true, .answer = NONE};
    }
    qsort(marks + from + 1, (size_t)(end - from - 1), sizeof *marks, by_time);
    search->heads[list] = from;
    for (int i = from; i < end; i++) {
        marks[i].prev = i - 1;
        marks[i].next = i + 1 < end ? i + 1 : NONE;
    }
    return end;
}

static bool begin(struct search *search, size_t count)
{
    int *invoked = calloc(count + 1, sizeof *invoked);

    search->marks = calloc(2 * count + LISTS, sizeof *search->marks);
    search->stack = calloc(count + 1, sizeof *search->stack);
    search->slot_count = FIRST_SLOTS;
    search->slots = calloc(search->slot_count, sizeof *search->slots);
    search->words = count / 64 + 1;
    search->open_mask = calloc(search->words, sizeof *search->open_mask);
    search->masks = calloc(search->words, sizeof *search->masks);
    search->mask_room = search->words;
    bool good = invoked != NULL && search->marks != NULL && search->stack != NULL &&
                search->slots != NULL && search->open_mask != NULL && search->masks != NULL;
    if (good) {
        int middle = fill_list(search, ANSWERED, count, 0);
        int end = fill_list(search, OPEN, count, middle);
        for (int i = middle + 1; i < end; i++)
            search->marks[i].bit = (size_t)(i - middle - 1);
        search->words = (size_t)(end - middle - 1) / 64 + 1;
        search->mask_size = search->words;
        for (int i = 1; i < middle; i++) {
            struct mark *mark = &search->marks[i];
            if (mark->is_answer)
                search->marks[invoked[mark->op]].answer = i;
            else
                invoked[mark->op] = i;
        }
        search->left = (size_t)(middle - 1) / 2;
        search->fewest_left = search->left;
    }
    free(invoked);
    return good;
}

/* ---- the search ----------------------------------------------------------------------------- */

static void place(struct search *search, int list, int at, struct linear_state after)
{
    search->stack[search->depth++] =
        (struct placed){.mark = at, .list = list, .before = search->state};
    search->state = after;

    unlink_mark(search, at);
    if (search->marks[at].answer == NONE)
        return;
    unlink_mark(search, search->marks[at].answer);
    search->left--;
}

/* Put back what took effect last; the candidate to go on with, and its list. */
static int take_back(struct search *search, int *ret_list)
{
    const struct placed *last = &search->stack[--search->depth];
    const struct mark *mark = &search->marks[last->mark];

    if (mark->answer != NONE) {
        relink_mark(search, mark->answer);
        search->left++;
    }
    relink_mark(search, last->mark);
    flip(search, mark);
    search->state = last->before;
    *ret_list = last->list;
    return mark->next;
}

/* Try a candidate: does it take effect now? */
static bool try_mark(struct search *search, int list, int at)
{
    const struct mark *mark = &search->marks[at];
    struct linear_state after = search->state;

    if (!search->apply(&search->ops[mark->op], search->state, &after))
        return false;
    flip(search, mark);
    if (!visit(search, after)) {
        flip(search, mark);
        return false;
    }
    place(search, list, at, after);
    return true;
}

static void note_stuck(struct search *search)
{
    if (search->left > search->fewest_left)
        return;
    search->fewest_left = search->left;
    search->verdict.stuck = search->marks[first_answer(search)].op;
}

static void find_order(struct search *search)
{
    int list = ANSWERED, at = search->marks[search->heads[list]].next;

    while (search->left > 0 && search->verdict.result == LINEAR_YES) {
        bool is_over = at == NONE || search->marks[at].is_answer;
        if (is_over && list == ANSWERED) {
            list = OPEN;
            at = search->marks[search->heads[OPEN]].next;
            continue;
        }
        /* Open ones stand in the order of time: who comes after the first answer is too late. */
        if (!is_over && list == OPEN)
            is_over = search->marks[at].at_ns > search->marks[first_answer(search)].at_ns;
        if (is_over) {
            note_stuck(search);
            if (search->depth == 0) {
                search->verdict.result = LINEAR_NO;
                return;
            }
            at = take_back(search, &list);
        } else if (try_mark(search, list, at)) {
            list = ANSWERED;
            at = search->marks[search->heads[list]].next;
        } else {
            at = search->marks[at].next;
        }
    }
}

struct linear_verdict linear_check(const struct linear_op *ops, size_t count,
                                   struct linear_state first, linear_apply_fn apply, size_t most)
{
    struct search search = {.ops = ops, .apply = apply, .state = first, .most = most};

    if (begin(&search, count)) {
        size_t all = search.left;
        find_order(&search);
        search.verdict.placed = all - search.fewest_left;
    } else {
        search.verdict.result = LINEAR_NO_MEMORY;
    }
    free(search.marks);
    free(search.stack);
    free(search.slots);
    free(search.open_mask);
    free(search.masks);
    return search.verdict;
}
