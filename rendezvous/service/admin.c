/* Operators' messages; see admin.h. */
#include "rendezvous/service/admin.h"

#include "rendezvous/service/service_state.h"

#include "base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ct_service_answer(struct ct_service *service, uint64_t link, int code, const char *text)
{
    struct ct_service_link *of = ct_service_link_of(service, link);
    if (of != NULL)
        ct_service_audit_answer(service, of, code, text);
    struct ct_message message = {
        .type = CT_MSG_ADMIN_REPLY,
        .admin_reply = {.code = code,
                        .text = {.data = (const unsigned char *)text, .size = strlen(text)}},
    };
    ct_service_send(service, link, &message);
}

bool ct_admin_means(const struct ct_service *service, const struct ct_service_link *link,
                    const struct ct_service_job *job)
{
    const char *name = ct_rdzv_name(job->core);
    if (link->job_name[0] != '\0')
        return strcmp(link->job_name, name) == 0;
    return ct_service_may(service, link, CT_RIGHT_READ, name, NULL) == 0;
}

enum { NAMES_BYTES = 3500 }; /* of the jobs that are listed; the others are counted */

/* "a, b" */
static void add_names(const struct ct_service *service, const struct ct_service_link *link,
                      struct ct_buf *out)
{
    const char *separator = "";
    uint32_t left_out = 0;
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        const char *name = ct_rdzv_name(job->core);
        if (ct_service_may(service, link, CT_RIGHT_READ, name, NULL) != 0)
            continue;
        if (out->size >= NAMES_BYTES) {
            left_out++;
            continue;
        }
        (void)ct_buf_printf(out, "%s%s", separator, name);
        separator = ", ";
    }
    if (left_out > 0)
        (void)ct_buf_printf(out, " and %u more", left_out);
}

/* Of jobs that are not this connection's nothing is told. */
static void answer_none(struct ct_service *service, const struct ct_service_link *link)
{
    struct ct_buf text, names;
    ct_buf_init(&text, 8192);
    ct_buf_init(&names, 4096);
    add_names(service, link, &names);
    if (link->job_name[0] == '\0' && names.size == 0)
        (void)ct_buf_puts(&text, "no job is served here");
    else if (link->job_name[0] == '\0')
        (void)ct_buf_puts(&text, ct_buf_str(&names));
    else if (names.size == 0)
        (void)ct_buf_printf(&text, "no job %s is served here: name another with --rdzv_id",
                            link->job_name);
    else
        (void)ct_buf_printf(&text, "no job %s is served here; there are: %s", link->job_name,
                            ct_buf_str(&names));
    ct_service_answer(service, link->number, CT_ENOTFOUND, ct_buf_str(&text));
    ct_buf_deinit(&names);
    ct_buf_deinit(&text);
}

/* ---- status ---- */

void ct_admin_forget(struct ct_service_job *job)
{
    for (size_t i = 0; i < CT_COUNT(job->cached); i++) {
        free(job->cached[i].text);
        job->cached[i] = (struct ct_service_cached_text){.text = NULL};
    }
}

/* Courses begin in the first three quarters of the answer. */
static void describe(const struct ct_service_job *job, uint64_t now_ms, enum ct_admin_form form,
                     struct ct_buf *out)
{
    if (form == CT_ADMIN_TEXT)
        ct_admin_describe(job, now_ms, out);
    else
        ct_admin_describe_json(job, now_ms, SIZE_MAX, out);
    if (form == CT_ADMIN_HISTORY && !out->failed && out->size < CT_WIRE_VALUE_BYTES / 4 * 3)
        ct_admin_add_history(job, now_ms, out);
}

static void put_status(struct ct_service_job *job, uint64_t now_ms, enum ct_admin_form form,
                       struct ct_buf *out)
{
    struct ct_service_cached_text *cached = &job->cached[form];
    enum ct_rdzv_phase phase = ct_rdzv_phase(job->core);
    uint64_t generation = ct_rdzv_generation(job->core);
    size_t begin = out->size;

    if (cached->text != NULL && now_ms - cached->ms < CT_ADMIN_KEPT_MS && cached->phase == phase &&
        cached->generation == generation) {
        (void)ct_buf_puts(out, cached->text);
        return;
    }
    describe(job, now_ms, form, out);
    free(cached->text);
    cached->text = NULL;
    if (ct_rdzv_capacity(job->core) <= CT_ADMIN_MANY || out->failed)
        return;
    *cached = (struct ct_service_cached_text){.text = strdup(ct_buf_str(out) + begin),
                                              .ms = now_ms,
                                              .generation = generation,
                                              .phase = phase};
}

