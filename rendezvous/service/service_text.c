/* What others may see of the service: its jobs and counts, and its words for status. */
#include "rendezvous/service/service_state.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>

void ct_service_set_trouble(struct ct_service *service, const char *sentence)
{
    (void)ct_str_copy(service->journal_trouble, sizeof(service->journal_trouble), sentence);
}

size_t ct_service_jobs(const struct ct_service *service)
{
    return service->job_count;
}

static bool has_nodes(const struct ct_rdzv *core)
{
    for (uint32_t i = 0; i < ct_rdzv_capacity(core); i++)
        if (ct_rdzv_member(core, i)->state != CT_RDZV_FREE)
            return true;
    return false;
}

size_t ct_service_running(const struct ct_service *service)
{
    size_t count = 0;

    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        count += ct_rdzv_phase(job->core) != CT_RDZV_CLOSED && has_nodes(job->core);
    return count;
}

size_t ct_service_links(const struct ct_service *service)
{
    return service->link_count;
}

bool ct_service_is_settled(const struct ct_service *service)
{
    bool is_settled = true;

    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        enum ct_rdzv_phase phase = ct_rdzv_phase(job->core);

        is_settled = is_settled && (phase == CT_RDZV_LOBBY || phase == CT_RDZV_PAUSED ||
                                    phase == CT_RDZV_RUNNING || phase == CT_RDZV_CLOSED);
    }
    return is_settled;
}

bool ct_service_shows(const struct ct_grant *reader, const struct ct_service_job *job)
{
    return ct_grant_may(reader, CT_RIGHT_READ, ct_rdzv_name(job->core), -1, NULL) == 0;
}

void ct_service_describe(const struct ct_service *service, const struct ct_grant *reader,
                         struct ct_buf *out)
{
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        char line[1024];
        if (!ct_service_shows(reader, job))
            continue;
        ct_rdzv_describe(job->core, line, sizeof(line));
        (void)ct_buf_puts(out, line);
        if (job->progress.step > 0)
            (void)ct_buf_printf(out, "; step %" PRIu64 " of %" PRIu64 ", loss %.4f, %.0f samples/s",
                                job->progress.step, job->progress.steps, job->progress.loss,
                                job->progress.samples_per_s);
        (void)ct_buf_puts(out, "\n");
    }
    if (service->journal_trouble[0] != '\0')
        (void)ct_buf_printf(out, "DEGRADED: no new round can begin, training goes on: %s\n",
                            service->journal_trouble);
}

/* ---- who looks ---- */

void ct_service_look(struct ct_service *service, uint64_t now_ms)
{
    service->looked_ms = now_ms;
}

bool ct_service_is_watched(const struct ct_service_job *job, uint64_t now_ms)
{
    const struct ct_service *service = job->service;
    return service->looked_ms > 0 && now_ms - service->looked_ms < CT_SERVICE_LOOK_MS &&
           ct_rdzv_capacity(job->core) <= CT_METRICS_NODES;
}

void ct_service_on_figures(const struct ct_service_link *link, uint64_t now_ms,
                           const struct ct_msg_figures *m)
{
    if (ct_service_is_watched(link->job, now_ms))
        ct_figures_keep(&link->job->figures, link->member, link->id, now_ms, m);
}

void ct_service_warn_of_limit(const struct ct_service *service, const char *name,
                              uint32_t nodes_max)
{
    char text[256];
    if (nodes_max <= service->limits.links)
        return;
    (void)snprintf(
        text, sizeof(text),
        "up to %u nodes may join, but this rendezvous has room for %u connections: nodes "
        "beyond them are told to retry; raise the hard limit of descriptors where it "
        "runs (`ulimit -Hn`)",
        nodes_max, service->limits.links);
    service->io.announce(service->io.context, name, text);
}
