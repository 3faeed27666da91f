/* Jobs, from the JOIN that begins one to the end of what is known of it; whose they are. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ct_service_free_job(struct ct_service_job *job)
{
    struct ct_accounts *accounts = &job->service->accounts;

    ct_store_free(job->store); /* gives back what it was charged */
    ct_accounts_give(accounts, job->account, CT_QUOTA_JOBS, 1);
    ct_accounts_leave(accounts, job->account);
    ct_history_free(job->history);
    ct_figures_deinit(&job->figures);
    ct_rdzv_free(job->core);
    free(job->sets);
    free(job->waits);
    ct_arena_deinit(&job->runs_arena);
    ct_admin_forget(job);
    free(job);
}

/* ---- their stores ---- */

/* 0; CT_ELIMIT: then nothing of it is charged. */
static int charge(struct ct_service_job *job, enum ct_quota quota, ptrdiff_t amount)
{
    struct ct_accounts *accounts = &job->service->accounts;

    if (amount > 0)
        return ct_accounts_take(accounts, job->account, quota, (uint64_t)amount,
                                &job->service->refusal);
    ct_accounts_give(accounts, job->account, quota, (uint64_t)-amount);
    return 0;
}

/* ct_store_charge_fn: the store grows or shrinks. */
static bool charge_store(void *context, ptrdiff_t places, ptrdiff_t bytes)
{
    struct ct_service_job *job = context;

    if (charge(job, CT_QUOTA_KEYS, places) == 0) {
        if (charge(job, CT_QUOTA_BYTES, bytes) == 0)
            return true;
        (void)charge(job, CT_QUOTA_KEYS, -places);
    }
    job->store_refused = true;
    return false;
}

/* ---- the list ---- */

struct ct_service_job *ct_service_find_job(const struct ct_service *service, const char *name)
{
    struct ct_service_job *job = service->jobs;
    while (job != NULL && strcmp(ct_rdzv_name(job->core), name) != 0)
        job = job->next;
    return job;
}

struct ct_service_job *ct_service_add_job(struct ct_service *service, uint64_t now_ms,
                                          struct ct_rdzv *core)
{
    struct ct_service_job *job = core != NULL ? calloc(1, sizeof(*job)) : NULL;
    if (job == NULL) {
        ct_rdzv_free(core);
        return NULL;
    }
    job->service = service;
    job->core = core;
    ct_rdzv_set_rebuild(core, service->rebuild);
    ct_accounts_charge(&service->accounts, NULL, CT_QUOTA_JOBS, 1);
    struct ct_store_limits limits = {.charge = charge_store};
    memcpy(limits.hash_key, service->limits.hash_key, sizeof(limits.hash_key));
    job->store = ct_store_new(&limits, ct_service_on_reply, job);
    job->history = ct_history_new(now_ms);
    if (job->store == NULL || job->history == NULL) {
        ct_service_free_job(job);
        return NULL;
    }
    job->next = service->jobs;
    service->jobs = job;
    service->job_count++;
    ct_service_touch(job);
    return job;
}

void ct_service_touch(struct ct_service_job *job)
{
    uint64_t due = ct_rdzv_deadline(job->core);

    due = CT_MIN(due, ct_store_deadline(job->store));
    due = CT_MIN(due, ct_history_deadline(job->history));
    job->due_ms = due;
    job->service->due_ms = CT_MIN(job->service->due_ms, due);
}

void ct_service_touch_all(struct ct_service *service)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_service_touch(job);
}

void ct_service_remove_job(struct ct_service *service, struct ct_service_job *job)
{
    struct ct_service_job **at = &service->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    service->job_count--;
    ct_service_forget_records(service, job);
    ct_service_end_following(service, job);
    ct_service_free_job(job);
}

/* A journal that cannot be told so now will bring the job back, closed, and it is forgotten again.
 */
static void forget(struct ct_service *service, struct ct_service_job *job)
{
    if (service->io.persist != NULL && ct_rdzv_generation(job->core) > 0)
        ct_service_persist_forget(service, ct_rdzv_name(job->core));
    ct_service_remove_job(service, job);
}

/* The job has ended and nobody is here. Its result is kept for those who were away. */
static bool is_over(const struct ct_service_job *job)
{
    return ct_rdzv_phase(job->core) == CT_RDZV_CLOSED && job->links == 0;
}

void ct_service_reap(struct ct_service_job *job)
{
    if (ct_rdzv_is_idle(job->core) && job->links == 0)
        forget(job->service, job);
}

/* ---- whose they are ---- */

/* Of a journal nobody knows: it is his who comes to it first. */
static void adopt(struct ct_service_job *job, struct ct_account *account)
{
    struct ct_accounts *accounts = &job->service->accounts;
    const uint64_t has[CT_QUOTAS] = {[CT_QUOTA_JOBS] = 1,
                                     [CT_QUOTA_BYTES] = ct_store_bytes(job->store),
                                     [CT_QUOTA_KEYS] = ct_store_places(job->store)};

    if (job->account != NULL || account == NULL)
        return;
    ct_accounts_hold(account);
    job->account = account;
    for (enum ct_quota i = 0; i < CT_QUOTAS; i++) {
        ct_accounts_give(accounts, NULL, i, has[i]);
        ct_accounts_charge(accounts, account, i, has[i]);
    }
}

