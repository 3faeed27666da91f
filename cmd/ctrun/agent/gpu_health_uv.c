/* See gpu_health_uv.h. */
#include "gpu_health_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "diagnose/nvml_probe_uv.h"
#include "hardware/devices.h"
#include "hardware/xid.h"
#include "node_state_uv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_POLL_MS = 500, MEMORY_ASK_MS = 5000 /* NVML may hang */ };

/* A restart that waits for memory. */
struct memory_wait {
    uv_timer_t timer;
    struct ct_nvml_probe *probe; /* NULL: none is under way */
    struct ct_health answer;
    uint64_t since_ms;
    void (*done)(struct node *node); /* NULL: nobody waits */
};

struct health {
    struct node *node;
    struct ct_nvml_probe *probe; /* the last one */
    bool asking;
    bool reported; /* the first answer is here */
    struct ct_gpus gpus;
    bool used[CT_GPUS_MAX]; /* by the workers of this node */
    struct ct_health answer;
    struct ct_health first; /* before the workers had any memory; `begun` is false: not known */
    struct memory_wait memory;
    struct ct_buf faults;        /* what was said to be wrong */
    struct ct_nvml_probe *watch; /* it waits for Xids */
    bool unavailable;            /* nobody can */
    bool closed;
    struct ct_xids xids;
};

/* Mark the cards of a list as workers are given, in `used` of each card; all when there is none, or
 * one is not known. */
static void use(const struct ct_gpus *gpus, const char *list, bool *used)
{
    char entry[128];
    bool all = list == NULL;

    for (uint32_t i = 0; !all && ct_devices_entry(list, i, entry, sizeof entry); i++) {
        int card = ct_gpus_find(gpus, entry);

        if (card >= 0)
            used[card] = true;
        else
            all = ct_starts_with(entry, "MIG-");
    }
    for (uint32_t i = 0; all && i < gpus->count; i++)
        used[i] = true;
}

/* Mark those that this worker may be on: of its own list, or of all that are visible, of which the
 * workers take one each where there are as many. */
static void use_as(const struct health *health, uint32_t local_rank, bool *used)
{
    const struct job *job = health->node->job;
    const char *visible = ct_env_find(job->env, "CUDA_VISIBLE_DEVICES");
    char entry[128];

    (void)snprintf(entry, sizeof entry, "%" PRIu32, local_rank);
    bool has_one = job->gpus == NULL && job->slots == job->visible_gpus &&
                   (visible == NULL || ct_devices_entry(visible, local_rank, entry, sizeof entry));
    use(&health->gpus, has_one ? entry : job->gpus != NULL ? job->gpus[local_rank] : visible, used);
}

/* ---- how they are --------------------------------------------------------------------------- */

static void on_sentence(void *context, bool is_wrong, const char *sentence)
{
    struct health *health = context;

    if (is_wrong ? strstr(ct_buf_str(&health->faults), sentence) != NULL : health->reported)
        return; /* once is enough */
    if (is_wrong)
        (void)ct_buf_printf(&health->faults, "%s\n", sentence);
    ct_log_event(&health->node->log, is_wrong ? CT_LOG_WARN : CT_LOG_INFO,
                 is_wrong ? "gpu_fault" : "gpus", "%s", sentence);
}

static int on_record(void *context, const char *line)
{
    struct health *health = context;

    return ct_health_parse(&health->answer, line);
}

static void on_done(void *context, uint64_t late_ms)
{
    struct health *health = context;
    const struct ct_health_scope scope = {
        .gpus = &health->gpus, .used = health->used, .late_ms = late_ms};

    health->asking = false;
    ct_console_live(health->node->console, "");
    ct_health_report(&health->answer, &scope, on_sentence, health);
    if (!health->reported)
        health->first = health->answer;
    health->reported = true;
}

