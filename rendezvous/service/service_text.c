/* What others may see of the service: its jobs and counts, and its words and figures for status and
 * metrics. */
#include "rendezvous/service/service_state.h"

#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>

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

void ct_service_describe(const struct ct_service *service, struct ct_buf *out)
{
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        char line[1024];
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

/* One family: its type once, then a value a job. A job's name is quoted as in JSON, which is how
 * label values are written. */
struct family {
    const char *name;
    const char *help;
    double (*value)(const struct ct_service_job *job);
};

static double members(const struct ct_service_job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < ct_rdzv_capacity(job->core); i++)
        count += ct_rdzv_member(job->core, i)->state != CT_RDZV_FREE;
    return (double)count;
}

static double world(const struct ct_service_job *job)
{
    return ct_rdzv_roster(job->core)->world;
}

static double generation(const struct ct_service_job *job)
{
    return (double)ct_rdzv_generation(job->core);
}

static double running(const struct ct_service_job *job)
{
    return ct_rdzv_phase(job->core) == CT_RDZV_RUNNING;
}

static double restarts(const struct ct_service_job *job)
{
    return ct_rdzv_restarts(job->core);
}

static double steps(const struct ct_service_job *job)
{
    return (double)job->progress.step;
}

static double loss(const struct ct_service_job *job)
{
    return job->progress.loss;
}

static double store_bytes(const struct ct_service_job *job)
{
    return (double)ct_store_bytes(job->store);
}

static const struct family families[] = {
    {"ctrun_members", "nodes that are here", members},
    {"ctrun_world_size", "ranks of the last round", world},
    {"ctrun_generation", "number of the newest round", generation},
    {"ctrun_running", "1 while a round runs", running},
    {"ctrun_restarts", "restarts charged to the budget", restarts},
    {"ctrun_step", "training step last reported", steps},
    {"ctrun_loss", "loss last reported", loss},
    {"ctrun_store_bytes", "keys and values in the store", store_bytes},
};

void ct_service_metrics(const struct ct_service *service, struct ct_buf *out)
{
    (void)ct_buf_printf(out,
                        "# HELP ctrun_epoch tenure of this daemon\n# TYPE ctrun_epoch gauge\n"
                        "ctrun_epoch %" PRIu64 "\n",
                        service->epoch);
    (void)ct_buf_printf(out,
                        "# HELP ctrun_links open connections\n# TYPE ctrun_links gauge\n"
                        "ctrun_links %u\n",
                        service->link_count);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const struct family *family = &families[i];
        (void)ct_buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", family->name, family->help,
                            family->name);
        for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
            (void)ct_buf_printf(out, "%s{job=", family->name);
            ct_json_string(out, ct_rdzv_name(job->core));
            (void)ct_buf_puts(out, "} ");
            ct_json_number(out, family->value(job));
            (void)ct_buf_puts(out, "\n");
        }
    }
}
