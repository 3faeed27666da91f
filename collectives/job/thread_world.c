/* See thread_world.h: the ranks' jobs, their store as a list under one lock, and shared segments.
 */
#include "job/thread_world.h"

#include "algorithm/domains.h"
#include "base/assert.h"
#include "base/clock.h"
#include "job/job.h"
#include "job/job_resource.h"
#include "job/job_state.h"
#include "job/thread_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { WORLD_MAX = 64, WAIT_SLICE_MS = 10 };

struct entry {
    struct entry *next;
    char *key;
    void *value;
    size_t size;
};

struct segment {
    struct ct_thread_world *world;
    struct segment *next;
    void *memory;
    size_t bytes;
    int members; /* that have not left */
};

struct ct_thread_world {
    int size;
    struct ct_job jobs[WORLD_MAX];
    struct ct_job_node nodes[WORLD_MAX];
    struct ct_control_page page;
    pthread_mutex_t lock; /* of the lists */
    pthread_cond_t changed;
    struct entry *entries;
    struct segment *segments;
};

/* The round that the ranks are in. */
static uint64_t generation_of(const struct ct_thread_world *world)
{
    return world->jobs[0].assignment.generation;
}

/* ---- the store -------------------------------------------------------------------------------*/

static struct entry *find(struct ct_thread_world *world, const char *key)
{
    for (struct entry *entry = world->entries; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, key) == 0)
            return entry;
    return NULL;
}

static struct entry *find_or_make(struct ct_thread_world *world, const char *key)
{
    struct entry *entry = find(world, key);

    if (entry != NULL)
        return entry;
    entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->key = strdup(key);
    if (entry->key == NULL) {
        free(entry);
        return NULL;
    }
    entry->next = world->entries;
    world->entries = entry;
    return entry;
}

/* Under the lock. */
static int store(struct ct_thread_world *world, const char *key, const void *value, size_t size)
{
    void *copy = malloc(size + 1);
    struct entry *entry = copy != NULL ? find_or_make(world, key) : NULL;

    if (entry == NULL) {
        free(copy);
        return CT_ENOMEM;
    }
    if (size > 0)
        memcpy(copy, value, size);
    free(entry->value);
    entry->value = copy;
    entry->size = size;
    (void)pthread_cond_broadcast(&world->changed);
    return 0;
}

static int kv_set(void *context, const char *key, const void *value, size_t size)
{
    struct ct_thread_world *world = context;

    (void)pthread_mutex_lock(&world->lock);
    int code = store(world, key, value, size);
    (void)pthread_mutex_unlock(&world->lock);
    return code;
}

/* Until the next change, or for a slice: a revocation wakes no thread here. */
static void wait_for_change(struct ct_thread_world *world)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_SLICE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&world->changed, &world->lock, &until);
}

static int kv_wait(void *context, const char *key, struct ct_kv_value *value, uint64_t timeout_ms)
{
    struct ct_thread_world *world = context;
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + timeout_ms;
    struct entry *entry;
    int code = 0;

    (void)pthread_mutex_lock(&world->lock);
    while ((entry = find(world, key)) == NULL && code == 0) {
        if (ct_control_page_revoked(&world->page, generation_of(world)))
            code = CT_EREVOKED;
        else if (ct_clock_mono_ms(&ct_clock_system) >= deadline_ms)
            code = CT_ETIMEOUT;
        else
            wait_for_change(world);
    }
    if (entry != NULL && entry->size > value->size)
        code = CT_ELIMIT;
    if (entry != NULL && code == 0) {
        memcpy(value->data, entry->value, entry->size);
        value->size = entry->size;
    }
    (void)pthread_mutex_unlock(&world->lock);
    return code;
}

static int kv_poll(void *context, const char *key, struct ct_kv_value *value, uint64_t patience_ms)
{
    (void)patience_ms; /* the reply comes at once */
    return kv_wait(context, key, value, 0);
}

static int kv_add(void *context, const char *key, int64_t delta, int64_t *ret_sum)
{
    struct ct_thread_world *world = context;

    (void)pthread_mutex_lock(&world->lock);
    const struct entry *entry = find(world, key);
    int64_t sum = delta;
    if (entry != NULL && entry->size == sizeof sum) {
        memcpy(&sum, entry->value, sizeof sum);
        sum += delta;
    }
    int code = store(world, key, &sum, sizeof sum);
    (void)pthread_mutex_unlock(&world->lock);
    if (code == 0)
        *ret_sum = sum;
    return code;
}

