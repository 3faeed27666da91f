/* See local.h: the segment's layout, flags, wakeups, and the end of a group. */
#include "backend/local/local.h"

#include "backend/local/local_algorithm.h"
#include "base/assert.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    SPINS = 2000,
    SPINS_CROWDED = 20,
    LOOKS = 100,
    TURN_FROM_BYTES = 4 << 10,
    STAGES_BYTES = 16 << 20
};

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static void free_local(struct ct_local *local)
{
    free(local->sources);
    free(local->copies);
    free(local->factors);
    free(local->reach);
    free(local->seats);
    free(local);
}

struct ct_local *ct_local_new(const struct ct_setup *setup)
{
    struct ct_local *local = calloc(1, sizeof *local);
    size_t size = (size_t)setup->size;

    if (local == NULL)
        return NULL;
    local->sources = calloc(size, sizeof *local->sources);
    local->copies = calloc(size, sizeof *local->copies);
    local->factors = calloc(size, sizeof *local->factors);
    local->reach = calloc(size, sizeof *local->reach);
    local->seats = calloc(size, sizeof *local->seats);
    if (local->sources == NULL || local->copies == NULL || local->factors == NULL ||
        local->reach == NULL || local->seats == NULL) {
        free_local(local);
        return NULL;
    }
    local->rank = setup->rank;
    local->size = setup->size;
    local->missing = -1;
    local->round = 1;
    local->memory = &setup->job->memory;
    local->seat_override = setup->job->seat;
    local->domains = (struct ct_domains){.count = 1, .first = {0, setup->size}};
    local->fd = -1;
    local->chunk_bytes = round_up(setup->tuning.local_chunk_bytes, 64 * size);
    local->block_bytes = local->chunk_bytes / size;
    local->tuning = setup->tuning;
    local->tuning.local_direct_bytes =
        CT_MAX(setup->tuning.local_direct_bytes, (size_t)CT_CELL_BYTES + 1);
    local->slot_bytes = round_up(setup->tuning.local_ring_bytes, 64);
    local->stage_bytes =
        CT_MIN(setup->tuning.local_stage_bytes, STAGES_BYTES / size) / local->chunk_bytes;
    local->stage_bytes = CT_MAX(local->stage_bytes, (size_t)1) * local->chunk_bytes;
    ct_local_begin_slots(local, local->chunk_bytes);
    local->area_bytes = round_up(2 * local->stage_bytes, PAGE);
    local->ring_bytes =
        round_up(sizeof(struct ct_segment_ring) +
                     CT_RING_SLOTS * (sizeof(struct ct_segment_slot) + local->slot_bytes),
                 PAGE);
    local->areas_at =
        round_up(sizeof(struct ct_segment_head) + size * sizeof(struct ct_segment_line), PAGE);
    local->rings_at = local->areas_at + size * local->area_bytes;
    local->total_bytes = local->rings_at + size * size * local->ring_bytes;
    return local;
}

static void read_affinity(uint64_t *cpus)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set);
    _Static_assert(CT_SEAT_WORDS * sizeof *cpus == sizeof set, "a bit a core");
    memcpy(cpus, &set, sizeof set);
}

/* Threads of one process are tests, and are grouped alike on every machine. */
static struct ct_seat find_seat(const struct ct_local *local, const uint64_t *cpus)
{
    if (local->seat_override != NULL)
        return *local->seat_override;
    if (local->one_process || (size_t)local->size <= local->tuning.local_domains_world)
        return (struct ct_seat){-1, -1};
    return ct_seat_of("/sys/devices/system/cpu", cpus);
}

void ct_local_attach(struct ct_local *local, void *memory)
{
    local->head = memory;
    struct ct_segment_line *line = ct_local_line(local, local->rank);
    read_affinity(line->cpus);
    line->seat = find_seat(local, line->cpus);
}

char *ct_local_stage(const struct ct_local *local, int rank, uint64_t round)
{
    return (char *)local->head + local->areas_at + (size_t)rank * local->area_bytes +
           (round & 1) * local->stage_bytes +
           (round >> 1) % local->stage_slots * local->stage_slot_bytes;
}

/* What fills a slot pushes the others out of the cache; and where ranks share cores, who has read a
 * line has left it in the writer's cache as well. */
void ct_local_begin_slots(struct ct_local *local, size_t bytes)
{
    bool turns = bytes > TURN_FROM_BYTES && bytes < local->chunk_bytes && !local->crowded;

    if (bytes <= TURN_FROM_BYTES && local->stage_slots == 1 && local->stage_slot_bytes >= bytes)
        return;
    local->stage_slot_bytes = CT_MIN(round_up(bytes, 64), local->chunk_bytes);
    local->stage_slots = turns ? local->stage_bytes / local->stage_slot_bytes : 1;
}

