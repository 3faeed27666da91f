/* See hook_queue.h. */
#include "hook/hook_queue.h"

#include "base/assert.h"

#include <stddef.h>

void ct_hook_queue_init(struct ct_hook_queue *queue, uint64_t timeout_ms)
{
    *queue = (struct ct_hook_queue){.timeout_ms = timeout_ms, .until_ms = UINT64_MAX};
}

static void take_out(struct ct_hook_queue *queue, struct ct_hook_entry *entry)
{
    if (entry->prev != NULL)
        entry->prev->next = entry->next;
    else
        queue->first = entry->next;
    if (entry->next != NULL)
        entry->next->prev = entry->prev;
    else
        queue->last = entry->prev;
    entry->next = entry->prev = NULL;
    queue->count--;
    queue->running -= entry->state != CT_HOOK_WAITING;
}

/* The oldest that waits; `job` NULL: of any. */
static struct ct_hook_entry *find_oldest(const struct ct_hook_queue *queue, const uint64_t *job)
{
    struct ct_hook_entry *entry = queue->first;

    while (entry != NULL &&
           (entry->state != CT_HOOK_WAITING || (job != NULL && entry->job != *job)))
        entry = entry->next;
    return entry;
}

static uint32_t count_waiting(const struct ct_hook_queue *queue, uint64_t job)
{
    uint32_t count = 0;

    for (const struct ct_hook_entry *entry = queue->first; entry != NULL; entry = entry->next)
        count += entry->job == job && entry->state == CT_HOOK_WAITING;
    return count;
}

struct ct_hook_entry *ct_hook_put(struct ct_hook_queue *queue, uint64_t now_ms,
                                  struct ct_hook_entry *entry, uint64_t job)
{
    struct ct_hook_entry *victim = NULL;

    if (count_waiting(queue, job) >= CT_HOOK_WAIT)
        victim = find_oldest(queue, &job);
    else if (queue->count - queue->running >= CT_HOOK_WAIT_ALL)
        victim = find_oldest(queue, NULL);
    if (victim != NULL)
        take_out(queue, victim);
    *entry = (struct ct_hook_entry){
        .prev = queue->last, .job = job, .due_ms = now_ms, .state = CT_HOOK_WAITING};
    if (queue->last != NULL)
        queue->last->next = entry;
    else
        queue->first = entry;
    queue->last = entry;
    queue->count++;
    return victim;
}

/* Is none of its job in front of it? */
static bool is_head(const struct ct_hook_entry *entry)
{
    for (const struct ct_hook_entry *before = entry->prev; before != NULL; before = before->prev)
        if (before->job == entry->job)
            return false;
    return true;
}

static bool is_over(const struct ct_hook_queue *queue, uint64_t now_ms)
{
    return now_ms >= queue->until_ms;
}

struct ct_hook_task ct_hook_next(struct ct_hook_queue *queue, uint64_t now_ms)
{
    for (struct ct_hook_entry *entry = queue->first; entry != NULL; entry = entry->next) {
        if (entry->state == CT_HOOK_RUNNING && entry->due_ms <= now_ms) {
            entry->state = CT_HOOK_KILLED;
            return (struct ct_hook_task){CT_HOOK_KILL, entry};
        }
        if (entry->state != CT_HOOK_WAITING || entry->due_ms > now_ms || is_over(queue, now_ms) ||
            queue->running >= CT_HOOK_AT_ONCE || !is_head(entry))
            continue;
        entry->state = CT_HOOK_RUNNING;
        entry->due_ms = now_ms + queue->timeout_ms;
        entry->tries++;
        queue->running++;
        return (struct ct_hook_task){CT_HOOK_START, entry};
    }
    return (struct ct_hook_task){CT_HOOK_NOTHING, NULL};
}

enum ct_hook_fate ct_hook_ended(struct ct_hook_queue *queue, uint64_t now_ms,
                                struct ct_hook_entry *entry, bool taken)
{
    CT_ASSERT(entry->state != CT_HOOK_WAITING && entry->tries > 0);
    uint64_t retry_ms = (uint64_t)CT_HOOK_RETRY_MS << (entry->tries - 1);

    if (taken || entry->tries >= CT_HOOK_TRIES || now_ms + retry_ms >= queue->until_ms) {
        take_out(queue, entry);
        return taken ? CT_HOOK_TAKEN : CT_HOOK_GIVEN_UP;
    }
    queue->running--;
    entry->state = CT_HOOK_WAITING;
    entry->due_ms = now_ms + retry_ms;
    return CT_HOOK_AGAIN;
}

void ct_hook_finish(struct ct_hook_queue *queue, uint64_t until_ms)
{
    queue->until_ms = CT_MIN(queue->until_ms, until_ms);
}

struct ct_hook_entry *ct_hook_drop(struct ct_hook_queue *queue, uint64_t now_ms)
{
    struct ct_hook_entry *entry = queue->first;

    if (entry != NULL && is_over(queue, now_ms))
        take_out(queue, entry);
    else
        entry = NULL;
    return entry;
}

uint64_t ct_hook_deadline(const struct ct_hook_queue *queue)
{
    uint64_t due_ms = queue->count > 0 ? queue->until_ms : UINT64_MAX;

    for (const struct ct_hook_entry *entry = queue->first; entry != NULL; entry = entry->next) {
        bool may_start =
            entry->state == CT_HOOK_WAITING && queue->running < CT_HOOK_AT_ONCE && is_head(entry);

        if ((may_start || entry->state == CT_HOOK_RUNNING) && entry->due_ms < due_ms)
            due_ms = entry->due_ms;
    }
    return due_ms;
}