/* ---- segments --------------------------------------------------------------------------------*/

void *ct_world_segment_new(struct ct_thread_world *world, size_t bytes, int members)
{
    struct segment *segment = calloc(1, sizeof *segment);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (segment == NULL || memory == MAP_FAILED) {
        free(segment);
        if (memory != MAP_FAILED)
            (void)munmap(memory, bytes);
        return NULL;
    }
    *segment =
        (struct segment){.world = world, .memory = memory, .bytes = bytes, .members = members};
    (void)pthread_mutex_lock(&world->lock);
    segment->next = world->segments;
    world->segments = segment;
    (void)pthread_mutex_unlock(&world->lock);
    return segment;
}

void *ct_world_segment_memory(void *segment)
{
    return ((struct segment *)segment)->memory;
}

static void segment_free(struct segment *segment)
{
    (void)munmap(segment->memory, segment->bytes);
    free(segment);
}

void ct_world_segment_leave(void *segment)
{
    struct segment *leaving = segment;
    struct ct_thread_world *world = leaving->world;

    (void)pthread_mutex_lock(&world->lock);
    bool last = --leaving->members == 0;
    if (last) {
        struct segment **link = &world->segments;

        while (*link != leaving)
            link = &(*link)->next;
        *link = leaving->next;
    }
    (void)pthread_mutex_unlock(&world->lock);
    if (last)
        segment_free(leaving);
}

/* ---- the world -------------------------------------------------------------------------------*/

int ct_thread_world_new(int world, struct ct_thread_world **ret_world)
{
    return ct_thread_world_new_nodes(world, 1, ret_world);
}

int ct_thread_world_new_nodes(int world, int nodes, struct ct_thread_world **ret_world)
{
    struct ct_thread_world *made = calloc(1, sizeof *made);
    int slots = world / nodes;

    CT_ASSERT(world >= 1 && world <= WORLD_MAX && slots * nodes == world);
    if (made == NULL)
        return CT_ENOMEM;
    made->size = world;
    for (int i = 0; i < nodes; i++)
        made->nodes[i] = (struct ct_job_node){.first_rank = i * slots, .slots = slots};
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->changed, NULL);
    for (int rank = 0; rank < world; rank++)
        made->jobs[rank] = (struct ct_job){
            .assignment = {.run_id = "threads",
                           .generation = 1,
                           .base_rank = -1,
                           .rank = rank,
                           .world = world,
                           .local_rank = rank % slots,
                           .local_world = slots,
                           .node_rank = rank / slots,
                           .nnodes = nodes},
            .nodes = made->nodes,
            .address = "127.0.0.1",
            .kv = {kv_set, kv_wait, made, kv_set, kv_poll, kv_add},
            .page = &made->page,
            .names = ct_job_names_new(),
            .world = made,
        };
    for (int rank = 0; rank < WORLD_MAX; rank++)
        ct_memory_init(&made->jobs[rank].memory);
    for (int rank = 0; rank < world; rank++)
        if (made->jobs[rank].names == NULL) {
            ct_thread_world_free(made);
            return CT_ENOMEM;
        }
    *ret_world = made;
    return 0;
}

void ct_thread_world_free(struct ct_thread_world *world)
{
    if (world == NULL)
        return;
    for (int rank = 0; rank < WORLD_MAX; rank++) {
        ct_job_state_free(world->jobs[rank].state);
        ct_job_resources_close(&world->jobs[rank]);
        ct_job_names_free(world->jobs[rank].names);
        ct_memory_deinit(&world->jobs[rank].memory);
    }
    while (world->entries != NULL) {
        struct entry *entry = world->entries;

        world->entries = entry->next;
        free(entry->key);
        free(entry->value);
        free(entry);
    }
    while (world->segments != NULL) {
        struct segment *segment = world->segments;

        world->segments = segment->next;
        segment_free(segment);
    }
    (void)pthread_cond_destroy(&world->changed);
    (void)pthread_mutex_destroy(&world->lock);
    free(world);
}

struct ct_job *ct_thread_world_job(struct ct_thread_world *world, int rank)
{
    CT_ASSERT(rank >= 0 && rank < world->size);
    return &world->jobs[rank];
}

void ct_thread_world_revoke(struct ct_thread_world *world)
{
    ct_control_page_revoke(&world->page, generation_of(world));
}
