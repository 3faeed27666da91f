/* The page of a rendezvous, and what its script reads: jobs, nodes, curves, events, where the time
 * went. What anybody may see of the service who may ask it (http_uv.h says who).
 *
 *   /            page.html, with the state as tables for readers without scripts
 *   /page.css, /page.js
 *   /events      server-sent events: "jobs" once a second, "event" (a record of
 *                service_events.c) when something happens, with its number as the id
 *   /status.json as "jobs": {"jobs":[...]}, of a job what `ctrun status --json` has, with "curve",
 *                "time" and "rounds"
 *   /metrics     metrics.def
 *   /healthz     ok
 *
 * Building them costs O(jobs + nodes of jobs of up to CT_METRICS_NODES nodes); a larger job's nodes
 * are counted, not listed. Pure. */
#ifndef CT_RENDEZVOUS_PAGE_H
#define CT_RENDEZVOUS_PAGE_H

#include "base/bytes.h"
#include "rendezvous/service/service.h"

enum ct_page_kind {
    CT_PAGE_NONE, /* there is no such page */
    CT_PAGE_PUT,  /* it is in `out` */
    CT_PAGE_EVENTS,
};

/* Whose page of what. */
struct ct_page_view {
    const struct ct_service *service; /* NULL: this rendezvous does not lead now */
    const struct ct_grant *reader;    /* of the jobs that it allows; NULL: of all */
    uint64_t now_ms;
};

/* Put the page at `path`, and its media type. */
enum ct_page_kind ct_page_put(const struct ct_page_view *view, const char *path, struct ct_buf *out,
                              const char **ret_type);

/* Append the events with numbers above `*after`, which is raised, in the form of server-sent
 * events. */
void ct_page_put_events(const struct ct_page_view *view, uint64_t *after, struct ct_buf *out);

/* Append "jobs" as a server-sent event. */
void ct_page_put_update(const struct ct_page_view *view, struct ct_buf *out);

#endif
