/* See health_uv.h. */
#include "health_uv.h"

#include "base/str.h"
#include "launch/devices.h"
#include "launch/env.h"
#include "launch/look_uv.h"
#include "node_state_uv.h"

#include <stdlib.h>
#include <string.h>

struct health {
    struct node *node;
    struct ct_look *look; /* the last one */
    bool asking;
    bool told; /* the first answer is here */
    struct ct_gpus gpus;
    bool used[CT_GPUS_MAX]; /* by the workers of this node */
    struct ct_buf said;     /* what was said to be wrong */
};

/* The cards of a list as workers are given; all when there is none, or one is not known. */
static void use(struct health *health, const char *list)
{
    char entry[128];
    bool all = list == NULL;

    for (uint32_t i = 0; !all && ct_devices_entry(list, i, entry, sizeof entry); i++) {
        int card = ct_gpus_find(&health->gpus, entry);

        if (card >= 0)
            health->used[card] = true;
        else
            all = ct_starts_with(entry, "MIG-");
    }
    for (uint32_t i = 0; all && i < health->gpus.count; i++)
        health->used[i] = true;
}

static void on_sentence(void *context, bool is_wrong, const char *sentence)
{
    struct health *health = context;

    if (is_wrong ? strstr(ct_buf_str(&health->said), sentence) != NULL : health->told)
        return; /* once is enough */
    if (is_wrong)
        (void)ct_buf_printf(&health->said, "%s\n", sentence);
    ct_log_event(&health->node->log, is_wrong ? CT_LOG_WARN : CT_LOG_INFO,
                 is_wrong ? "gpu_fault" : "gpus", "%s", sentence);
}

static void on_done(void *context, const struct ct_health *answer, uint64_t late_ms)
{
    struct health *health = context;
    const struct ct_health_scope scope = {
        .gpus = &health->gpus, .used = health->used, .late_ms = late_ms};

    health->asking = false;
    ct_console_live(health->node->console, "");
    ct_health_tell(answer, &scope, on_sentence, health);
    health->told = true;
}

void health_look(struct health *health)
{
    struct ct_error err = {0};

    if (health == NULL || health->asking)
        return;
    struct node *node = health->node;
    ct_look_close(health->look);
    health->look = NULL;
    health->asking =
        ct_look_start(&health->look, &node->loop, (uint64_t)node->job->cfg.launch.gpu_check_ms,
                      on_done, health, &err) == 0;
    if (!health->asking)
        ct_log_event(&node->log, CT_LOG_WARN, "gpus", "how the GPUs are is not known: %s",
                     err.text);
}

void health_close(struct health *health)
{
    if (health == NULL)
        return;
    ct_look_close(health->look);
    health->look = NULL;
    health->asking = true; /* nothing is asked any more */
}

void health_free(struct health *health)
{
    if (health == NULL)
        return;
    ct_buf_deinit(&health->said);
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
    ct_buf_init(&health->said, 0);
    ct_gpus_read("", &health->gpus);
    for (uint32_t i = 0; i < job->slots; i++)
        use(health, job->gpus != NULL ? job->gpus[i] : visible);
    return health;
}
