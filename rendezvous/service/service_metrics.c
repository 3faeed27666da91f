/* The service in Prometheus' text format: the families of metrics.def. Cost: O(jobs + nodes of jobs
 * of up to CT_METRICS_NODES nodes) a scrape. */
#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the samples of one job, or of one node of it, are made from. */
struct source {
    const struct ct_service *service;
    const struct ct_service_job *job;        /* not DAEMON */
    const struct ct_rdzv_member *member;     /* NODE, TOLD */
    const struct ct_node_figures *told;      /* TOLD, RANK */
    const struct ct_wire_rank_figures *rank; /* RANK */
    const struct ct_history *history;
    const struct ct_msg_progress *progress;
    uint64_t now_ms;
};

enum scope { DAEMON, JOB, USE, EVENT, STEP, NODE, TOLD, RANK };

/* ---- values --------------------------------------------------------------------------------- */

static double age_s(const struct source *of, uint64_t since_ms)
{
    return of->now_ms > since_ms ? (double)(of->now_ms - since_ms) / 1e3 : 0;
}

static double value_epoch(const struct source *of)
{
    return (double)of->service->epoch;
}

static double value_links(const struct source *of)
{
    return of->service->link_count;
}

static double value_jobs(const struct source *of)
{
    return of->service->job_count;
}

static double value_jobs_ended_well_total(const struct source *of)
{
    return (double)of->service->ended_well;
}

static double value_jobs_ended_badly_total(const struct source *of)
{
    return (double)of->service->ended_badly;
}

static double value_degraded(const struct source *of)
{
    return of->service->journal_trouble[0] != '\0';
}

static double value_certificate_expires_seconds(const struct source *of)
{
    const struct ct_service_io *io = &of->service->io;

    return io->certificate_expires_s != NULL ? (double)io->certificate_expires_s(io->context) : 0;
}

static double value_members(const struct source *of)
{
    size_t count = 0;

    for (size_t i = 0; i < ct_rdzv_capacity(of->job->core); i++)
        count += ct_rdzv_member(of->job->core, i)->state != CT_RDZV_FREE;
    return (double)count;
}

static double value_nodes_min(const struct source *of)
{
    return ct_rdzv_params(of->job->core)->nodes_min;
}

static double value_world_size(const struct source *of)
{
    return ct_rdzv_roster(of->job->core)->world;
}

static double value_generation(const struct source *of)
{
    return (double)ct_rdzv_generation(of->job->core);
}

static double value_running(const struct source *of)
{
    return ct_rdzv_phase(of->job->core) == CT_RDZV_RUNNING;
}

static double value_restarts(const struct source *of)
{
    return ct_rdzv_restarts(of->job->core);
}

static double value_restarts_max(const struct source *of)
{
    return ct_rdzv_params(of->job->core)->max_restarts;
}

static double value_step(const struct source *of)
{
    return (double)of->progress->step;
}

static double value_steps(const struct source *of)
{
    return (double)of->progress->steps;
}

static double value_loss(const struct source *of)
{
    return of->progress->loss;
}

static double value_learning_rate(const struct source *of)
{
    return of->progress->learning_rate;
}

static double value_samples_per_second(const struct source *of)
{
    return of->progress->samples_per_s;
}

static double value_last_step_age_seconds(const struct source *of)
{
    return value_running(of) != 0 && of->history->times.step > 0
               ? age_s(of, of->history->progress_ms)
               : 0;
}

static double value_checkpoint_step(const struct source *of)
{
    return (double)ct_rdzv_published(of->job->core)->step;
}

static double value_checkpoint_bytes(const struct source *of)
{
    return (double)of->history->published_bytes;
}

static double value_checkpoint_bytes_total(const struct source *of)
{
    return (double)of->history->all_bytes;
}

static double value_checkpoint_wait_seconds(const struct source *of)
{
    return of->history->times.saving_s;
}

static double value_straggler_wait_seconds(const struct source *of)
{
    return of->history->times.straggler_s;
}

static double value_store_bytes(const struct source *of)
{
    return (double)ct_store_bytes(of->job->store);
}

static double value_node_working(const struct source *of)
{
    return of->member->state == CT_RDZV_ACTING;
}

static double value_node_slots(const struct source *of)
{
    return of->member->slots;
}

static double value_node_silent_seconds(const struct source *of)
{
    return age_s(of, of->member->received_ms);
}

static double value_node_memory_used_bytes(const struct source *of)
{
    return (double)of->told->memory;
}

static double value_node_memory_bytes(const struct source *of)
{
    return (double)of->told->memory_total;
}

static double value_node_load(const struct source *of)
{
    return of->told->load;
}

static double value_node_gpu_faulty(const struct source *of)
{
    return of->told->trouble[0] != '\0';
}

static double value_rank_step(const struct source *of)
{
    return (double)of->rank->step;
}

static double value_rank_step_seconds(const struct source *of)
{
    return of->rank->step_s;
}

static double value_rank_wait_seconds(const struct source *of)
{
    return of->rank->waits_s;
}

static double value_rank_memory_bytes(const struct source *of)
{
    return (double)of->rank->memory;
}

/* Those of several samples a job have no single value. */
#define value_time_seconds_total NULL
#define value_events_total NULL
#define value_step_seconds NULL

static const struct family {
    enum scope scope;
    const char *name, *type, *help;
    double (*value)(const struct source *of);
} families[] = {
#define CT_FAMILY(scope, name, type, help) {scope, "ctrun_" #name, type, help, value_##name},
#include "rendezvous/service/metrics.def"
#undef CT_FAMILY
};

