/* A flight recorder for people and programs; see traces.h. */
#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"
#include "diagnose/sites.h"
#include "diagnose/traces.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One call with its times in milliseconds before now; negative: not yet. */
struct line {
    struct ct_flight_call call;
    const struct ct_record_call *group; /* NULL: it is freed */
    double queued_ms, started_ms, ended_ms;
    char text[CT_SIGNATURE_TEXT];
    const char *site;
};

static double ms_ago(const struct ct_worker_record *record, struct ct_ticks_pair now,
                     uint64_t ticks)
{
    if (ticks == 0)
        return -1;
    return (double)(now.ns - ct_worker_record_ns(record, now, ticks)) / 1e6;
}

static bool read_line(const struct ct_worker_record *record, struct ct_sites *sites, uint64_t turn,
                      struct ct_ticks_pair now, struct line *line)
{
    const struct ct_record_view *view = sites->view;
    struct ct_signature_fields fields;

    if (!ct_flight_read(&record->flight, turn, &line->call))
        return false;
    line->group = NULL;
    for (uint32_t i = 0; i < view->group_count && line->group == NULL; i++)
        if ((uint32_t)view->groups[i].id == line->call.group)
            line->group = &view->groups[i];
    line->queued_ms = ms_ago(record, now, line->call.queued);
    line->started_ms = ms_ago(record, now, line->call.started);
    line->ended_ms = ms_ago(record, now, line->call.ended);
    ct_signature_print(line->call.what, line->text, sizeof line->text);
    (void)ct_signature_unpack(line->call.what.rest, &fields);
    if (fields.kind == CT_CALL_SEND || fields.kind == CT_CALL_RECV) {
        size_t used = strlen(line->text);

        (void)snprintf(line->text + used, sizeof line->text - used, ", %s %u",
                       fields.kind == CT_CALL_SEND ? "to" : "from", fields.peer);
    }
    line->site = ct_sites_text(sites, line->call.site);
    return true;
}

struct host {
    char name[HOST_NAME_MAX + 1];
};

/* What is printed on several nodes is read together. */
static struct host this_host(void)
{
    struct host host = {""};

    (void)gethostname(host.name, sizeof host.name - 1);
    return host;
}

/* The turns that are wanted and that the ring may still have: from `first` to the return value. */
static uint64_t span_of(const struct ct_worker_record *record, uint32_t calls, uint64_t *ret_first)
{
    uint64_t turns = ct_flight_turns(&record->flight);
    uint64_t wanted = CT_MIN(calls, (uint32_t)CT_FLIGHT_ENTRIES);

    *ret_first = turns > wanted ? turns - wanted + 1 : 1;
    return turns;
}

int ct_flight_print(const struct ct_worker_record *record, struct ct_ticks_pair now, uint32_t calls,
                    struct ct_buf *to)
{
    struct ct_record_view view;
    struct ct_sites sites;
    struct line line;
    char site[CT_SITE_TEXT] = "";
    uint64_t first, last = span_of(record, calls, &first);

    ct_worker_record_read(record, &view);
    ct_sites_init(&sites, &view);
    (void)ct_buf_printf(
        to, "rank %u of %u, pid %u, host %s, generation %" PRIu64 ", %" PRIu64 " calls\n",
        view.rank, view.world, view.pid, this_host().name, view.generation, last);
    for (uint64_t turn = first; turn <= last; turn++) {
        if (!read_line(record, &sites, turn, now, &line))
            continue;
        if (strcmp(line.site, site) != 0) /* once for all calls in a row that were made there */
            (void)ct_buf_printf(to, "  called from %s\n", line.site);
        (void)ct_str_copy(site, sizeof site, line.site);
        (void)ct_buf_printf(to, "  %9.3f s ago  %-9s ", line.queued_ms / 1e3,
                            ct_flight_state_name(line.call.state));
        if (line.ended_ms >= 0)
            (void)ct_buf_printf(to, "%10.1f us", (line.queued_ms - line.ended_ms) * 1e3);
        else
            (void)ct_buf_printf(to, "%13s", "");
        (void)ct_buf_printf(to, "  %s", line.text);
        if (line.call.number != 0)
            (void)ct_buf_printf(to, " (number %u)", line.call.number);
        if (line.group != NULL && view.group_count > 1)
            (void)ct_buf_printf(to, " in %s", line.group->name);
        (void)ct_buf_puts(to, "\n");
    }
    return to->failed ? CT_ENOMEM : 0;
}

static void put_text(struct ct_buf *to, const char *key, const char *text)
{
    (void)ct_buf_printf(to, ",\"%s\":", key);
    ct_json_string(to, text);
}

static void put_ago(struct ct_buf *to, const char *key, double ms)
{
    if (ms >= 0)
        (void)ct_buf_printf(to, ",\"%s\":%.6f", key, ms / 1e3);
}

int ct_flight_print_json(const struct ct_worker_record *record, struct ct_ticks_pair now,
                         uint32_t calls, struct ct_buf *to)
{
    struct ct_record_view view;
    struct ct_sites sites;
    struct line line;
    uint64_t first, last = span_of(record, calls, &first);
    const char *separator = "\n";

    ct_worker_record_read(record, &view);
    ct_sites_init(&sites, &view);
    (void)ct_buf_printf(to,
                        "{\"rank\":%u,\"world\":%u,\"pid\":%u,\"generation\":%" PRIu64
                        ",\"step\":%" PRIu64 ",\"calls\":%" PRIu64,
                        view.rank, view.world, view.pid, view.generation, view.step, last);
    put_text(to, "host", this_host().name);
    put_text(to, "program", view.program);
    (void)ct_buf_puts(to, ",\"entries\":[");
    for (uint64_t turn = first; turn <= last; turn++) {
        if (!read_line(record, &sites, turn, now, &line))
            continue;
        (void)ct_buf_printf(to, "%s{\"turn\":%" PRIu64 ",\"number\":%u,\"count\":%" PRIu64,
                            separator, turn, line.call.number, line.call.what.count);
        put_text(to, "state", ct_flight_state_name(line.call.state));
        put_text(to, "call", line.text);
        put_text(to, "group", line.group != NULL ? line.group->name : "");
        put_text(to, "site", line.site);
        put_ago(to, "queued_s_ago", line.queued_ms);
        put_ago(to, "started_s_ago", line.started_ms);
        put_ago(to, "ended_s_ago", line.ended_ms);
        (void)ct_buf_puts(to, "}");
        separator = ",\n";
    }
    (void)ct_buf_puts(to, "]}\n");
    return to->failed ? CT_ENOMEM : 0;
}