/* The status of many jobs takes as long as many questions. */
static void charge_status(struct ct_service_link *link, uint64_t now_ms, size_t jobs)
{
    for (size_t i = 0; i < jobs / CT_ADMIN_JOBS; i++) {
        (void)ct_pace_take(&link->pace, now_ms, CT_ADMIN_PER_S, CT_ADMIN_BURST);
        if (link->account != NULL)
            (void)ct_pace_take(&link->account->operators, now_ms, CT_ADMIN_PER_S * CT_ADMIN_ACCOUNT,
                               CT_ADMIN_BURST * CT_ADMIN_ACCOUNT);
    }
}

static void answer_status(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                          enum ct_admin_form form)
{
    const bool json = form != CT_ADMIN_TEXT;
    struct ct_buf text;
    size_t count = 0;
    ct_buf_init(&text, CT_WIRE_VALUE_BYTES);
    if (json)
        (void)ct_buf_puts(&text, "{\"jobs\":[");
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        if (!ct_admin_means(service, link, job))
            continue;
        if (count++ > 0)
            (void)ct_buf_puts(&text, json ? "," : "\n");
        put_status(job, now_ms, form, &text);
    }
    if (json)
        (void)ct_buf_puts(&text, "]");
    ct_admin_put_quotas(service, link, json, &text);
    charge_status(link, now_ms, count);
    if (json)
        (void)ct_buf_puts(&text, "}\n");
    if (count == 0)
        answer_none(service, link);
    else if (text.failed)
        ct_service_answer(service, link->number, CT_ELIMIT, "the status is too long to be sent");
    else
        ct_service_answer(service, link->number, 0, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void answer_events(struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, uint64_t after)
{
    bool any = false;
    struct ct_buf text;

    for (const struct ct_service_job *job = service->jobs; job != NULL && !any; job = job->next)
        any = ct_admin_means(service, link, job);
    if (!any) {
        answer_none(service, link);
        return;
    }
    ct_buf_init(&text, CT_WIRE_VALUE_BYTES);
    ct_service_put_events(service, now_ms, link, after, &text);
    ct_service_answer(service, link->number, text.failed ? CT_ENOMEM : 0, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void answer_follow(struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, uint64_t after)
{
    if (ct_service_add_follower(service, link))
        answer_events(service, now_ms, link, after);
    else
        ct_service_answer(service, link->number, CT_ELIMIT,
                          "as many as may follow events here do so: ask without --follow");
}

/* ---- orders ---- */

struct ct_service_job *ct_admin_job(struct ct_service *service, const struct ct_service_link *link)
{
    struct ct_service_job *found = NULL;
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        if (!ct_admin_means(service, link, job))
            continue;
        if (found != NULL) {
            struct ct_buf text;
            ct_buf_init(&text, 4096);
            (void)ct_buf_puts(&text, "several jobs are served here, name one with --rdzv_id: ");
            add_names(service, link, &text);
            ct_service_answer(service, link->number, CT_EUSAGE, ct_buf_str(&text));
            ct_buf_deinit(&text);
            return NULL;
        }
        found = job;
    }
    if (found == NULL)
        answer_none(service, link);
    return found;
}

void ct_service_on_progress(struct ct_service_job *job, uint64_t now_ms,
                            const struct ct_msg_progress *progress)
{
    double silent_s = job->progress_ms > 0 && now_ms > job->progress_ms
                          ? (double)(now_ms - job->progress_ms) / 1e3
                          : 0;

    job->elapsed_s = fmax(job->elapsed_s + silent_s, progress->elapsed_s);
    job->progress = *progress;
    job->progress_ms = now_ms;
    struct ct_history_event event = {.generation = progress->generation};
    ct_history_progress(job->history, now_ms, progress, &event);
    ct_service_note(job, now_ms, &event);
}

void ct_service_on_store_waits(struct ct_service_job *job, uint64_t now_ms,
                               const struct ct_msg_store_waits *m)
{
    free(job->waits);
    job->waits = m->text[0] != '\0' ? strdup(m->text) : NULL;
    job->waits_generation = m->generation;
    job->waits_ms = now_ms;
}

bool ct_admin_is_too_fast(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link)
{
    char text[512], who[128] = "this connection sends";
    uint32_t times = 1;
    uint64_t wait_ms = ct_pace_take(&link->pace, now_ms, CT_ADMIN_PER_S, CT_ADMIN_BURST);

    if (wait_ms == 0 && link->account != NULL) {
        (void)snprintf(who, sizeof(who), "operators of %s send", link->account->text);
        times = CT_ADMIN_ACCOUNT;
        wait_ms = ct_pace_take(&link->account->operators, now_ms, CT_ADMIN_PER_S * times,
                               CT_ADMIN_BURST * times);
    }
    if (wait_ms == 0) {
        (void)snprintf(who, sizeof(who), "operators send");
        times = CT_ADMIN_ALL;
        wait_ms =
            ct_pace_take(&service->pace, now_ms, CT_ADMIN_PER_S * times, CT_ADMIN_BURST * times);
    }
    if (wait_ms == 0)
        return false;
    (void)snprintf(text, sizeof(text),
                   "%s more than %u questions or orders a second: nothing was done, try again in "
                   "%" PRIu64 " ms",
                   who, CT_ADMIN_PER_S * times, wait_ms);
    ct_service_answer(service, link->number, CT_EUNAVAILABLE, text);
    return true;
}

static bool may_order(struct ct_service *service, const struct ct_service_link *link,
                      const char *job)
{
    struct ct_error err;
    int code = ct_service_may(service, link, CT_RIGHT_ORDER, job, &err);
    if (code != 0)
        ct_service_answer(service, link->number, code, err.text);
    return code == 0;
}

static void on_admin(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                     const struct ct_msg_admin *m)
{
    static const char *const names[CT_ADMIN_VERBS] = {
        [CT_ADMIN_STATUS] = "status", [CT_ADMIN_DRAIN] = "drain",
        [CT_ADMIN_CORDON] = "cordon", [CT_ADMIN_UNCORDON] = "uncordon",
        [CT_ADMIN_EVENTS] = "events", [CT_ADMIN_TAKEOVER] = "takeover",
        [CT_ADMIN_FOLLOW] = "events",
    };
    static const enum ct_rdzv_event_kind kinds[CT_ADMIN_VERBS] = {
        [CT_ADMIN_DRAIN] = CT_RDZV_ON_DRAIN,
        [CT_ADMIN_CORDON] = CT_RDZV_ON_CORDON,
        [CT_ADMIN_UNCORDON] = CT_RDZV_ON_UNCORDON,
    };
    link->asks = m->verb < CT_ADMIN_VERBS ? names[m->verb] : "unknown";
    if (m->verb == CT_ADMIN_TAKEOVER || (m->verb < CT_ADMIN_VERBS && kinds[m->verb] != 0))
        ct_service_audit_order(service, link, names[m->verb], m);
    if (m->verb >= CT_ADMIN_VERBS) {
        ct_service_answer(service, link->number, CT_EUNSUPPORTED,
                          "this rendezvous does not know what is asked for: install the same "
                          "version of ctrun everywhere");
        return;
    }
    if (ct_admin_is_too_fast(service, now_ms, link))
        return;
    if (m->verb == CT_ADMIN_STATUS) {
        ct_service_look(service, now_ms);
        answer_status(service, now_ms, link, CT_MIN(m->json, CT_ADMIN_HISTORY));
        return;
    }
    if (m->verb == CT_ADMIN_EVENTS) {
        answer_events(service, now_ms, link, m->after);
        return;
    }
    if (m->verb == CT_ADMIN_FOLLOW) {
        answer_follow(service, now_ms, link, m->after);
        return;
    }
    if (m->verb == CT_ADMIN_TAKEOVER) { /* a holder of the record has it before: holder.h */
        ct_service_answer(service, link->number, CT_EUNSUPPORTED,
                          "a job is taken over where ctrun hosts its rendezvous; a ctrund has its "
                          "journal or its peers");
        return;
    }
    struct ct_service_job *job = ct_admin_job(service, link);
    if (job == NULL || !may_order(service, link, ct_rdzv_name(job->core)))
        return;
    ct_admin_forget(job); /* who asks next sees what the order did */
    struct ct_rdzv_order order = {
        .host = m->host, .author = m->author, .reason = m->reason, .for_ms = m->for_ms};
    struct ct_rdzv_event event = {.kind = kinds[m->verb], .link = link->number, .order = &order};
    ct_service_step(job, now_ms, &event);
}

void ct_service_on_operator(struct ct_service *service, uint64_t now_ms,
                            struct ct_service_link *link, const struct ct_message *message)
{
    link->asks = message->type == CT_MSG_FLIGHT_QUERY ? "flight" : "logs";
    if (message->type == CT_MSG_ADMIN)
        on_admin(service, now_ms, link, &message->admin);
    else if (message->type == CT_MSG_FLIGHT_QUERY)
        ct_service_on_flight_query(service, link, &message->flight_query);
    else if (message->type == CT_MSG_LINES_QUERY)
        ct_service_on_lines_query(service, now_ms, link, &message->lines_query);
    else
        ct_service_violation(service, link, "a message that does not go with the role in HELLO");
}
