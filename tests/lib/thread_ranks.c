/* See thread_ranks.h. */
#include "thread_ranks.h"

#include "algorithm/domains.h"
#include "base/assert.h"
#include "job/job.h"

#include <pthread.h>

enum { RANKS_MAX = 64 };

struct rank_thread {
    pthread_t thread;
    struct ct_job *job;
    int (*body)(struct ct_job *job, void *context);
    void *context;
    int result;
};

static void *run_rank(void *argument)
{
    struct rank_thread *rank = argument;

    rank->result = rank->body(rank->job, rank->context);
    return NULL;
}

static int size_of(struct ct_thread_world *world)
{
    return ct_thread_world_job(world, 0)->assignment.world;
}

int thread_ranks_run(struct ct_thread_world *world, int (*body)(struct ct_job *job, void *context),
                     void *context)
{
    struct rank_thread ranks[RANKS_MAX];
    int size = size_of(world), started = 0, result = 0;

    CT_ASSERT(size <= RANKS_MAX);
    for (; started < size && result == 0; started++) {
        ranks[started] = (struct rank_thread){
            .job = ct_thread_world_job(world, started), .body = body, .context = context};
        result = -pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]);
    }
    if (result != 0) {
        started--;
        ct_thread_world_revoke(world);
    }
    for (int rank = 0; rank < started; rank++) {
        (void)pthread_join(ranks[rank].thread, NULL);
        result = result != 0 ? result : ranks[rank].result;
    }
    return result;
}

void thread_ranks_seat(struct ct_thread_world *world, const struct ct_seat *seats)
{
    for (int rank = 0; rank < size_of(world); rank++)
        ct_thread_world_job(world, rank)->seat = &seats[rank];
}

void thread_ranks_next_round(struct ct_thread_world *world)
{
    for (int rank = 0; rank < size_of(world); rank++)
        ct_thread_world_job(world, rank)->assignment.generation++;
}