void health_probe(struct health *health)
{
    struct ct_error err = {0};

    if (health == NULL || health->asking)
        return;
    struct node *node = health->node;
    const struct ct_nvml_probe_options options = {
        .how = "--ask",
        .limit_ms = (uint64_t)node->job->cfg.launch.gpu_check_ms,
        .on_record = on_record,
        .on_done = on_done,
        .context = health,
    };
    ct_nvml_probe_close(health->probe);
    health->probe = NULL;
    health->answer = (struct ct_health){.begun = false};
    health->asking = ct_nvml_probe_start(&health->probe, &node->loop, &options, &err) == 0;
    if (!health->asking)
        ct_log_event(&node->log, CT_LOG_WARN, "gpus", "how the GPUs are is not known: %s",
                     err.text);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void ask_for_memory(uv_timer_t *timer);

static void end_wait(struct health *health)
{
    void (*done)(struct node * node) = health->memory.done;

    show_waiting(health->node, NULL);
    health->memory.done = NULL;
    done(health->node);
}

static int on_memory_record(void *context, const char *line)
{
    return ct_health_parse(&((struct health *)context)->memory.answer, line);
}

static void on_memory(void *context, uint64_t late_ms)
{
    struct health *health = context;
    struct node *node = health->node;
    const struct ct_health_scope scope = {
        .gpus = &health->gpus, .used = health->used, .late_ms = late_ms};
    const struct ct_health_held held =
        ct_health_held(&health->memory.answer, &health->first, &scope);
    uint64_t limit_ms = (uint64_t)node->job->cfg.launch.gpu_memory_timeout_ms;
    uint64_t waited_ms = uv_now(&node->loop) - health->memory.since_ms;
    double gib = (double)held.bytes / (double)(1 << 30);
    char name[256], text[384];

    ct_nvml_probe_close(health->memory.probe);
    health->memory.probe = NULL;
    if (health->memory.done == NULL)
        return;
    if (held.bytes == 0) {
        end_wait(health);
        return;
    }
    ct_health_name(&held.card, name, sizeof name);
    if (late_ms > 0 || waited_ms + MEMORY_POLL_MS > limit_ms) {
        ct_log_event(
            &node->log, CT_LOG_WARN, "gpu_memory",
            "%s still holds memory of processes that have ended, %.1f GiB with all others, "
            "after %.0f s; the workers are started all the same",
            name, gib, (double)waited_ms / 1000);
        end_wait(health);
        return;
    }
    (void)snprintf(text, sizeof text,
                   "waiting for %s to give back the memory of processes that have ended, %.1f GiB",
                   name, gib);
    show_waiting(node, text);
    (void)uv_timer_start(&health->memory.timer, ask_for_memory, MEMORY_POLL_MS, 0);
}

static void ask_for_memory(uv_timer_t *timer)
{
    struct health *health = timer->data;
    struct node *node = health->node;
    uint64_t limit_ms = (uint64_t)node->job->cfg.launch.gpu_memory_timeout_ms;
    uint64_t waited_ms = uv_now(&node->loop) - health->memory.since_ms;
    const struct ct_nvml_probe_options options = {
        .how = "--ask",
        .limit_ms =
            limit_ms > waited_ms ? CT_MIN(limit_ms - waited_ms, (uint64_t)MEMORY_ASK_MS) : 1,
        .on_record = on_memory_record,
        .on_done = on_memory,
        .context = health,
    };
    struct ct_error err = {0};

    health->memory.answer = (struct ct_health){.begun = false};
    if (ct_nvml_probe_start(&health->memory.probe, &node->loop, &options, &err) == 0)
        return;
    ct_log_event(&node->log, CT_LOG_WARN, "gpu_memory",
                 "whether the GPUs' memory is free is not known: %s", err.text);
    end_wait(health);
}

bool health_await_memory(struct health *health, void (*done)(struct node *node))
{
    if (health == NULL || health->closed || health->unavailable ||
        health->node->job->cfg.launch.gpu_memory_timeout_ms == 0)
        return false;
    bool is_waiting = health->memory.done != NULL;
    health->memory.done = done;
    if (is_waiting)
        return true;
    health->memory.since_ms = uv_now(&health->node->loop);
    (void)uv_timer_start(&health->memory.timer, ask_for_memory, 0, 0);
    return true;
}

/* ---- Xids ----------------------------------------------------------------------------------- */

static void report_xid(struct health *health, const struct ct_nvml_xid *xid)
{
    const struct ct_health_scope scope = {.gpus = &health->gpus, .used = health->used};
    struct node *node = health->node;
    struct ct_buf text;

    if (!ct_health_means(&scope, &xid->card) || !ct_xids_add(&health->xids, xid))
        return;
    ct_buf_init(&text, 0);
    ct_xid_describe(xid, &text);
    ct_console_live(node->console, "");
    ct_log_event(&node->log, CT_LOG_WARN, "xid", "%s", ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static int on_xid(void *context, const char *line)
{
    struct health *health = context;
    struct ct_nvml_xid xid;
    struct ct_error err = {0};
    int rc = ct_xid_parse(line, &xid, &err);

    if (rc == 0)
        report_xid(health, &xid);
    else if (rc == CT_ENOTFOUND)
        health->unavailable = true;
    else
        ct_log_event(&health->node->log, CT_LOG_WARN, "xid",
                     "until the next round nobody waits for Xids: %s",
                     rc == CT_EUNAVAILABLE ? err.text : "what was said is no Xid");
    return rc;
}

static void on_watch_end(void *context, uint64_t late_ms)
{
    struct health *health = context;

    (void)late_ms;
    ct_nvml_probe_close(health->watch);
    health->watch = NULL;
}

void health_watch(struct health *health)
{
    const struct ct_nvml_probe_options options = {
        .how = "--watch", .on_record = on_xid, .on_done = on_watch_end, .context = health};
    struct ct_error err = {0};

    if (health == NULL)
        return;
    health->xids.count = 0;
    if (health->watch != NULL || health->unavailable)
        return;
    if (ct_nvml_probe_start(&health->watch, &health->node->loop, &options, &err) != 0)
        ct_log_event(&health->node->log, CT_LOG_WARN, "xid",
                     "until the next round nobody waits for Xids: %s", err.text);
}

void health_explain(struct health *health, uint32_t local_rank, struct ct_buf *to)
{
    bool used[CT_GPUS_MAX] = {false};

    if (health == NULL)
        return;
    ct_nvml_probe_drain(health->watch);
    const struct ct_health_scope scope = {.gpus = &health->gpus, .used = used};
    use_as(health, local_rank, used);
    ct_xids_explain(&health->xids, &scope, to);
}

/* ---- life ----------------------------------------------------------------------------------- */

void health_close(struct health *health)
{
    if (health == NULL)
        return;
    ct_nvml_probe_close(health->probe);
    ct_nvml_probe_close(health->watch);
    ct_nvml_probe_close(health->memory.probe);
    uv_close((uv_handle_t *)&health->memory.timer, NULL);
    health->probe = health->watch = health->memory.probe = NULL;
    health->closed = true;
    health->asking = health->unavailable = true; /* nothing is asked any more */
}

void health_free(struct health *health)
{
    if (health == NULL)
        return;
    ct_buf_deinit(&health->faults);
    free(health);
}

struct health *health_new(struct node *node)
{
    const struct job *job = node->job;
    const struct ct_config *cfg = &job->cfg;
    const char *visible = ct_env_find(job->env, "CUDA_VISIBLE_DEVICES");
    bool on_cpus = job->program.native && cfg->train.device == CT_CONFIG_DEVICE_CPU;

    if (job->visible_gpus == 0 || cfg->launch.gpu_check_ms == 0 || on_cpus)
        return NULL;
    struct health *health = calloc(1, sizeof *health);
    if (health == NULL)
        return NULL;
    health->node = node;
    ct_buf_init(&health->faults, 0);
    (void)uv_timer_init(&node->loop, &health->memory.timer);
    health->memory.timer.data = health;
    ct_gpus_read("", &health->gpus);
    for (uint32_t i = 0; i < job->slots; i++)
        use(&health->gpus, job->gpus != NULL ? job->gpus[i] : visible, health->used);
    return health;
}
