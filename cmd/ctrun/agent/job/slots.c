/* See slots.h. */
#include "slots.h"

#include "base/assert.h"
#include "base/str.h"
#include "hardware/devices.h"
#include "hardware/nproc.h"
#include "hardware/numa.h"
#include "slurm/slurm.h"
#include "tensor/plugin.h"

#include <string.h>

_Static_assert((int)CT_CONFIG_NUMA_BINDING_AUTO == (int)CT_NUMA_AUTO &&
                   (int)CT_CONFIG_NUMA_BINDING_NONE == (int)CT_NUMA_NONE &&
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

static void note(struct job *job, const char *text)
{
    CT_ASSERT(job->note_count < CT_COUNT(job->notes));
    job->notes[job->note_count++] = text;
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

    job->visible_gpus = ct_nproc_gpus(&host);
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

/* Did the GPUs that are visible say how many workers there are? */
static bool counted_gpus(const struct job *job)
{
    const char *text = job->cfg.launch.nproc_per_node;

    return job->visible_gpus > 0 && (strcmp(text, "gpu") == 0 || strcmp(text, "auto") == 0);
}

/* Of MIG devices CUDA opens the first one that a process is shown: each worker must be shown its
 * own, which then is that process's GPU 0. */
static bool wants_one_each(struct job *job)
{
    const struct ct_config *cfg = &job->cfg;
    bool open = ct_config_origin(cfg, &cfg->launch.virtual_local_rank)->layer == CT_CONFIG_DEFAULT;

    if (cfg->launch.virtual_local_rank)
        return true;
    if (!counted_gpus(job) || job->slots < 2 || !open || cfg->launch.devices.count > 0 ||
        !ct_nproc_names_cuts(ct_env_find(job->env, "CUDA_VISIBLE_DEVICES")))
        return false;
    note(job, "CUDA opens one MIG device a process: each worker sees the one of its place in "
              "CUDA_VISIBLE_DEVICES, and LOCAL_RANK 0");
    return true;
}

/* Cards that are cut and not named are one device, whatever there is. */
static void note_cuts(struct job *job)
{
    struct ct_gpus gpus;

    ct_gpus_read("", &gpus);
    for (uint32_t i = 0; i < gpus.count; i++)
        if (gpus.at[i].is_cut) {
            note(job, "there are GPUs that are cut into MIG devices, of which CUDA opens one a "
                      "process; for a worker on each, name them: "
                      "CUDA_VISIBLE_DEVICES=MIG-...,MIG-... (nvidia-smi -L lists them)");
            return;
        }
}

static int give_gpus(struct job *job, struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    job->virtual_local_rank = wants_one_each(job);
    const struct ct_devices devices = {
        .lists = cfg->launch.devices.at,
        .count = (size_t)cfg->launch.devices.count,
        .one_each = job->virtual_local_rank,
        .visible = visible_devices(job),
    };
    const char **gpus = ct_arena_array(&job->arena, job->slots, sizeof *gpus);

    if (gpus == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the GPUs of %u workers", job->slots);
    if (counted_gpus(job) && devices.visible == NULL)
        note_cuts(job);
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

/* What tells the GPU of each worker. */
static int ask_numa(struct job *job, const struct ct_cpus *allowed, struct ct_numa *ret_numa,
                    struct ct_error *err)
{
    const char *visible = visible_devices(job);
    const char *order = ct_env_find(job->env, "CUDA_DEVICE_ORDER");

    *ret_numa = (struct ct_numa){
        .root = "",
        .mode = (enum ct_numa_mode)job->cfg.launch.numa_binding,
        .allowed = allowed,
        .workers = job->slots,
        .visible = job->gpus,
        .own_list = job->gpus != NULL,
        .by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0,
    };
    if (job->gpus == NULL && visible != NULL) {
        const char **lists = ct_arena_array(&job->arena, job->slots, sizeof *lists);
        if (lists == NULL)
            return ct_error_set(err, CT_ENOMEM, "out of memory for lists of GPUs");
        for (uint32_t i = 0; i < job->slots; i++)
            lists[i] = visible;
        ret_numa->visible = lists;
    }
    return 0;
}

/* Is each worker's GPU its own, by all that is said? Programs that use none are not told from
 * others, so a single worker, and any number that is not that of the GPUs, may be theirs. */
static bool own_gpus(const struct job *job)
{
    if (job->program.native && job->cfg.train.device != CT_CONFIG_DEVICE_AUTO)
        return job->cfg.train.device == CT_CONFIG_DEVICE_CUDA;
    return job->gpus != NULL || counted_gpus(job) ||
           (job->slots > 1 && job->slots == job->visible_gpus);
}

/* Near the GPUs, by itself: *ret_done tells whether. */
static int bind_near(struct job *job, const struct ct_cpus *allowed, struct ct_cpus *cpus,
                     bool *ret_done, struct ct_error *err)
{
    struct ct_error why;
    struct ct_numa numa;

    *ret_done = false;
    if (!own_gpus(job))
        return 0;
    int rc = ask_numa(job, allowed, &numa, err);
    if (rc != 0)
        return rc;
    *ret_done = ct_numa_near(&numa, cpus, &why);
    if (why.code != 0) {
        const char *text = ct_arena_strdup(&job->arena, why.text);
        if (text != NULL)
            note(job, text);
    }
    return 0;
}

/* An equal share of all CPUs; *ret_done tells whether. A single worker has all CPUs anyway, and
 * shares need a CPU each. */
static void share_out(const struct job *job, const struct ct_cpus *allowed, struct ct_cpus *cpus,
                      bool *ret_done)
{
    uint16_t order[CT_CPUS_MAX];

    if (job->slots == 1 || job->slots > ct_cpus_count(allowed))
        return;
    uint32_t count = ct_cpus_order("", allowed, order);
    for (uint32_t i = 0; i < job->slots; i++)
        CT_ASSERT(ct_cpus_share(order, count, job->slots, i, &cpus[i]));
    *ret_done = true;
}

static int give_cpus(struct job *job, const struct ct_cpus *allowed, struct ct_error *err)
{
    struct ct_cpus *cpus = ct_arena_array(&job->arena, job->slots, sizeof *cpus);
    enum ct_numa_mode mode = (enum ct_numa_mode)job->cfg.launch.numa_binding;
    bool affine = job->cfg.launch.cpu_affinity == CT_CONFIG_AFFINITY_AUTO, done = false;
    struct ct_numa numa;
    int rc = 0;

    if (cpus == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the CPUs of %u workers", job->slots);
    if (mode == CT_NUMA_AUTO && affine)
        rc = bind_near(job, allowed, cpus, &done, err);
    else if (mode > CT_NUMA_NONE) {
        rc = ask_numa(job, allowed, &numa, err);
        if (rc == 0 && ct_numa_bind(&numa, cpus, err) != 0)
            rc = blame(job, &job->cfg.launch.numa_binding, err);
        done = true;
    }
    if (rc == 0 && !done && affine && mode <= CT_NUMA_NONE)
        share_out(job, allowed, cpus, &done);
    if (rc == 0 && done)
        job->cpus = cpus;
    return rc;
}

/* No more threads than CPUs. */
static uint32_t threads_of(const struct job *job, uint32_t cpus)
{
    uint32_t threads = ct_omp_threads(cpus, job->slots);

    for (uint32_t i = 0; job->cpus != NULL && i < job->slots; i++)
        threads = CT_MIN(threads, ct_cpus_count(&job->cpus[i]));
    return threads;
}

/* A training that would be faster with fewer workers runs all the same. */
static void warn_of_crowd(struct job *job, uint32_t cpus)
{
    if (!job->program.native || own_gpus(job) || !ct_nproc_is_crowded(job->slots, cpus))
        return;
    job->warning = ct_arena_printf(
        &job->arena,
        "%u workers share %u %s and take turns: fewer (--nproc_per_node) train faster here",
        job->slots, cpus, cpus == 1 ? "CPU" : "CPUs");
}

/* What of a training computes on a GPU alone; NULL: nothing, or the plan refuses it anyway. */
static const void *needs_gpu(const struct ct_config *cfg, bool *ret_by_choice)
{
    bool on_cpu = cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP ||
                  cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS;

    *ret_by_choice = on_cpu || cfg->train.device == CT_CONFIG_DEVICE_CPU;
    if (cfg->train.device == CT_CONFIG_DEVICE_CUDA)
        return on_cpu ? NULL : &cfg->train.device;
    return cfg->parallel.backend == CT_CONFIG_BACKEND_NCCL ||
                   cfg->parallel.backend == CT_CONFIG_BACKEND_STAGED
               ? &cfg->parallel.backend
               : NULL;
}

/* A GPU that a training cannot do without is missed here and once, not by each worker. */
static int check_device(const struct job *job, struct ct_error *err)
{
    static const struct ct_device_request request = {.kind = CT_DEVICE_CUDA};
    const struct ct_config *cfg = &job->cfg;
    struct ct_error why = {0};
    bool by_choice;
    const void *member = job->program.native ? needs_gpu(cfg, &by_choice) : NULL;

    if (member == NULL ||
        (!by_choice && ct_device_probe(&request, ct_gpus_present("") > 0, &why) == 0))
        return 0;
    if (member == &cfg->train.device) {
        (void)ct_error_set(err, CT_EUNSUPPORTED, "%s; or compute on the CPU (train.device: cpu)",
                           why.text);
        return blame(job, member, err);
    }
    (void)ct_error_set(err, CT_EUNSUPPORTED,
                       "%s carries memory of a GPU, and this training computes on the CPU%s%s%s; "
                       "leave it out",
                       ct_config_word(cfg, member), why.code != 0 ? " (" : "",
                       why.code != 0 ? why.text : "", why.code != 0 ? ")" : "");
    return accuse(job, member, err);
}

int hardware_decide(struct job *job, struct ct_error *err)
{
    struct ct_cpus allowed = {{0}};
    uint32_t given = job->slurm != NULL ? ct_slurm_cpus(job->slurm) : 0;

    (void)ct_cpus_allowed(&allowed);
    uint32_t available = ct_cpus_available("", &allowed);
    uint32_t cpus = given != 0 ? CT_MIN(given, available) : available;
    int rc = check_device(job, err);
    if (rc == 0)
        rc = count_workers(job, cpus, err);
    if (rc == 0)
        rc = give_gpus(job, err);
    if (rc == 0)
        rc = give_cpus(job, &allowed, err);
    if (rc == 0)
        job->omp_threads =
            ct_env_find(job->env, "OMP_NUM_THREADS") == NULL ? threads_of(job, cpus) : 0;
    if (rc == 0)
        warn_of_crowd(job, cpus);
    return rc;
}
