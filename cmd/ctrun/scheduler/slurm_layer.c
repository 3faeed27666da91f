/* See slurm_layer.h. */
#include "slurm_layer.h"

#include "base/assert.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "keys/munge.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_BYTES = 16 << 20 };

/* ---- presets -------------------------------------------------------------------------------- */

static int preset(struct slurm *slurm, const char *key, const char *value, const char *name,
                  struct ct_error *err)
{
    if (value == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for what Slurm says");
    CT_ASSERT(slurm->preset_count < SLURM_PRESETS);
    slurm->presets[slurm->preset_count++] =
        (struct ct_config_preset){.key = key, .value = value, .name = name};
    return 0;
}

/* Another one each time that Slurm queues the job: nobody takes what a killed ctrun left. */
static const char *key_path(struct slurm *slurm, const char *home, uint32_t restarts)
{
    const char *run_id = ct_slurm_run_id(&slurm->allocation, &slurm->arena);

    if (run_id == NULL)
        return NULL;
    return restarts == 0
               ? ct_arena_printf(&slurm->arena, "%s/.ctrun/job-%s.key", home, run_id)
               : ct_arena_printf(&slurm->arena, "%s/.ctrun/job-%s-r%u.key", home, run_id, restarts);
}

enum { ENDPOINT_NODES = 3 }; /* one of them is there for a node that comes later */

/* "node0:port,node1:port,node2:port": the first hosts. */
static const char *endpoints_of(struct slurm *slurm)
{
    const struct ct_slurm *allocation = &slurm->allocation;
    const char *list = "";

    for (uint32_t i = 0; list != NULL && i < CT_MIN(allocation->nodes, (uint32_t)ENDPOINT_NODES);
         i++)
        list = ct_arena_printf(&slurm->arena, "%s%s%s:%u", list, i > 0 ? "," : "",
                               allocation->hosts[i], ct_slurm_port(allocation));
    return list;
}

/* By what they know each other. */
static int preset_key(struct slurm *slurm, char *const *env, struct ct_error *err)
{
    const struct ct_slurm *allocation = &slurm->allocation;
    const char *home = ct_env_find(env, "HOME"), *munge = slurm_munge(env, &slurm->arena);

    if (munge != NULL)
        return preset(slurm, "launch.key_file", munge, "AuthType", err);
    if (home == NULL || home[0] != '/')
        return 0;
    if (allocation->restart_count > 0)
        slurm->left_key = key_path(slurm, home, allocation->restart_count - 1);
    return preset(slurm, "launch.key_file", key_path(slurm, home, allocation->restart_count),
                  "HOME", err);
}

/* What several nodes need to find each other. Where Slurm does not say who takes part, the user
 * has to name a place to meet; without munge and a home directory, a key. */
static int preset_nodes(struct slurm *slurm, char *const *env, struct ct_error *err)
{
    const struct ct_slurm *allocation = &slurm->allocation;
    struct ct_arena *arena = &slurm->arena;
    int rc = preset(slurm, "launch.nnodes", ct_arena_printf(arena, "%u", allocation->nodes),
                    "SLURM_STEP_NUM_NODES", err);

    if (rc == 0)
        rc = preset(slurm, "launch.node_rank", ct_arena_printf(arena, "%u", allocation->node_rank),
                    "SLURM_NODEID", err);
    if (rc == 0 && allocation->hosts != NULL)
        rc = preset(slurm, "launch.rdzv_endpoint", endpoints_of(slurm), "SLURM_STEP_NODELIST", err);
    return rc == 0 ? preset_key(slurm, env, err) : rc;
}

int slurm_read(struct slurm *slurm, char *const *env, struct ct_error *err)
{
    *slurm = (struct slurm){.preset_count = 0};
    ct_arena_init(&slurm->arena, ARENA_BYTES);
    int rc = ct_slurm_read(env, &slurm->arena, &slurm->allocation, err);

    if (rc != 0 || slurm->allocation.place == CT_SLURM_NONE)
        return rc;
    rc = preset(slurm, "launch.rdzv_id", ct_slurm_run_id(&slurm->allocation, &slurm->arena),
                "SLURM_JOB_ID", err);
    if (rc == 0 && slurm->allocation.place == CT_SLURM_TASK && slurm->allocation.nodes > 1)
        rc = preset_nodes(slurm, env, err);
    return rc;
}

/* ---- what the user asked for ---------------------------------------------------------------- */

static bool is_given(const struct ct_config *cfg, const void *member)
{
    return ct_config_origin(cfg, member)->layer > CT_CONFIG_PRESET;
}

static int check(const struct slurm *slurm, const struct ct_config *cfg, struct ct_error *err)
{
    const struct ct_slurm_request request = {
        .nodes_given = is_given(cfg, &cfg->launch.nnodes),
        .min_nodes = cfg->launch.nnodes.min,
        .max_nodes = cfg->launch.nnodes.max,
        .node_rank = is_given(cfg, &cfg->launch.node_rank) ? cfg->launch.node_rank : -1,
        .standalone = cfg->launch.standalone,
    };

    return ct_slurm_check(&slurm->allocation, &request, err);
}

int slurm_complete(struct slurm *slurm, struct ct_config *cfg, const struct ct_log *log,
                   struct ct_error *err)
{
    const struct ct_certificate_files tls = key_option_source(cfg).tls;
    int rc = check(slurm, cfg, err);

    if (rc == 0 && slurm->allocation.restart_count > 0 && slurm->allocation.node_rank == 0 &&
        cfg->log.level <= CT_CONFIG_LEVEL_INFO)
        ct_log_event(
            log, CT_LOG_INFO, "queued_again", "note: Slurm has queued this job again %u time%s",
            slurm->allocation.restart_count, slurm->allocation.restart_count == 1 ? "" : "s");
    if (rc != 0 || slurm->allocation.place != CT_SLURM_TASK || slurm->allocation.nodes <= 1)
        return rc;
    if (is_given(cfg, &cfg->launch.master_addr) && !is_given(cfg, &cfg->launch.rdzv_endpoint))
        cfg->launch.rdzv_endpoint = ""; /* torchrun's other way to name the place to meet */
    if (ct_certificate_files_given(&tls)) {
        if (!is_given(cfg, &cfg->launch.key_file))
            cfg->launch.key_file = ""; /* the one that would be made */
        return 0;
    }
    if (cfg->launch.key_file[0] == '\0')
        return ct_error_set(err, CT_EUSAGE,
                            "the nodes of a job share a key, and HOME names no directory for it: "
                            "make one with `ctrun key new FILE` and give --key_file FILE");
    if (is_given(cfg, &cfg->launch.key_file) || ct_munge_is_meant(cfg->launch.key_file))
        return 0;
    if (slurm->allocation.node_rank != 0)
        return slurm_key_await(log, cfg->launch.key_file,
                               slurm->allocation.hosts != NULL ? slurm->allocation.hosts[0]
                                                               : "node 0",
                               cfg->launch.join_timeout_ms, err);
    if (slurm->left_key != NULL)
        (void)unlink(slurm->left_key);
    rc = slurm_key_make(cfg->launch.key_file, err);
    if (rc == 0)
        slurm->key = ct_arena_strdup(&slurm->arena, cfg->launch.key_file);
    return rc;
}

void slurm_end(struct slurm *slurm)
{
    if (slurm->key != NULL)
        (void)unlink(slurm->key);
    ct_arena_deinit(&slurm->arena);
}
