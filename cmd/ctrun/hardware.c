/* See hardware.h. */
#include "hardware.h"

#include "base/assert.h"
#include "launch/devices.h"
#include "launch/env.h"
#include "launch/nproc.h"
#include "launch/numa.h"
#include "launch/slurm.h"

#include <string.h>

_Static_assert((int)CT_CONFIG_NUMA_BINDING_NONE == (int)CT_NUMA_NONE &&
                   (int)CT_CONFIG_NUMA_BINDING_NODE == (int)CT_NUMA_NODE &&
                   (int)CT_CONFIG_NUMA_BINDING_SOCKET == (int)CT_NUMA_SOCKET &&
                   (int)CT_CONFIG_NUMA_BINDING_EXCLUSIVE == (int)CT_NUMA_EXCLUSIVE &&
                   (int)CT_CONFIG_NUMA_BINDING_CORE_COMPLEX == (int)CT_NUMA_CORE_COMPLEX,
               "one list of modes");

/* "--option SENTENCE" or "file:3:7: SENTENCE": where the member's value came from. */
static int blame(const struct job *job, const void *member, struct ct_error *err)
{
    char origin[256];

    return ct_error_prefix(
        err, "%s",
        ct_config_origin_text(ct_config_origin(&job->cfg, member), origin, sizeof origin));
}

/* "--option gives ...": the sentence is about the setting itself. */
static int accuse(const struct job *job, const void *member, struct ct_error *err)
{
    const struct ct_error sentence = *err;
    char origin[256];

    return ct_error_set(
        err, sentence.code, "%s %s",
        ct_config_origin_text(ct_config_origin(&job->cfg, member), origin, sizeof origin),
        sentence.text);
}

/* The GPUs that ctrun itself was given: AMD's list counts before NVIDIA's where it is set. */
static const char *visible_devices(const struct job *job)
{
    const char *hip = ct_env_find(job->env, "HIP_VISIBLE_DEVICES");

    return hip != NULL && hip[0] != '\0' ? hip : ct_env_find(job->env, "CUDA_VISIBLE_DEVICES");
}

/* One worker for each list of --devices, unless a number was given. */
static int count_workers(struct job *job, uint32_t cpus, struct ct_error *err)
{
    const char *text = job->cfg.launch.nproc_per_node;
    const struct ct_config_strs *devices = &job->cfg.launch.devices;
    bool open =
        ct_config_origin(&job->cfg, &job->cfg.launch.nproc_per_node)->layer == CT_CONFIG_DEFAULT ||
        strcmp(text, "gpu") == 0 || strcmp(text, "auto") == 0;
    const struct ct_host_view host = {
        .root = "",
        .cpus = cpus,
        .cuda_visible_devices = ct_env_find(job->env, "CUDA_VISIBLE_DEVICES"),
        .name = job->host,
    };

    if (devices->count > 0 && open) {
        job->slots = (uint32_t)devices->count;
        return 0;
    }
    if (ct_nproc_resolve(text, &host, &job->slots, err) != 0)
        return blame(job, &job->cfg.launch.nproc_per_node, err);
    if (devices->count > 0 && devices->count != job->slots) {
        (void)ct_error_set(err, CT_EUSAGE,
                           "gives the GPUs of %lld workers, but %u start here; correct it or "
                           "--nproc_per_node",
                           (long long)devices->count, job->slots);
        return accuse(job, devices, err);
    }
    return 0;
}

static int give_gpus(struct job *job, struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    const struct ct_devices devices = {
        .lists = cfg->launch.devices.at,
        .count = (size_t)cfg->launch.devices.count,
        .one_each = cfg->launch.virtual_local_rank,
        .visible = visible_devices(job),
    };
    const char **gpus = ct_arena_array(&job->arena, job->slots, sizeof *gpus);

    if (gpus == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the GPUs of %u workers", job->slots);
    if (devices.count == 0 && !devices.one_each)
        return 0;
    for (uint32_t i = 0; i < job->slots; i++)
        if (ct_devices_of(&devices, i, &job->arena, &gpus[i], err) != 0)
            return accuse(job,
                          devices.count > 0 ? (const void *)&cfg->launch.devices
                                            : (const void *)&cfg->launch.virtual_local_rank,
                          err);
    job->gpus = gpus;
    return 0;
}

static int bind_to_nodes(struct job *job, const struct ct_cpus *allowed, struct ct_cpus *cpus,
                         struct ct_error *err)
{
    const char *visible = visible_devices(job);
    struct ct_numa numa = {
        .root = "",
        .mode = (enum ct_numa_mode)job->cfg.launch.numa_binding,
        .allowed = allowed,
        .workers = job->slots,
        .visible = job->gpus,
        .own_list = job->gpus != NULL,
    };

    if (job->gpus == NULL && visible != NULL) {
        const char **lists = ct_arena_array(&job->arena, job->slots, sizeof *lists);
        if (lists == NULL)
            return ct_error_set(err, CT_ENOMEM, "out of memory for lists of GPUs");
        for (uint32_t i = 0; i < job->slots; i++)
            lists[i] = visible;
        numa.visible = lists;
    }
    return ct_numa_bind(&numa, cpus, err) == 0 ? 0 : blame(job, &job->cfg.launch.numa_binding, err);
}

static int give_cpus(struct job *job, const struct ct_cpus *allowed, struct ct_error *err)
{
    struct ct_cpus *cpus = ct_arena_array(&job->arena, job->slots, sizeof *cpus);
    uint16_t order[CT_CPUS_MAX];
    int rc = 0;

    if (cpus == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the CPUs of %u workers", job->slots);
    if (job->cfg.launch.numa_binding != CT_CONFIG_NUMA_BINDING_NONE) {
        rc = bind_to_nodes(job, allowed, cpus, err);
    } else {
        /* A single worker has all CPUs anyway, and shares need a CPU each. */
        if (job->cfg.launch.cpu_affinity != CT_CONFIG_AFFINITY_AUTO || job->slots == 1 ||
            job->slots > ct_cpus_count(allowed))
            return 0;
        uint32_t count = ct_cpus_order("", allowed, order);
        for (uint32_t i = 0; i < job->slots; i++)
            CT_ASSERT(ct_cpus_share(order, count, job->slots, i, &cpus[i]));
    }
    if (rc == 0)
        job->cpus = cpus;
    return rc;
}

int hardware_decide(struct job *job, struct ct_error *err)
{
    struct ct_cpus allowed = {{0}};
    uint32_t given = job->slurm != NULL ? ct_slurm_cpus(job->slurm) : 0;

    (void)ct_cpus_allowed(&allowed);
    uint32_t available = ct_cpus_available("", &allowed);
    uint32_t cpus = given != 0 ? CT_MIN(given, available) : available;
    int rc = count_workers(job, cpus, err);
    if (rc == 0)
        rc = give_gpus(job, err);
    if (rc == 0)
        rc = give_cpus(job, &allowed, err);
    if (rc == 0)
        job->omp_threads =
            ct_env_find(job->env, "OMP_NUM_THREADS") == NULL ? ct_omp_threads(cpus, job->slots) : 0;
    return rc;
}
