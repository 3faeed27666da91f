/* See prefetch.h.
 *
 * `filled` and `released` count slots; slot i % SLOTS belongs to the reader while
 * taken <= i < taken + SLOTS, and to the caller once filled > i. Both change under the mutex
 * alone; the slots themselves are touched by their owner without it. */
#include "data/prefetch.h"

#include "base/assert.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2 };

struct slot {
    struct ct_batch_buffer buffer;
    struct ct_sampler_batch batch;
};

struct ct_prefetch {
    const struct ct_dataset *dataset;
    struct ct_prefetch_options options;
    struct slot slots[SLOTS];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t filled;
    uint64_t released; /* slots that the caller has given back */
    bool holding;      /* the caller uses slot taken % SLOTS */
    bool stopping;
    bool started;
};

static void *run(void *context)
{
    struct ct_prefetch *prefetch = context;
    uint64_t position = prefetch->options.position;

    (void)pthread_mutex_lock(&prefetch->mutex);
    for (;;) {
        while (!prefetch->stopping && prefetch->filled == prefetch->released + SLOTS)
            (void)pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
        if (prefetch->stopping)
            break;
        struct slot *slot = &prefetch->slots[prefetch->filled % SLOTS];
        (void)pthread_mutex_unlock(&prefetch->mutex);
        slot->batch = ct_sampler_fill(&prefetch->options.sampler, prefetch->dataset,
                                      &prefetch->options.share, position, &slot->buffer);
        position = slot->batch.next;
        (void)pthread_mutex_lock(&prefetch->mutex);
        prefetch->filled++;
        (void)pthread_cond_broadcast(&prefetch->changed);
    }
    (void)pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

int ct_prefetch_new(struct ct_prefetch **ret, const struct ct_dataset *dataset,
                    const struct ct_prefetch_options *options, struct ct_error *err)
{
    struct ct_prefetch *prefetch = calloc(1, sizeof *prefetch);
    size_t rows = ct_share_rows(&options->share);
    int code = prefetch != NULL ? 0 : CT_ENOMEM;

    if (prefetch != NULL) {
        prefetch->dataset = dataset;
        prefetch->options = *options;
        (void)pthread_mutex_init(&prefetch->mutex, NULL);
        (void)pthread_cond_init(&prefetch->changed, NULL);
    }
    for (int i = 0; code == 0 && i < SLOTS; i++) {
        struct ct_batch_buffer *buffer = &prefetch->slots[i].buffer;
        buffer->x = calloc(rows * dataset->width, sizeof(float));
        buffer->labels = calloc(rows * dataset->labels_per_row, sizeof *buffer->labels);
        if (buffer->x == NULL || buffer->labels == NULL)
            code = CT_ENOMEM;
    }
    if (code != 0) {
        ct_prefetch_free(prefetch);
        return ct_error_set(err, code, "out of memory for two batches of %zu rows", rows);
    }
    int problem = pthread_create(&prefetch->thread, NULL, run, prefetch);
    if (problem != 0) {
        ct_prefetch_free(prefetch);
        return ct_error_set(err, CT_EOS, "the data reading thread cannot be started: %s",
                            strerror(problem));
    }
    prefetch->started = true;
    *ret = prefetch;
    return 0;
}

struct ct_prefetch_batch ct_prefetch_next(struct ct_prefetch *prefetch)
{
    (void)pthread_mutex_lock(&prefetch->mutex);
    if (prefetch->holding) {
        prefetch->released++;
        (void)pthread_cond_broadcast(&prefetch->changed);
    }
    while (prefetch->filled == prefetch->released)
        (void)pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    prefetch->holding = true;
    (void)pthread_mutex_unlock(&prefetch->mutex);

    const struct slot *slot = &prefetch->slots[prefetch->released % SLOTS];
    return (struct ct_prefetch_batch){
        .x = slot->buffer.x, .labels = slot->buffer.labels, .batch = slot->batch};
}

void ct_prefetch_free(struct ct_prefetch *prefetch)
{
    if (prefetch == NULL)
        return;
    if (prefetch->started) {
        (void)pthread_mutex_lock(&prefetch->mutex);
        prefetch->stopping = true;
        (void)pthread_cond_broadcast(&prefetch->changed);
        (void)pthread_mutex_unlock(&prefetch->mutex);
        (void)pthread_join(prefetch->thread, NULL);
    }
    for (int i = 0; i < SLOTS; i++) {
        free(prefetch->slots[i].buffer.x);
        free(prefetch->slots[i].buffer.labels);
    }
    (void)pthread_cond_destroy(&prefetch->changed);
    (void)pthread_mutex_destroy(&prefetch->mutex);
    free(prefetch);
}
