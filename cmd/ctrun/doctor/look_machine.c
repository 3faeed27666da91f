/* See look.h. */
#include "cmd/ctrun/doctor/look.h"

#include "algorithm/select.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "diagnose/nvml_probe_uv.h"
#include "hardware/affinity.h"
#include "hardware/gpus.h"
#include "hardware/health.h"
#include "hardware/nproc.h"
#include "keys/munge.h"
#include "launch/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

enum { NVML_MS = 3000, RING_SLOTS = 4 };

static uint64_t limit_of(__rlimit_resource_t resource)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

static bool is_there(const char *pattern)
{
    glob_t found;
    bool is = glob(pattern, 0, NULL, &found) == 0;

    globfree(&found);
    return is;
}

/* The number in a file of a cgroup; `none` without one, or for "max". */
static uint64_t cgroup_number(const char *group, const char *file, uint64_t none)
{
    char text[64];
    char path[PATH_MAX + 32];
    char *end;

    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    if (!ct_sys_read("", path, text, sizeof text))
        return none;
    uint64_t number = strtoull(text, &end, 10);
    return end == text ? none : number;
}

/* What is least of this process's group and those above it: each limits all below. */
static void look_cgroup(struct doctor_facts *to)
{
    char group[PATH_MAX];

    to->memory_limit = to->pids_max = UINT64_MAX;
    if (!ct_cgroup_own("", group))
        return;
    for (char *slash = group; slash != NULL && slash != group + 1; *slash = '\0') {
        uint64_t memory = cgroup_number(group, "memory.max", UINT64_MAX);
        uint64_t used = cgroup_number(group, "memory.current", 0);
        uint64_t pids = cgroup_number(group, "pids.max", UINT64_MAX);
        uint64_t now = cgroup_number(group, "pids.current", 0);

        if (memory != UINT64_MAX)
            to->memory_limit = CT_MIN(to->memory_limit, memory > used ? memory - used : 0);
        if (pids != UINT64_MAX && (to->pids_max == UINT64_MAX ||
                                   pids - CT_MIN(pids, now) < to->pids_max - to->pids_now)) {
            to->pids_max = pids;
            to->pids_now = CT_MIN(pids, now);
        }
        slash = strrchr(group, '/');
        if (slash == NULL || slash == group)
            return;
    }
}

/* MemAvailable of /proc/meminfo, in bytes. */
static uint64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = UINT64_MAX >> 10;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (file != NULL)
        (void)fclose(file);
    return (uint64_t)kib << 10;
}

/* The folder or the nearest one above that exists: where it would be made. */
static void look_folder(const char *path, struct doctor_folder *to)
{
    struct statvfs room;

    (void)ct_str_copy(to->path, sizeof to->path, path);
    while (access(to->path, F_OK) != 0 && errno == ENOENT) {
        char *slash = strrchr(to->path, '/');

        if (slash == NULL)
            (void)ct_str_copy(to->path, sizeof to->path, ".");
        else
            slash[slash == to->path] = '\0';
    }
    if (faccessat(AT_FDCWD, to->path, W_OK | X_OK, AT_EACCESS) != 0 ||
        statvfs(to->path, &room) != 0) {
        to->error = errno;
        return;
    }
    if ((room.f_flag & ST_RDONLY) != 0)
        to->error = EROFS;
    to->free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    to->free_files = room.f_files == 0 ? UINT64_MAX : room.f_favail; /* btrfs counts none */
}

static void look_shm(struct doctor_facts *to)
{
    struct statvfs room;

    if (statvfs("/dev/shm", &room) != 0)
        return;
    to->shm_bytes = (uint64_t)room.f_blocks * room.f_frsize;
    look_folder("/dev/shm", &to->shm);
}

/* Does munged seal and open for this user? One for another account is only sealed here. */
static int look_munge(const struct ct_key *key, struct ct_error *err)
{
    struct ct_munge_credential credential;
    int code = ct_munge_seal(key, &credential, err);

    if (code == 0 && key->munge.account == geteuid())
        code = ct_munge_open(key->munge.socket, &credential, err);
    if (code == 0)
        ct_net_key_wipe(&credential.key);
    return code;
}

