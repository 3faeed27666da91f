/* See asker.h. */
#include "cmd/ctrun/top/asker.h"

#include "base/str.h"
#include "rendezvous/service/admin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 1000, END_MS = 200, ANSWERS_MOST = 8 /* of events, at a time */ };

struct top_asker {
    struct admin_request request;
    int wake_fd;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct top_news news;
    struct top_order order;
    bool has_order, is_over;
};

void top_news_deinit(struct top_news *news)
{
    top_snapshot_free(news->snapshot);
    ct_buf_deinit(&news->events);
    *news = (struct top_news){.snapshot = NULL};
}

static void wake(const struct top_asker *asker)
{
    const uint64_t one = 1;

    (void)!write(asker->wake_fd, &one, sizeof one);
}

/* ---- status and events ----------------------------------------------------------------------- */

static struct top_snapshot *ask_status(struct top_asker *asker, struct ct_error *err)
{
    struct admin_request request = asker->request;
    struct top_snapshot *snapshot = NULL;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    request.ask.admin.verb = CT_ADMIN_STATUS;
    request.ask.admin.json = CT_ADMIN_HISTORY;
    err->code = admin_ask(&request, &text, err);
    if (err->code == 0 && text.failed)
        (void)ct_error_set(err, CT_ENOMEM, "no memory for the status");
    else if (err->code == 0)
        snapshot = top_snapshot_new(ct_buf_str(&text), err);
    ct_buf_deinit(&text);
    return snapshot;
}

/* The number of the last record of an answer. */
static uint64_t last_number(const char *answer)
{
    static const char key[] = "\"number\":";
    uint64_t number = 0;

    for (const char *at = answer; (at = strstr(at, key)) != NULL;)
        number = strtoull(at += sizeof key - 1, NULL, 10);
    return number;
}

/* Append the records that are new. Where several jobs are hosted on this machine there is nobody to
 * ask for the events of all. */