/* ---- beginning ---- */

/* It never had a round, and nobody is connected: its nodes would begin it anew. */
static bool is_abandoned(const struct ct_service_job *job)
{
    return ct_rdzv_generation(job->core) == 0 && job->links == 0;
}

/* The oldest job that nobody needs; of `account`, unless that is NULL. */
static struct ct_service_job *oldest_unneeded(const struct ct_service *service,
                                              const struct ct_account *account)
{
    struct ct_service_job *oldest = NULL;

    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        if ((account == NULL || job->account == account) && (is_over(job) || is_abandoned(job)))
            oldest = job;
    return oldest;
}

/* A new job is worth more than the result of an old one, or than one that nobody waits for. Those
 * of its own account give way first; those of others where the daemon has no place at all. */
static void make_room(struct ct_service *service, const struct ct_account *account)
{
    const struct ct_accounts *accounts = &service->accounts;

    while (!ct_accounts_has_room(accounts, account, CT_QUOTA_JOBS, 1)) {
        struct ct_service_job *job = oldest_unneeded(service, account);
        if (job == NULL && ct_accounts_is_full(accounts, CT_QUOTA_JOBS, 1))
            job = oldest_unneeded(service, NULL);
        if (job == NULL)
            return;
        forget(service, job);
    }
}

/* What a job may ask for: none of it keeps a name, or a place here, for ever. */
static int check_times(const char *job, const struct ct_rdzv_params *params, struct ct_error *err)
{
    const struct {
        const char *what, *remedy;
        uint32_t asked_ms, most_ms;
    } rows[] = {
        {"a lease", "--lease", params->lease_ms, CT_SERVICE_LEASE_MS},
        {"an autonomy", "autonomy", params->autonomy_ms, CT_SERVICE_AUTONOMY_MS},
        {"a join timeout", "--join_timeout", params->join_timeout_ms, CT_SERVICE_JOIN_MS},
        {"a last call", "--last_call", params->last_call_ms, CT_SERVICE_STEP_MS},
        {"a time to stop its workers", "--grace", params->prepare_ms, CT_SERVICE_STEP_MS},
        {"a time to collect newcomers", "--grow", params->grow_ms, CT_SERVICE_STEP_MS},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        if (rows[i].asked_ms > rows[i].most_ms)
            return ct_error_set(err, CT_EUSAGE,
                                "job %s asks for %s of %u ms, this rendezvous gives %u ms at most: "
                                "set a lower %s",
                                job, rows[i].what, rows[i].asked_ms, rows[i].most_ms,
                                rows[i].remedy);
    return 0;
}

static struct ct_service_job *begin(struct ct_service *service, uint64_t now_ms,
                                    const struct ct_service_link *link,
                                    const struct ct_rdzv_params *params, struct ct_error *err)
{
    struct ct_service_job *job;

    if (check_times(link->job_name, params, err) != 0 || ct_rdzv_params_check(params, err) != 0)
        return NULL;
    make_room(service, link->account);
    if (ct_accounts_check(&service->accounts, link->account, CT_QUOTA_JOBS, 1, err) != 0)
        return NULL;
    job = ct_service_add_job(service, now_ms,
                             ct_rdzv_new(link->job_name, params, service->epoch, now_ms));
    if (job == NULL)
        ct_error_set(err, CT_ENOMEM, "the rendezvous has no memory for job %s", link->job_name);
    return job;
}

struct ct_service_job *ct_service_demand_job(struct ct_service *service, uint64_t now_ms,
                                             const struct ct_service_link *link,
                                             const struct ct_rdzv_params *params, bool is_fresh)
{
    struct ct_service_job *job = ct_service_find_job(service, link->job_name);
    if (job != NULL && is_fresh && is_over(job)) {
        uint64_t wait_ms = ct_rdzv_reusable_ms(job->core, now_ms);
        if (wait_ms > 0) {
            char text[512];
            (void)snprintf(text, sizeof(text),
                           "job %s has just ended and not all its nodes know; another of that name "
                           "can begin in %" PRIu64 " ms",
                           link->job_name, wait_ms);
            ct_service_refuse(service, link->number, CT_EUNAVAILABLE, (uint32_t)wait_ms, text);
            return NULL;
        }
        forget(service, job);
        job = NULL;
    }
    if (job != NULL) {
        adopt(job, link->account);
        return job;
    }
    struct ct_error err = {0};
    job = begin(service, now_ms, link, params, &err);
    if (job == NULL) {
        ct_service_refuse(
            service, link->number, err.code,
            err.code == CT_ELIMIT ? ct_accounts_retry_ms(&service->accounts, now_ms) : 0, err.text);
        return NULL;
    }
    adopt(job, link->account);
    ct_service_warn_of_limit(service, link->job_name, params->nodes_max);
    ct_service_note_begin(job, now_ms);
    return job;
}