static void look_key(const struct ct_config *cfg, struct doctor_facts *to)
{
    struct ct_error err = {0};
    const struct ct_key_source source = key_option_source(cfg);
    struct ct_key key = {0};

    to->has_key = ct_key_source_given(&source);
    to->has_certificate = ct_certificate_files_given(&source.tls);
    if (!to->has_key)
        return;
    to->by_munge = ct_munge_is_meant(cfg->launch.key_file);
    to->key.code = ct_key_source_load(&source, &key, &err);
    if (to->key.code == 0 && to->by_munge)
        to->key.code = look_munge(&key, &err);
    if (to->key.code == 0 && to->has_certificate)
        to->key.code = ct_certificates_judge_time(
            key.certificates, (int64_t)(ct_clock_wall_ns(&ct_clock_system) / 1000000000), &err);
    ct_net_key_wipe(&key);
    (void)ct_str_copy(to->key.text, sizeof to->key.text, err.text);
}

static void look_workers(const struct ct_config *cfg, struct doctor_facts *to)
{
    struct ct_cpus allowed = {0};
    struct ct_error err = {0};
    struct ct_host_view view = {
        .root = "", .cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES"), .name = to->name.name};
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    (void)ct_cpus_allowed(&allowed);
    view.cpus = to->cpus = ct_cpus_available("", &allowed);
    to->cpus_online = online > 0 ? (uint32_t)online : to->cpus;
    to->workers = 1;
    to->nproc.code = ct_nproc_resolve(cfg->launch.nproc_per_node, &view, &to->workers, &err);
    (void)ct_str_copy(to->nproc.text, sizeof to->nproc.text, err.text);
    to->gpus_present = ct_gpus_present("");
    to->gpus_visible = ct_nproc_gpus(&view);
}

static void on_sentence(void *context, bool is_wrong, const char *sentence)
{
    struct doctor_outcome *nvml = context;

    if (!is_wrong || nvml->code != 0)
        return; /* the first one is enough: ctrun gpus has them all */
    nvml->code = CT_EDEVICE;
    (void)ct_str_copy(nvml->text, sizeof nvml->text, sentence);
}

/* Where there are GPUs, ask NVML, in a process of its own. */
static void look_gpus(struct doctor_facts *to)
{
    struct ct_gpus *gpus = calloc(1, sizeof *gpus);
    struct ct_health *health = calloc(1, sizeof *health);
    struct ct_error err = {0};
    uint64_t late_ms = 0;

    if (gpus != NULL && health != NULL) {
        ct_gpus_read("", gpus);
        to->nvml.code = ct_nvml_probe_wait(NVML_MS, health, &late_ms, &err);
        (void)ct_str_copy(to->nvml.text, sizeof to->nvml.text, err.text);
        const struct ct_health_scope scope = {.gpus = gpus, .late_ms = late_ms};

        if (to->nvml.code == 0)
            ct_health_report(health, &scope, on_sentence, &to->nvml);
    }
    free(gpus);
    free(health);
}

/* Of backend shm's segment (backend/local/local.h) at least: two stages a worker, a ring for each
 * pair. */
static uint64_t segment_bytes(uint64_t workers)
{
    struct ct_tuning tuning = ct_tuning_complete(NULL);

    return workers < 2 ? 0
                       : workers * 2 * tuning.local_chunk_bytes +
                             workers * workers * RING_SLOTS * tuning.local_ring_bytes;
}

void doctor_look_machine(const struct ct_config *cfg, struct doctor_facts *ret_facts)
{
    struct timex clock = {.modes = 0};
    const char *tmpdir = getenv("TMPDIR");

    look_workers(cfg, ret_facts);
    ret_facts->files = limit_of(RLIMIT_NOFILE);
    ret_facts->memlock = limit_of(RLIMIT_MEMLOCK);
    ret_facts->processes = geteuid() == 0 ? UINT64_MAX : limit_of(RLIMIT_NPROC); /* not of root */
    ret_facts->has_infiniband = is_there("/sys/class/infiniband/*");
    look_cgroup(ret_facts);
    look_shm(ret_facts);
    look_key(cfg, ret_facts);
    look_folder(cfg->launch.log_dir[0] != '\0' ? cfg->launch.log_dir : ".", &ret_facts->folder);
    look_folder(tmpdir != NULL && *tmpdir != '\0' ? tmpdir : "/tmp", &ret_facts->tmpdir);
    int state = adjtimex(&clock);
    ret_facts->clock_error = state < 0 ? errno : 0;
    ret_facts->clock_unsynced = state == TIME_ERROR || (clock.status & STA_UNSYNC) != 0;
    ret_facts->memory_free = memory_available();
    ret_facts->segment_bytes = segment_bytes(ret_facts->workers);
    if (ret_facts->gpus_present > 0)
        look_gpus(ret_facts);
}
