/* See page.h. */
#include "rendezvous/page/page.h"

#include "rendezvous/page/asset.h"
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include <inttypes.h>
#include <string.h>

/* ---- the object that the script reads ------------------------------------------------------- */

static void put_job(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    ct_admin_describe_json(job, now_ms, CT_METRICS_NODES, out);
    ct_admin_add_history(job, now_ms, out);
}

/* The first job that may be seen from `job` on. */
static const struct ct_service_job *seen_from(const struct ct_page_view *view,
                                              const struct ct_service_job *job)
{
    while (job != NULL && !ct_service_shows(view->reader, job))
        job = job->next;
    return job;
}

static const struct ct_service_job *first_seen(const struct ct_page_view *view)
{
    return seen_from(view, view->service != NULL ? view->service->jobs : NULL);
}

static void put_jobs(const struct ct_page_view *view, struct ct_buf *out)
{
    const char *separator = "";

    (void)ct_buf_puts(out, "{\"jobs\":[");
    for (const struct ct_service_job *job = first_seen(view); job != NULL;
         job = seen_from(view, job->next)) {
        (void)ct_buf_puts(out, separator);
        put_job(job, view->now_ms, out);
        separator = ",";
    }
    (void)ct_buf_puts(out, "]}");
}

void ct_page_put_update(const struct ct_page_view *view, struct ct_buf *out)
{
    (void)ct_buf_puts(out, "event: jobs\ndata: ");
    put_jobs(view, out);
    (void)ct_buf_puts(out, "\n\n");
}

void ct_page_put_events(const struct ct_page_view *view, uint64_t *after, struct ct_buf *out)
{
    struct ct_buf record;

    ct_buf_init(&record, 0);
    while (view->service != NULL &&
           ct_service_put_event(view->service, view->now_ms, NULL, view->reader, after, &record)) {
        (void)ct_buf_printf(out, "event: event\nid: %" PRIu64 "\ndata: %s\n", *after,
                            ct_buf_str(&record));
        ct_buf_clear(&record);
    }
    ct_buf_deinit(&record);
}

/* ---- tables, for readers without scripts ---------------------------------------------------- */

static void put_escaped(struct ct_buf *out, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '<':
            (void)ct_buf_puts(out, "&lt;");
            break;
        case '&':
            (void)ct_buf_puts(out, "&amp;");
            break;
        case '"':
            (void)ct_buf_puts(out, "&quot;");
            break;
        default:
            (void)ct_buf_append(out, text, 1);
        }
}

static void put_cell(struct ct_buf *out, const char *text)
{
    (void)ct_buf_puts(out, "<td>");
    put_escaped(out, text);
    (void)ct_buf_puts(out, "</td>");
}

static void put_node_row(const struct ct_service_job *job, size_t i, struct ct_buf *out)
{
    const struct ct_rdzv_member *member = ct_rdzv_member(job->core, i);

    if (member->state == CT_RDZV_FREE)
        return;
    (void)ct_buf_puts(out, "<tr>");
    put_cell(out, member->host);
    put_cell(out, ct_rdzv_member_state_name(member->state));
    (void)ct_buf_printf(out, "<td>%u</td></tr>\n", member->slots);
}

static void put_job_table(const struct ct_service_job *job, struct ct_buf *out)
{
    const struct ct_history_event *event;
    char line[1024];

    ct_rdzv_describe(job->core, line, sizeof line);
    (void)ct_buf_puts(out, "<article><h2>");
    put_escaped(out, ct_rdzv_name(job->core));
    (void)ct_buf_puts(out, "</h2>\n<p>");
    put_escaped(out, line);
    if (job->progress.step > 0)
        (void)ct_buf_printf(out,
                            "; step %" PRIu64 " of %" PRIu64 ", loss %.4g, %.4g samples a second",
                            job->progress.step, job->progress.steps, job->progress.loss,
                            job->progress.samples_per_s);
    (void)ct_buf_puts(out, "</p>\n<table><thead><tr><th scope=\"col\">node</th><th "
                           "scope=\"col\">state</th><th scope=\"col\">slots</th></tr></thead>\n");
    for (size_t i = 0; i < ct_rdzv_capacity(job->core) && i < CT_METRICS_NODES; i++)
        put_node_row(job, i, out);
    (void)ct_buf_puts(out, "</table>\n<ol>\n");
    for (uint64_t after = 0; (event = ct_history_next(job->history, after)) != NULL;) {
        after = event->number;
        (void)ct_buf_puts(out, "<li>");
        put_escaped(out, event->text);
        (void)ct_buf_puts(out, "</li>\n");
    }
    (void)ct_buf_puts(out, "</ol></article>\n");
}

static void put_page(const struct ct_page_view *view, struct ct_buf *out)
{
    static const char mark[] = "<!--TABLES-->";
    size_t size;
    const char *type, *page = ct_asset_find("/", &size, &type);
    const char *tables = memmem(page, size, mark, sizeof mark - 1);

    (void)ct_buf_append(out, page, (size_t)(tables - page));
    for (const struct ct_service_job *job = first_seen(view); job != NULL;
         job = seen_from(view, job->next))
        put_job_table(job, out);
    tables += sizeof mark - 1;
    (void)ct_buf_append(out, tables, size - (size_t)(tables - page));
}

/* ---- paths ---------------------------------------------------------------------------------- */

enum ct_page_kind ct_page_put(const struct ct_page_view *view, const char *path, struct ct_buf *out,
                              const char **ret_type)
{
    size_t size;
    const char *asset;

    if (strcmp(path, "/events") == 0) {
        *ret_type = "text/event-stream";
        return CT_PAGE_EVENTS;
    }
    if (strcmp(path, "/healthz") == 0) {
        (void)ct_buf_puts(out, "ok\n");
    } else if (strcmp(path, "/status.json") == 0) {
        *ret_type = "application/json";
        put_jobs(view, out);
    } else if (strcmp(path, "/metrics") == 0) {
        *ret_type = "text/plain; version=0.0.4; charset=utf-8";
        if (view->service != NULL)
            ct_service_metrics(view->service, view->now_ms, view->reader, out);
    } else if ((asset = ct_asset_find(path, &size, ret_type)) == NULL) {
        return CT_PAGE_NONE;
    } else if (path[1] == '\0') {
        put_page(view, out);
    } else {
        (void)ct_buf_append(out, asset, size);
    }
    return CT_PAGE_PUT;
}
