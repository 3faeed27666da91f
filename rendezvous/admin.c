/* Operators' messages; see admin.h. */
#include "rendezvous/admin.h"

#include "rendezvous/service_state.h"

#include <stdlib.h>
#include <string.h>

void ct_service_answer(struct ct_service *service, uint64_t link, int code, const char *text)
{
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
    return service->io.is_for(service->io.context, link->peer, name);
}

/* "a, b" */
static void add_names(const struct ct_service *service, const struct ct_service_link *link,
                      struct ct_buf *out)
{
    const char *separator = "";
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        const char *name = ct_rdzv_name(job->core);
        if (!service->io.is_for(service->io.context, link->peer, name))
            continue;
        (void)ct_buf_printf(out, "%s%s", separator, name);
        separator = ", ";
    }
}

static void answer_none(struct ct_service *service, const struct ct_service_link *link)
{
    struct ct_buf text;
    ct_buf_init(&text, 4096);
    if (service->job_count == 0)
        (void)ct_buf_puts(&text, "no job is served here");
    else if (link->job_name[0] != '\0')
        (void)ct_buf_printf(&text, "no job %s is served here; there are: ", link->job_name);
    if (service->job_count > 0)
        add_names(service, link, &text);
    ct_service_answer(service, link->number, CT_ENOTFOUND, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void answer_status(struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, bool json)
{
    struct ct_buf text;
    size_t count = 0;
    ct_buf_init(&text, CT_WIRE_VALUE_BYTES);
    if (json)
        (void)ct_buf_puts(&text, "{\"jobs\":[");
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        if (!ct_admin_means(service, link, job))
            continue;
        if (count++ > 0)
            (void)ct_buf_puts(&text, json ? "," : "\n");
        if (json)
            ct_admin_describe_json(job, now_ms, &text);
        else
            ct_admin_describe(job, now_ms, &text);
    }
    if (json)
        (void)ct_buf_puts(&text, "]}\n");
    if (count == 0)
        answer_none(service, link);
    else if (text.failed)
        ct_service_answer(service, link->number, CT_ELIMIT, "the status is too long to be sent");
    else
        ct_service_answer(service, link->number, 0, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

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

void ct_service_on_store_waits(struct ct_service_job *job, uint64_t now_ms,
                               const struct ct_msg_store_waits *m)
{
    free(job->waits);
    job->waits = m->text[0] != '\0' ? strdup(m->text) : NULL;
    job->waits_generation = m->generation;
    job->waits_ms = now_ms;
}

void ct_service_on_admin(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                         const struct ct_msg_admin *m)
{
    static const enum ct_rdzv_event_kind kinds[CT_ADMIN_VERBS] = {
        [CT_ADMIN_DRAIN] = CT_RDZV_ON_DRAIN,
        [CT_ADMIN_CORDON] = CT_RDZV_ON_CORDON,
        [CT_ADMIN_UNCORDON] = CT_RDZV_ON_UNCORDON,
    };
    if (m->verb >= CT_ADMIN_VERBS) {
        ct_service_answer(service, link->number, CT_EUNSUPPORTED,
                          "this rendezvous does not know what is asked for: install the same "
                          "version of ctrun everywhere");
        return;
    }
    if (m->verb == CT_ADMIN_STATUS) {
        answer_status(service, now_ms, link, m->json != 0);
        return;
    }
    struct ct_service_job *job = ct_admin_job(service, link);
    if (job == NULL)
        return;
    struct ct_rdzv_order order = {
        .host = m->host, .author = m->author, .reason = m->reason, .for_ms = m->for_ms};
    struct ct_rdzv_event event = {.kind = kinds[m->verb], .link = link->number, .order = &order};
    ct_service_step(job, now_ms, &event);
}
