/* See worker_record.h. */
#include "wire/worker_record.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "wire/page.h"

#include <string.h>
#include <sys/mman.h>

static const struct ct_page_kind worker_record = {.name = "ctrun-record",
                                                  .article = "a",
                                                  .what = "worker's record",
                                                  .head = {.magic = 0x43545752, .version = 4},
                                                  .bytes = sizeof(struct ct_worker_record)};

enum { OPEN_CALLS = 64 }; /* that may be open: one of them may have ended last */

#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
/* What was set before `field` is seen by who sees its value. */
#define SET_LAST(field, value) atomic_store_explicit(&(field), (value), memory_order_release)
#define GET_FIRST(field) atomic_load_explicit(&(field), memory_order_acquire)

#define BUSY \
    UINT64_MAX /* the id of a slot that is being filled: it is in use, but not to be read */

/* ---- agent ---------------------------------------------------------------------------------- */

int ct_worker_record_new(const struct ct_worker_record **ret_record, int *ret_fd,
                         struct ct_error *err)
{
    void *page;
    int code = ct_page_new(&worker_record, &page, ret_fd, err);

    if (code != 0)
        return code;
    ((struct ct_worker_record *)page)->base = ct_ticks_now();
    (void)mprotect(page, sizeof(struct ct_worker_record), PROT_READ);
    *ret_record = page;
    return 0;
}

int ct_worker_record_map(int fd, const struct ct_worker_record **ret_record, struct ct_error *err)
{
    void *page;
    int code = ct_page_open(&worker_record, fd, PROT_READ, &page, err);

    if (code == 0)
        *ret_record = page;
    return code;
}

static void read_text(const _Atomic char *from, char *to, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        char at = GET(from[i]);

        to[i] = at >= ' ' && at <= '~' ? at : '\0'; /* it goes to a terminal */
        if (to[i] == '\0')
            break;
    }
    to[room - 1] = '\0';
}

/* False: the slot is free, or changed hands meanwhile. */
static bool read_group(const struct ct_record_group *group, struct ct_record_call *call,
                       struct ct_record_view *view)
{
    uint64_t owners = GET_FIRST(group->owners), id = GET_FIRST(group->id);

    if (id == 0 || id == BUSY)
        return false;
    call->failure = GET_FIRST(group->failure);
    uint64_t numbers[] = {id, GET(group->entered), GET(group->completed), GET_FIRST(group->waiting),
                          GET(group->moves)};
    uint64_t heartbeat_ns = GET(group->heartbeat_ns);
    uint32_t awaited = GET(group->awaited);

    call->id = id;
    call->entered = numbers[1];
    call->completed = numbers[2];
    call->waiting = numbers[3];
    call->since_ns = GET(group->since_ns);
    call->rank = GET(group->rank);
    call->size = GET(group->size);
    call->awaited = (int)CT_MIN(awaited, (uint32_t)INT32_MAX) - 1;
    read_text(group->name, call->name, sizeof call->name);
    read_text(group->text, call->text, sizeof call->text);
    atomic_thread_fence(memory_order_acquire);
    if (GET_FIRST(group->id) != id || GET(group->owners) != owners)
        return false;
    view->progress = ct_hash64(numbers, sizeof numbers, view->progress);
    view->signs = ct_hash64(&heartbeat_ns, sizeof heartbeat_ns, view->signs);
    return true;
}

void ct_worker_record_read(const struct ct_worker_record *record, struct ct_record_view *ret_view)
{
    uint32_t section = GET(record->section);
    uint64_t numbers[] = {section, GET(record->step), GET(record->since_ns)};
    uint64_t alive_ns = GET(record->alive_ns);

    *ret_view = (struct ct_record_view){
        .opened = GET(record->opened) != 0,
        .section = section <= CT_RECORD_AWAY ? (enum ct_record_section)section : CT_RECORD_START,
        .step = numbers[1],
        .signs = ct_hash64(&alive_ns, sizeof alive_ns, 0),
        .progress = ct_hash64(numbers, sizeof numbers, 0),
        .straggler_count = GET_FIRST(record->straggler_count),
        .straggler = GET(record->straggler),
        .straggler_share = GET(record->straggler_share),
        .straggler_cost = GET(record->straggler_cost),
        .pid = GET(record->pid),
        .rank = GET(record->rank),
        .world = GET(record->world),
        .generation = GET(record->generation),
        .program_at = GET(record->program_at),
    };
    read_text(record->program, ret_view->program, sizeof ret_view->program);
    for (int i = 0; i < CT_RECORD_GROUPS; i++)
        if (read_group(&record->groups[i], &ret_view->groups[ret_view->group_count], ret_view))
            ret_view->group_count++;
    ret_view->signs = ct_hash64(&ret_view->progress, sizeof ret_view->progress, ret_view->signs);
}

uint64_t ct_worker_record_alive_ns(const struct ct_worker_record *record, struct ct_ticks_pair now)
{
    uint64_t turns = ct_flight_turns(&record->flight), latest = GET(record->since_ns);
    struct ct_flight_call call;

    latest = CT_MAX(latest, GET(record->alive_ns));
    for (int i = 0; i < CT_RECORD_GROUPS; i++)
        if (GET(record->groups[i].id) != 0) /* BUSY ones have what they had */
            latest = CT_MAX(latest, GET(record->groups[i].heartbeat_ns));
    for (uint64_t i = 0; i < OPEN_CALLS && i < turns; i++) {
        if (!ct_flight_read(&record->flight, turns - i, &call))
            continue;
        uint64_t ticks = CT_MAX(call.queued, CT_MAX(call.started, call.ended));
        latest = CT_MAX(latest, ct_worker_record_ns(record, now, ticks));
    }
    return latest;
}

