/* See replicas.h. Steps are numbered: a replica that has done as many as were asked for sleeps. A
 * replica that fails revokes the world, so nobody waits for it. */
#include "collectives/exec/replicas.h"

#include "base/assert.h"
#include "job/thread_world.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct replica {
    struct ct_replicas *all;
    struct ct_job *job;
    struct ct_plan plan;
    struct ct_device *device;
    pthread_t thread;
    struct ct_error error; /* under the mutex: why it ended; code 0 while it works */
};

struct ct_replicas {
    struct ct_thread_world *world;
    struct ct_group *group; /* the root's */
    struct replica *replicas;
    int count, started; /* replicas, and threads of them */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex: */
    uint64_t asked;           /* steps */
    int busy;                 /* replicas in the step at hand */
    struct ct_exec_step args; /* of the step at hand */
    bool quit;
};

/* ---- a replica ------------------------------------------------------------------------------ */

/* Sleep until there is a step to do; false when there will be none. */
static bool next_step(struct ct_replicas *all, uint64_t done, struct ct_exec_step *ret_args)
{
    pthread_mutex_lock(&all->mutex);
    while (!all->quit && all->asked == done)
        pthread_cond_wait(&all->changed, &all->mutex);
    bool more = !all->quit;
    *ret_args = all->args;
    pthread_mutex_unlock(&all->mutex);
    return more;
}

static void end_step(struct ct_replicas *all)
{
    pthread_mutex_lock(&all->mutex);
    all->busy--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
}

/* The replica's life: 0, or why it ended. */
static int serve(struct replica *replica, struct ct_error *err)
{
    struct ct_exec_options options = {.device = replica->device};
    struct ct_exec_result result;
    struct ct_exec_step args;
    struct ct_exec *exec = NULL;
    int code = ct_group_new(replica->job, NULL, &options.group, err);

    if (code == 0)
        code = ct_exec_new(&exec, &replica->plan, &options, err);
    for (uint64_t done = 0; code == 0 && next_step(replica->all, done, &args); done++) {
        code = ct_exec_step(exec, &args, &result, err);
        if (code == 0)
            end_step(replica->all);
    }
    ct_exec_free(exec);
    ct_group_free(options.group);
    return code;
}

static void *replica_main(void *context)
{
    struct replica *replica = context;
    struct ct_replicas *all = replica->all;
    struct ct_error err = {0};
    int code = serve(replica, &err);

    if (code == 0)
        return NULL;
    ct_thread_world_revoke(all->world);
    pthread_mutex_lock(&all->mutex);
    replica->error = err;
    replica->error.code = code;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Signals are for the program's own threads. */
static int start_thread(struct replica *replica, struct ct_error *err)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&replica->thread, NULL, replica_main, replica);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return ct_error_set(err, CT_EOS, "cannot start a replica's thread: %s", strerror(rc));
    replica->all->started++;
    return 0;
}

static int add_replica(struct ct_replicas *all, const struct ct_model_spec *spec,
                       const struct ct_plan_options *options, uint64_t seed, int threads,
                       struct ct_error *err)
{
    struct replica *replica = &all->replicas[all->count++];
    const struct ct_cpu_options cpu = {.threads = threads};
    struct ct_plan_options own = *options;

    own.rank = all->count;
    replica->all = all;
    replica->job = ct_thread_world_job(all->world, own.rank);
    int code = ct_plan_build(&replica->plan, spec, &own, seed, err);
    return code == 0 ? ct_device_cpu_new(&cpu, &replica->device, err) : code;
}

int ct_replicas_new(struct ct_replicas **ret_replicas, const struct ct_model_spec *spec,
                    const struct ct_plan_options *options, uint64_t seed, int threads,
                    struct ct_error *err)
{
    int others = options->world - 1, code = 0;
    struct ct_replicas *all = calloc(1, sizeof *all);

    CT_ASSERT(options->rooted && options->rank == 0);
    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %d replicas", options->world);
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->changed, NULL);
    all->replicas = calloc((size_t)others + 1, sizeof *all->replicas);
    if (all->replicas == NULL || ct_thread_world_new(options->world, &all->world) != 0)
        goto out_of_memory;
    for (int i = 0; i < others && code == 0; i++)
        code = add_replica(all, spec, options, seed, threads, err);
    for (int i = 0; i < others && code == 0; i++)
        code = start_thread(&all->replicas[i], err);
    if (code == 0)
        code = ct_group_new(ct_thread_world_job(all->world, 0), NULL, &all->group, err);
    if (code != 0) {
        ct_replicas_free(all);
        return code;
    }
    *ret_replicas = all;
    return 0;
out_of_memory:
    ct_replicas_free(all);
    return ct_error_set(err, CT_ENOMEM, "no memory for %d replicas", options->world);
}

void ct_replicas_free(struct ct_replicas *all)
{
    if (all == NULL)
        return;
    pthread_mutex_lock(&all->mutex);
    all->quit = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
    if (all->world != NULL)
        ct_thread_world_revoke(all->world); /* whoever waits for a root that did not come */
    for (int i = 0; i < all->started; i++)
        pthread_join(all->replicas[i].thread, NULL);
    for (int i = 0; i < all->count; i++) {
        ct_device_free(all->replicas[i].device);
        ct_plan_deinit(&all->replicas[i].plan);
    }
    ct_group_free(all->group);
    ct_thread_world_free(all->world);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->mutex);
    free(all->replicas);
    free(all);
}

struct ct_group *ct_replicas_group(struct ct_replicas *all)
{
    return all->group;
}

/* The first replica that has ended, or NULL. Under the mutex. */
static const struct ct_error *ended(const struct ct_replicas *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->replicas[i].error.code != 0)
            return &all->replicas[i].error;
    return NULL;
}

int ct_replicas_step(struct ct_replicas *all, struct ct_exec *root, const struct ct_exec_step *args,
                     struct ct_exec_result *ret_result, struct ct_error *err)
{
    pthread_mutex_lock(&all->mutex);
    all->args = *args;
    all->args.x = all->args.labels = NULL; /* these come by the root's message */
    all->args.wish = false;
    all->busy = all->count;
    all->asked++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);

    int code = ct_exec_step(root, args, ret_result, err);

    pthread_mutex_lock(&all->mutex);
    while (code == 0 && all->busy > 0 && ended(all) == NULL)
        pthread_cond_wait(&all->changed, &all->mutex);
    const struct ct_error *why = ended(all);
    if (code == 0 && why != NULL)
        code = ct_error_set(err, why->code, "a replica: %s", why->text);
    pthread_mutex_unlock(&all->mutex);
    return code;
}