/* ---- text ----------------------------------------------------------------------------------- */

/* A label's value is written as a JSON string is: its escapes are those of the format, and control
 * characters are not in any name. */
static void put_sample(struct ct_buf *out, const char *name, const struct source *of,
                       const char *label, const char *text, double value)
{
    (void)ct_buf_puts(out, name);
    if (of->job != NULL) {
        (void)ct_buf_puts(out, "{job_id=");
        ct_json_string(out, ct_rdzv_name(of->job->core));
        if (label != NULL) {
            (void)ct_buf_puts(out, ",");
            (void)ct_buf_puts(out, label);
            (void)ct_buf_puts(out, "=");
            ct_json_string(out, text);
        }
        (void)ct_buf_puts(out, "}");
    }
    if (isfinite(value)) {
        (void)ct_buf_puts(out, " ");
        ct_json_number(out, value);
        (void)ct_buf_puts(out, "\n");
    } else {
        (void)ct_buf_puts(out, isnan(value) ? " NaN\n" : value > 0 ? " +Inf\n" : " -Inf\n");
    }
}

static void put_uses(struct ct_buf *out, const struct family *family, const struct source *of)
{
    double seconds[CT_TIME_USES];

    ct_goodput_read(&of->history->goodput, of->now_ms, seconds);
    for (enum ct_time_use use = 0; use < CT_TIME_USES; use++)
        put_sample(out, family->name, of, "use", ct_time_use_label(use), seconds[use]);
}

static void put_events(struct ct_buf *out, const struct family *family, const struct source *of)
{
    for (enum ct_announcement kind = 0; kind < CT_ANNOUNCEMENTS; kind++)
        put_sample(out, family->name, of, "event", ct_announcement_name(kind),
                   (double)of->history->counts[kind]);
}

static void put_histogram(struct ct_buf *out, const struct family *family, const struct source *of)
{
    char name[64], bound[32];
    uint64_t count = 0;

    (void)snprintf(name, sizeof name, "%s_bucket", family->name);
    for (size_t i = 0; i < CT_HISTORY_BUCKETS; i++) {
        count += of->history->step_times[i];
        (void)snprintf(bound, sizeof bound, "%g", ct_history_bounds[i]);
        put_sample(out, name, of, "le", i + 1 < CT_HISTORY_BUCKETS ? bound : "+Inf", (double)count);
    }
    (void)snprintf(name, sizeof name, "%s_sum", family->name);
    put_sample(out, name, of, NULL, NULL, of->history->step_seconds);
    (void)snprintf(name, sizeof name, "%s_count", family->name);
    put_sample(out, name, of, NULL, NULL, (double)count);
}

static void put_ranks(struct ct_buf *out, const struct family *family, struct source *of)
{
    char rank[16];

    for (uint32_t i = 0; i < of->told->count; i++) {
        of->rank = &of->told->ranks[i];
        (void)snprintf(rank, sizeof rank, "%u", of->rank->rank);
        put_sample(out, family->name, of, "rank", rank, family->value(of));
    }
}

/* Agents of one host are told apart by nothing but their number, so they count together. */
static void put_nodes(struct ct_buf *out, const struct family *family, struct source *of)
{
    size_t capacity = ct_rdzv_capacity(of->job->core);

    for (size_t i = 0; capacity <= CT_METRICS_NODES && i < capacity; i++) {
        char node[CT_RDZV_HOST_BYTES + 24];

        of->member = ct_rdzv_member(of->job->core, i);
        if (of->member->state == CT_RDZV_FREE)
            continue;
        of->told = ct_figures_find(&of->job->figures, (uint32_t)i, of->member->id, of->now_ms);
        if (family->scope != NODE && of->told == NULL)
            continue;
        if (family->scope == RANK) {
            put_ranks(out, family, of);
            continue;
        }
        (void)snprintf(node, sizeof node, "%s/%zu", of->member->host, i);
        put_sample(out, family->name, of, "node", node, family->value(of));
    }
}

static void put_job(struct ct_buf *out, const struct family *family, struct source *of)
{
    switch (family->scope) {
    case JOB:
        put_sample(out, family->name, of, NULL, NULL, family->value(of));
        break;
    case USE:
        put_uses(out, family, of);
        break;
    case EVENT:
        put_events(out, family, of);
        break;
    case STEP:
        put_histogram(out, family, of);
        break;
    case RANK:
        if (ct_rdzv_roster(of->job->core)->world > CT_METRICS_RANKS)
            break;
        put_nodes(out, family, of);
        break;
    case NODE:
    case TOLD:
        put_nodes(out, family, of);
        break;
    case DAEMON:
        break;
    }
}

void ct_service_metrics(const struct ct_service *service, uint64_t now_ms,
                        const struct ct_grant *reader, struct ct_buf *out)
{
    struct source of = {.service = service, .now_ms = now_ms};
    bool of_all = reader == NULL || strcmp(reader->jobs, "*") == 0;

    for (size_t i = 0; i < CT_COUNT(families); i++) {
        const struct family *family = &families[i];

        if (family->scope == DAEMON && !of_all)
            continue;
        (void)ct_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help,
                            family->name, family->type);
        of.job = NULL;
        if (family->scope == DAEMON) {
            put_sample(out, family->name, &of, NULL, NULL, family->value(&of));
            continue;
        }
        for (of.job = service->jobs; of.job != NULL; of.job = of.job->next) {
            if (!of_all && !ct_service_shows(reader, of.job))
                continue;
            of.history = of.job->history;
            of.progress = &of.job->progress;
            put_job(out, family, &of);
        }
    }
}