uint32_t ct_worker_record_durations(const struct ct_worker_record *record, uint32_t *ret_us,
                                    uint32_t room)
{
    uint64_t steps = GET_FIRST(record->steps);
    uint32_t count = (uint32_t)CT_MIN(steps, (uint64_t)CT_MIN(room, CT_RECORD_DURATIONS));

    for (uint32_t i = 0; i < count; i++)
        ret_us[i] = GET(record->durations_us[(steps - 1 - i) % CT_RECORD_DURATIONS]);
    return count;
}

/* ---- worker --------------------------------------------------------------------------------- */

int ct_worker_record_open(int fd, struct ct_worker_record **ret_record, struct ct_error *err)
{
    void *page;
    int code = ct_page_open(&worker_record, fd, PROT_READ | PROT_WRITE, &page, err);

    if (code != 0)
        return code;
    *ret_record = page;
    SET((*ret_record)->opened, 1);
    return 0;
}

static void write_text(_Atomic char *to, size_t room, const char *from)
{
    size_t i = 0;

    for (; i + 1 < room && from[i] != '\0'; i++)
        SET(to[i], from[i]);
    SET(to[i], '\0');
}

void ct_worker_record_program(struct ct_worker_record *record, uint32_t pid, const char *program,
                              uint64_t at)
{
    SET(record->pid, pid);
    SET(record->program_at, at);
    write_text(record->program, sizeof record->program, program);
}

void ct_worker_record_place(struct ct_worker_record *record, uint64_t generation, uint32_t rank,
                            uint32_t world)
{
    if (record == NULL)
        return;
    SET(record->generation, generation);
    SET(record->rank, rank);
    SET(record->world, world);
    for (int i = 0; i < CT_RECORD_GROUPS; i++) {
        uint32_t over = 1;

        if (atomic_compare_exchange_strong(&record->groups[i].over, &over, 0))
            atomic_store(&record->groups[i].id, 0);
    }
}

void ct_worker_record_at(struct ct_worker_record *record, enum ct_record_section section,
                         uint64_t step, uint64_t now_ns)
{
    if (record == NULL)
        return;
    if (GET(record->section) == CT_RECORD_STEP && step == GET(record->step) + 1) {
        uint64_t took_us = (now_ns - GET(record->since_ns)) / 1000, steps = GET(record->steps);

        SET(record->durations_us[steps % CT_RECORD_DURATIONS],
            (uint32_t)CT_MIN(took_us, (uint64_t)UINT32_MAX));
        SET_LAST(record->steps, steps + 1);
    }
    SET(record->section, section);
    SET(record->step, step);
    SET(record->since_ns, now_ns);
}

void ct_worker_record_straggler(struct ct_worker_record *record, uint32_t rank, uint32_t share,
                                uint32_t cost)
{
    if (record == NULL)
        return;
    SET(record->straggler, rank);
    SET(record->straggler_share, share);
    SET(record->straggler_cost, cost);
    atomic_fetch_add_explicit(&record->straggler_count, 1, memory_order_release);
}

/* Take a slot that is free, or was kept for show; it is BUSY. */
static struct ct_record_group *acquire_slot(struct ct_worker_record *record)
{
    for (int i = 0; i < CT_RECORD_GROUPS; i++) {
        uint64_t none = 0;

        if (atomic_compare_exchange_strong(&record->groups[i].id, &none, BUSY))
            return &record->groups[i];
    }
    for (int i = 0; i < CT_RECORD_GROUPS; i++) {
        uint32_t over = 1;

        if (!atomic_compare_exchange_strong(&record->groups[i].over, &over, 0))
            continue;
        SET(record->groups[i].id, BUSY);
        return &record->groups[i];
    }
    return NULL;
}

struct ct_record_group *ct_worker_record_group_new(struct ct_worker_record *record, const char *key,
                                                   uint32_t rank, uint32_t size)
{
    uint64_t id = ct_hash_str(key);

    id = id == 0 || id == BUSY ? 1 : id;
    struct ct_record_group *group = record != NULL ? acquire_slot(record) : NULL;
    if (group == NULL)
        return NULL;
    SET(group->owners, GET(group->owners) + 1);
    atomic_thread_fence(memory_order_release); /* both are seen by who sees any of these */
    SET(group->entered, 0);
    SET(group->completed, 0);
    SET(group->waiting, 0);
    SET(group->awaited, 0);
    SET(group->rank, rank);
    SET(group->size, size);
    SET(group->failure, 0);
    write_text(group->text, sizeof group->text, "");
    write_text(group->name, sizeof group->name, key);
    SET_LAST(group->id, id);
    return group;
}

void ct_worker_record_group_free(struct ct_record_group *group)
{
    if (group == NULL)
        return;
    SET(group->waiting, 0);
    if (GET(group->failure) != 0)
        SET(group->over, 1);
    else
        atomic_store(&group->id, 0);
}

void ct_worker_record_wait(struct ct_record_group *group, uint64_t number, uint64_t now_ns)
{
    SET(group->since_ns, now_ns);
    SET(group->text[0], '\0');
    ct_worker_record_heartbeat(group, now_ns, GET(group->moves), -1);
    SET_LAST(group->waiting, number);
}

void ct_worker_record_text(struct ct_record_group *group, const char *text)
{
    write_text(group->text, sizeof group->text, text);
}

void ct_worker_record_woke(struct ct_record_group *group)
{
    SET(group->waiting, 0);
}

/* ---- both ----------------------------------------------------------------------------------- */

void ct_worker_record_unmap(const struct ct_worker_record *record)
{
    ct_page_unmap(&worker_record, record);
}