static void ask_events(struct top_asker *asker, struct ct_buf *to, struct ct_error *err)
{
    struct admin_request request = asker->request;
    struct ct_msg_admin *ask = &asker->request.ask.admin;
    struct ct_buf answer;

    ct_buf_init(&answer, 0);
    for (int i = 0; i < ANSWERS_MOST; i++) {
        ct_buf_clear(&answer);
        request.ask.admin.verb = CT_ADMIN_EVENTS;
        request.ask.admin.after = ask->after;
        err->code = admin_ask(&request, &answer, err);
        if (err->code != 0 || answer.size == 0)
            break;
        uint64_t last = last_number(ct_buf_str(&answer));
        (void)ct_buf_append(to, answer.data, answer.size);
        if (last == 0)
            break;
        ask->after = last;
    }
    ct_buf_deinit(&answer);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void give_order(struct top_asker *asker, const struct top_order *order)
{
    static const enum ct_admin_verb verbs[TOP_ORDERS] = {
        [TOP_ORDER_DRAIN] = CT_ADMIN_DRAIN,
        [TOP_ORDER_CORDON] = CT_ADMIN_CORDON,
        [TOP_ORDER_UNCORDON] = CT_ADMIN_UNCORDON,
        [TOP_ORDER_TAKEOVER] = CT_ADMIN_TAKEOVER,
    };
    struct admin_request request = asker->request;
    struct ct_error err = {0};
    char job[TOP_NAME];
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_str_copy(job, sizeof job, order->job);
    request.cfg.launch.rdzv_id = job;
    request.ask.admin.verb = (uint8_t)verbs[order->kind];
    request.ask.admin.host = order->host;
    request.ask.admin.author = request.author;
    request.ask.admin.reason = "ctrun top";
    err.code = admin_ask(&request, &text, &err);
    (void)pthread_mutex_lock(&asker->lock);
    asker->news.was_ordered = true;
    asker->news.refusal = err;
    (void)snprintf(asker->news.answer, sizeof asker->news.answer, "%s %s%s%.300s",
                   top_orders[order->kind].name, order->host, order->host[0] != '\0' ? ": " : "",
                   ct_buf_str(&text));
    (void)pthread_mutex_unlock(&asker->lock);
    ct_buf_deinit(&text);
    wake(asker);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Put them to what has not been taken yet. */
static void add_news(struct top_asker *asker, const struct top_news *news)
{
    struct top_snapshot *old = NULL;

    (void)pthread_mutex_lock(&asker->lock);
    if (news->snapshot != NULL) {
        old = asker->news.snapshot;
        asker->news.snapshot = news->snapshot;
    }
    asker->news.was_asked = true;
    asker->news.error = news->error;
    asker->news.no_events = news->no_events;
    if (news->events.size > 0)
        (void)ct_buf_append(&asker->news.events, news->events.data, news->events.size);
    (void)pthread_mutex_unlock(&asker->lock);
    top_snapshot_free(old);
    wake(asker);
}

static void ask_once(struct top_asker *asker)
{
    struct top_news news = {.snapshot = NULL};

    ct_buf_init(&news.events, 0);
    news.snapshot = ask_status(asker, &news.error);
    if (news.error.code == 0)
        ask_events(asker, &news.events, &news.no_events);
    add_news(asker, &news);
    ct_buf_deinit(&news.events);
}

/* Until there is an order, or the pause is over, or the end. Returns whether there is an order. */
static bool wait_for_order(struct top_asker *asker, struct top_order *ret)
{
    struct timespec until;
    bool has_order;
    int rc = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PAUSE_MS / 1000;
    (void)pthread_mutex_lock(&asker->lock);
    while (!asker->has_order && !asker->is_over && rc == 0)
        rc = pthread_cond_timedwait(&asker->changed, &asker->lock, &until);
    has_order = asker->has_order;
    asker->has_order = false;
    *ret = asker->order;
    (void)pthread_mutex_unlock(&asker->lock);
    return has_order;
}

static bool is_over(struct top_asker *asker)
{
    (void)pthread_mutex_lock(&asker->lock);
    bool over = asker->is_over;
    (void)pthread_mutex_unlock(&asker->lock);
    return over;
}

static void *run(void *context)
{
    struct top_asker *asker = context;
    struct top_order order;

    while (!is_over(asker)) {
        ask_once(asker);
        if (wait_for_order(asker, &order))
            give_order(asker, &order);
    }
    return NULL;
}

/* ---- the screen's side ----------------------------------------------------------------------- */

int top_asker_start(struct top_asker **ret, const struct admin_request *where, int wake_fd,
                    struct ct_error *err)
{
    struct top_asker *asker = calloc(1, sizeof *asker);
    pthread_condattr_t attributes;

    if (asker == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    asker->request = *where;
    asker->request.ask.admin.author = asker->request.author;
    asker->wake_fd = wake_fd;
    ct_buf_init(&asker->news.events, 0);
    (void)pthread_mutex_init(&asker->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&asker->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    int rc = pthread_create(&asker->thread, NULL, run, asker);
    if (rc == 0) {
        *ret = asker;
        return 0;
    }
    free(asker);
    return ct_error_set(err, CT_EOS, "no thread can be started: %s", strerror(rc));
}

void top_asker_take(struct top_asker *asker, struct top_news *ret)
{
    (void)pthread_mutex_lock(&asker->lock);
    *ret = asker->news;
    asker->news = (struct top_news){.snapshot = NULL};
    ct_buf_init(&asker->news.events, 0);
    (void)pthread_mutex_unlock(&asker->lock);
}

void top_asker_order(struct top_asker *asker, const struct top_order *order)
{
    (void)pthread_mutex_lock(&asker->lock);
    asker->order = *order;
    asker->has_order = true;
    (void)pthread_cond_signal(&asker->changed);
    (void)pthread_mutex_unlock(&asker->lock);
}

bool top_asker_stop(struct top_asker *asker)
{
    struct timespec until;

    (void)pthread_mutex_lock(&asker->lock);
    asker->is_over = true;
    (void)pthread_cond_signal(&asker->changed);
    (void)pthread_mutex_unlock(&asker->lock);
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += END_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (pthread_clockjoin_np(asker->thread, NULL, CLOCK_MONOTONIC, &until) != 0)
        return false;
    top_news_deinit(&asker->news);
    (void)pthread_cond_destroy(&asker->changed);
    (void)pthread_mutex_destroy(&asker->lock);
    free(asker);
    return true;
}