struct ct_segment_ring *ct_local_ring(const struct ct_local *local, int from, int to)
{
    size_t index = (size_t)from * (size_t)local->size + (size_t)to;

    return (void *)((char *)local->head + local->rings_at + index * local->ring_bytes);
}

static void find_domains(struct ct_local *local)
{
    for (int i = 0; i < local->size; i++)
        local->seats[i] = ct_local_line(local, i)->seat;
    if ((size_t)local->size > local->tuning.local_domains_world)
        local->domains = ct_domains_of(local->seats, local->size);
    local->domain = ct_domains_find(&local->domains, local->rank);
}

/* Spinning helps when each rank has a core of its own. Who may run where is known once all are
 * attached, and is the same to all. */
void ct_local_complete(void *state)
{
    struct ct_local *local = state;
    int cores = 0;

    for (int word = 0; word < CT_SEAT_WORDS; word++) {
        uint64_t cpus = 0;

        for (int i = 0; i < local->size; i++)
            cpus |= ct_local_line(local, i)->cpus[word];
        cores += __builtin_popcountll(cpus);
    }
    find_domains(local);
    local->crowded = local->size > cores;
    local->polls = local->crowded ? 0 : LOOKS;
    if (local->fd >= 0)
        (void)close(local->fd);
    local->fd = -1;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

int ct_local_spins(const void *state)
{
    const struct ct_local *local = state;

    return local->crowded ? SPINS_CROWDED : SPINS;
}

/* ThreadSanitizer does not know fences; only wakeups depend on this one. */
__attribute__((no_sanitize("thread"))) static void fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* A waiter counts itself in before its last poll, and a poster reads the count
 * after it has posted, with a fence between; so one of the two sees the other. */
void ct_local_notify(const struct ct_local *local)
{
    fence();
    if (atomic_load(&local->head->sleepers) == 0)
        return;
    atomic_fetch_add(&local->head->wakeup, 1);
    (void)syscall(SYS_futex, &local->head->wakeup, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t ct_local_arm(void *state)
{
    struct ct_local *local = state;

    atomic_fetch_add(&local->head->sleepers, 1);
    return atomic_load(&local->head->wakeup);
}

void ct_local_park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    struct ct_local *local = state;
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};

    if (timeout_ns > 0)
        (void)syscall(SYS_futex, &local->head->wakeup, FUTEX_WAIT, armed, &limit, NULL, 0);
    atomic_fetch_sub(&local->head->sleepers, 1);
}

int ct_local_arrived(struct ct_local *local, int rank, uint64_t round, struct ct_error *err)
{
    struct ct_segment_cell *cell = ct_local_cell(local, rank, round);

    if (atomic_load(&cell->posted) >= round)
        return 1;
    local->missing = rank;
    if (atomic_load(&ct_local_line(local, rank)->left) == 0 || atomic_load(&cell->posted) >= round)
        return 0;
    return ct_error_set(err, CT_ECLOSED, "rank %d has closed the group", rank);
}

int ct_local_missing(void *state, const struct ct_task *task)
{
    const struct ct_local *local = state;

    return ct_call_is_transfer(&task->call) ? task->call.peer : local->missing;
}

/* ---- progress and the end --------------------------------------------------------------------*/

int ct_local_progress(void *state, struct ct_task *task, struct ct_error *err)
{
    struct ct_local *local = state;
    int failure = atomic_load(&local->head->failure);

    if (failure != 0)
        return ct_error_echo(err, failure, "rank %d ended the group: %s",
                             atomic_load(&local->head->failed_rank), ct_strerror(failure));
    if (ct_call_is_transfer(&task->call))
        return ct_local_transfer(local, task, err);
    return ct_local_collective(local, task, err);
}

/* The first failure counts; `failed_rank` is a hint for people. */
void ct_local_fail(void *state, int code)
{
    struct ct_local *local = state;
    int32_t none = 0;

    if (atomic_load(&local->head->failure) == 0) {
        atomic_store(&local->head->failed_rank, local->rank);
        (void)atomic_compare_exchange_strong(&local->head->failure, &none, code);
    }
    ct_local_notify(local);
}

/* The wakeup word is shared: other ranks poll once more than they would have. */
void ct_local_wake(void *state)
{
    struct ct_local *local = state;

    atomic_fetch_add(&local->head->wakeup, 1);
    (void)syscall(SYS_futex, &local->head->wakeup, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ct_local_revoke(void *state)
{
    ct_local_fail(state, CT_EREVOKED);
}

void ct_local_close(void *state)
{
    struct ct_local *local = state;

    if (local->head != NULL) {
        atomic_store(&ct_local_line(local, local->rank)->left, 1);
        ct_local_notify(local);
    }
    if (local->fd >= 0)
        (void)close(local->fd);
    ct_local_unmap(local);
    local->release(local);
    free_local(local);
}
