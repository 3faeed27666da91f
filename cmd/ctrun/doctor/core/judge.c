/* See doctor.h: the checks of this machine, in the order of the table. */
#include "cmd/ctrun/doctor/core/finding.h"

#include "base/assert.h"

#include <inttypes.h>
#include <string.h>

enum {
    FILES_AGENT = 64, /* what an agent has open besides its workers' */
    FILES_WORKER = 8, /* pipes, links, pidfd */
    FILES_USUAL = 1024,
    THREADS_WORKER = 16, /* of a worker besides those that compute */
    THREADS_AGENT = 64,
    CROWD = 4, /* workers a CPU (hardware/nproc.h) */
};

static const uint64_t mib = 1u << 20;
/* PyTorch's loaders, NCCL, MPI and UCX each take a few MiB a worker; a container has 64 MiB. */
static const uint64_t shm_worker_bytes = 64u << 20;
/* What a worker takes before it has a model. */
static const uint64_t worker_bytes = 64u << 20;
static const uint64_t room_little = 100u << 20, room_none = 1u << 20;

static const char *s(uint32_t number)
{
    return number == 1 ? "" : "s";
}

static void judge_name(const struct doctor_facts *facts, struct doctor_finding *to)
{
    const struct doctor_lookup *name = &facts->name;

    if (name->failure[0] != '\0') {
        finding_warn(to, "this machine's name, %s, does not resolve: %s", name->name,
                     name->failure);
        finding_remedy(to,
                       "add a line to /etc/hosts, or to DNS: ADDRESS %s (ctrun needs none; "
                       "PyTorch's Gloo and MPI do)",
                       name->name);
    } else if (facts->beyond && name->loopback) {
        finding_warn(to, "this machine's name, %s, resolves to loopback alone (%s)", name->name,
                     name->first);
        finding_remedy(to,
                       "have /etc/hosts give %s the address that other machines know, instead "
                       "of 127.0.1.1; else PyTorch's Gloo and MPI listen where none reaches "
                       "them (GLOO_SOCKET_IFNAME names an interface)",
                       name->name);
    } else {
        finding_ok(to, "%s resolves to %s%s", name->name, name->first,
                   name->count > 1 ? " and more" : "");
    }
}

static void judge_workers(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->nproc.code != 0) {
        finding_fail(to, facts->nproc.code, "%s", facts->nproc.text);
        finding_remedy(to, "give another --nproc_per_node");
    } else if (facts->workers > facts->cpus * (uint64_t)CROWD) {
        finding_warn(to, "%" PRIu32 " workers share %" PRIu32 " CPU%s", facts->workers, facts->cpus,
                     s(facts->cpus));
        finding_remedy(to, "give a smaller --nproc_per_node, or more CPUs to this process "
                           "(taskset, cpu.max of its cgroup)");
    } else if (facts->cpus < facts->cpus_online) {
        finding_ok(to,
                   "%" PRIu32 " workers, %" PRIu32 " of the %" PRIu32
                   " CPUs for them (affinity or the cgroup's quota)",
                   facts->workers, facts->cpus, facts->cpus_online);
    } else {
        finding_ok(to, "%" PRIu32 " worker%s, %" PRIu32 " CPU%s", facts->workers, s(facts->workers),
                   facts->cpus, s(facts->cpus));
    }
}

static void judge_files(const struct doctor_facts *facts, struct doctor_finding *to)
{
    uint64_t needed = FILES_AGENT + FILES_WORKER * (uint64_t)facts->workers;

    if (facts->files == UINT64_MAX) {
        finding_ok(to, "no limit of open files");
        return;
    }
    if (facts->files < needed)
        finding_fail(to, CT_EOS,
                     "%" PRIu64 " open files are allowed; about %" PRIu64 " are needed "
                     "(--nproc_per_node %" PRIu32 ")",
                     facts->files, needed, facts->workers);
    else if (facts->files < FILES_USUAL)
        finding_warn(to, "%" PRIu64 " open files are allowed, fewer than programs expect",
                     facts->files);
    else
        finding_ok(to, "%" PRIu64 " open files are allowed", facts->files);
    if (to->level != DOCTOR_OK)
        finding_remedy(to, "raise it: ulimit -n %" PRIu64 " (LimitNOFILE= of a service)",
                       CT_MAX(needed, (uint64_t)FILES_USUAL));
}

static void judge_memlock(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->memlock == UINT64_MAX) {
        finding_ok(to, "no limit of locked memory");
    } else if (facts->has_infiniband) {
        finding_warn(to,
                     "%" PRIu64 " MiB of memory may be locked, and InfiniBand or RoCE needs "
                     "all that it sends from",
                     facts->memlock / mib);
        finding_remedy(to, "ulimit -l unlimited (LimitMEMLOCK=infinity; memlock in "
                           "/etc/security/limits.d)");
    } else {
        finding_ok(to, "%" PRIu64 " MiB of memory may be locked; nothing here needs it",
                   facts->memlock / mib);
    }
}

static void judge_processes(const struct doctor_facts *facts, struct doctor_finding *to)
{
    uint64_t needed = facts->cpus + THREADS_WORKER * (uint64_t)facts->workers + THREADS_AGENT;
    uint64_t left = facts->pids_max == UINT64_MAX       ? UINT64_MAX
                    : facts->pids_max > facts->pids_now ? facts->pids_max - facts->pids_now
                                                        : 0;

    if (facts->processes < needed) {
        finding_fail(to, CT_EOS,
                     "%" PRIu64 " processes and threads are allowed; about %" PRIu64
                     " are needed (--nproc_per_node %" PRIu32 ")",
                     facts->processes, needed, facts->workers);
        finding_remedy(to, "raise it: ulimit -u %" PRIu64 " (LimitNPROC= of a service)",
                       4 * needed);
    } else if (left < needed) {
        finding_fail(to, CT_EOS,
                     "the cgroup allows %" PRIu64 " more processes and threads; about %" PRIu64
                     " are needed (--nproc_per_node %" PRIu32 ")",
                     left, needed, facts->workers);
        finding_remedy(to, "raise its pids.max (TasksMax= of a service, --pids-limit of a "
                           "container)");
    } else if (facts->processes == UINT64_MAX && left == UINT64_MAX) {
        finding_ok(to, "no limit of processes and threads");
    } else {
        finding_ok(to, "%" PRIu64 " processes and threads are allowed",
                   CT_MIN(facts->processes, left));
    }
}

static void judge_shm(const struct doctor_facts *facts, struct doctor_finding *to)
{
    uint64_t needed = shm_worker_bytes * facts->workers;
    uint64_t free_mib = facts->shm.free_bytes / mib;

    if (facts->shm_bytes == 0 || facts->shm.error != 0)
        finding_warn(to, "/dev/shm cannot be used: %s",
                     facts->shm_bytes == 0 ? "there is no file system on it"
                                           : ct_strerror(-facts->shm.error));
    else if (facts->shm.free_bytes < needed)
        finding_warn(to,
                     "/dev/shm has %" PRIu64 " of %" PRIu64 " MiB free; PyTorch's loaders, NCCL, "
                     "MPI and UCX take up to %" PRIu64 " MiB (--nproc_per_node %" PRIu32 "); "
                     "ctrun's own rings lie in anonymous memory",
                     free_mib, facts->shm_bytes / mib, needed / mib, facts->workers);
    else
        finding_ok(to, "/dev/shm has %" PRIu64 " of %" PRIu64 " MiB free", free_mib,
                   facts->shm_bytes / mib);
    if (to->level != DOCTOR_OK)
        finding_remedy(to,
                       "mount -o remount,size=%" PRIu64 "M /dev/shm (--shm-size of a "
                       "container; an emptyDir of medium Memory in a pod)",
                       CT_MAX(needed / mib, UINT64_C(1024)));
}

static void judge_certificate(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->key.code == 0) {
        finding_ok(to, "the certificate is signed by the CA and good for more than a week");
    } else if (facts->key.code == CT_EUNAVAILABLE) { /* soon */
        finding_warn(to, "%s", facts->key.text);
        finding_remedy(to, "have the CA sign a new one, and put it in the file's place");
    } else {
        finding_fail(to, facts->key.code, "%s", facts->key.text);
        finding_remedy(to, "cmd/ctrund/README.md has the commands for a CA and certificates; "
                           "--tls_cert, --tls_key and --tls_ca name the files");
    }
}

static void judge_key(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->has_certificate) {
        judge_certificate(facts, to);
        return;
    }
    if (facts->by_munge && facts->key.code != 0) {
        finding_fail(to, facts->key.code, "%s", facts->key.text);
        finding_remedy(to, "install and start munge here (packages munge, libmunge2), with the "
                           "key of the other machines, or give a key file");
    } else if (facts->by_munge) {
        finding_ok(to, "munged answers: users are known by munge, without a key file");
    } else if (facts->has_key && facts->key.code != 0) {
        finding_fail(to, facts->key.code, "%s", facts->key.text);
        finding_remedy(to, "make one with `ctrun key new FILE`, copy it to every node, and keep "
                           "its mode at 0600");
    } else if (facts->has_key) {
        finding_ok(to, "the key file is a key that only you and root can read");
    } else if (facts->beyond) {
        finding_warn(to, "no --key_file is given; a job of several machines needs one");
        finding_remedy(to, "ctrun key new job.key, copy it to every node, --key_file job.key");
    } else {
        finding_ok(to, "none is needed on one machine");
    }
}

static void judge_place(const struct doctor_folder *folder, const char *what, const char *remedy,
                        struct doctor_finding *to)
{
    if (folder->error != 0)
        finding_fail(to, CT_ECANTCREAT, "%s, %s, cannot be written to: %s", what, folder->path,
                     ct_strerror(-folder->error));
    else if (folder->free_bytes < room_none || folder->free_files == 0)
        finding_fail(to, CT_ECANTCREAT, "%s, %s, is full", what, folder->path);
    else if (folder->free_bytes < room_little)
        finding_warn(to, "%s, %s, has only %" PRIu64 " MiB free", what, folder->path,
                     folder->free_bytes / mib);
    else
        finding_ok(to, "%s, %s, has %" PRIu64 " MiB free", what, folder->path,
                   folder->free_bytes / mib);
    if (to->level != DOCTOR_OK)
        finding_remedy(to, "%s", remedy);
}

static void judge_folder(const struct doctor_facts *facts, struct doctor_finding *to)
{
    judge_place(&facts->folder, "the folder of logs and runs",
                "make room there, or start from another folder (--log_dir, --checkpoint.dir)", to);
}

static void judge_tmpdir(const struct doctor_facts *facts, struct doctor_finding *to)
{
    judge_place(&facts->tmpdir, "the folder of temporary files",
                "make room there, or set TMPDIR to another folder", to);
}

static void judge_clock(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->clock_error != 0)
        finding_ok(to, "whether the clock is synchronised cannot be seen here: %s",
                   ct_strerror(-facts->clock_error));
    else if (!facts->clock_unsynced)
        finding_ok(to, "the clock is synchronised");
    else if (!facts->beyond)
        finding_ok(to, "the clock is not synchronised, which one machine does not need");
    else {
        finding_warn(to, "the clock is not synchronised: logs of several machines will not line "
                         "up (leases do not depend on it)");
        finding_remedy(to, "install and start chrony or systemd-timesyncd");
    }
}

static void judge_memory(const struct doctor_facts *facts, struct doctor_finding *to)
{
    uint64_t free_bytes = CT_MIN(facts->memory_free, facts->memory_limit);
    uint64_t needed = worker_bytes * facts->workers + facts->segment_bytes;
    const char *of = facts->memory_limit < facts->memory_free ? "the cgroup" : "this machine";

    if (free_bytes >= needed) {
        finding_ok(to, "%" PRIu64 " MiB of %s are free", free_bytes / mib, of);
        return;
    }
    finding_warn(to,
                 "%" PRIu64 " MiB of %s are free; about %" PRIu64 " MiB are taken before there "
                 "is a model (--nproc_per_node %" PRIu32 "), %" PRIu64 " MiB of these shared for "
                 "collectives",
                 free_bytes / mib, of, needed / mib, facts->workers, facts->segment_bytes / mib);
    finding_remedy(to, "start fewer workers, end other programs, or raise memory.max of the cgroup "
                       "(`ctrun plan FILE.yaml` says what a training takes)");
}

static void judge_gpus(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->gpus_present == 0) {
        finding_ok(to, "no NVIDIA GPU: workers run on CPUs");
    } else if (facts->nvml.code != 0) {
        finding_warn(to, "%s", facts->nvml.text);
        finding_remedy(to, "see `ctrun gpus`, and nvidia-smi of the driver");
    } else if (facts->gpus_visible < facts->gpus_present) {
        finding_ok(to,
                   "%" PRIu32 " of %" PRIu32 " GPUs are visible to workers "
                   "(CUDA_VISIBLE_DEVICES); NVML finds no fault",
                   facts->gpus_visible, facts->gpus_present);
    } else {
        finding_ok(to, "%" PRIu32 " GPUs; NVML finds no fault", facts->gpus_present);
    }
}

/* A library that some backend loads: only who wants that backend misses it. */
static void judge_library(const struct doctor_outcome *library, const char *backend,
                          const char *remedy, struct doctor_finding *to)
{
    if (library->code == 0) {
        finding_ok(to, "%s", library->text);
    } else if (library->wanted) {
        finding_fail(to, library->code, "%s", library->text);
        finding_remedy(to, "%s", remedy);
    } else {
        finding_ok(to, "none found; only --backend %s needs it", backend);
    }
}

static void judge_mpi(const struct doctor_facts *facts, struct doctor_finding *to)
{
    judge_library(&facts->mpi, "mpi",
                  "install libopenmpi3 or libmpich12, or name a library in CTRUN_MPI", to);
}

static void judge_ucx(const struct doctor_facts *facts, struct doctor_finding *to)
{
    judge_library(&facts->ucx, "ucx", "install libucx0", to);
}

static void judge_programs(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->worker[0] == '\0') {
        finding_warn(to, "no ctworker beside this ctrun says its version: YAML files cannot be "
                         "trained");
    } else if (strcmp(facts->worker, facts->version) != 0) {
        finding_fail(to, CT_EUNSUPPORTED, "ctworker beside this ctrun %s is %s", facts->version,
                     facts->worker);
    } else if (facts->has_library && strcmp(facts->library, facts->version) != 0) {
        finding_fail(to, CT_EUNSUPPORTED, "libctrun.so.1 beside this ctrun %s is %s",
                     facts->version,
                     facts->library[0] != '\0' ? facts->library : "none that can be loaded");
    } else {
        finding_ok(to, "ctrun, ctworker%s are of version %s",
                   facts->has_library ? " and libctrun.so.1" : "", facts->version);
        return;
    }
    finding_remedy(to, "install all of them anew, of one version");
}

static void judge_python(const struct doctor_facts *facts, struct doctor_finding *to)
{
    if (facts->python[0] == '\0' || facts->python_version[0] == '\0') {
        finding_warn(to,
                     "%s%s: scripts cannot be started (YAML files and other programs need no "
                     "Python)",
                     facts->python[0] == '\0' ? "no python3 in PATH" : facts->python,
                     facts->python[0] == '\0' ? "" : " does not answer within 3 s");
        finding_remedy(to, "install python3, or name an interpreter in PYTHON_EXEC");
        return;
    }
    finding_ok(to, "scripts get %s, Python %s, %s%s", facts->python, facts->python_version,
               facts->torch[0] != '\0' ? "with torch " : "without torch", facts->torch);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*judge)(const struct doctor_facts *facts, struct doctor_finding *to);
} checks[] = {
#define DOCTOR_CHECK(name, function) {#name, function},
#include "cmd/ctrun/doctor/core/checks.def"
};

size_t doctor_judge(const struct doctor_facts *facts, struct doctor_finding *ret_findings)
{
    for (size_t i = 0; i < CT_COUNT(checks); i++) {
        ret_findings[i] = (struct doctor_finding){.check = checks[i].name};
        checks[i].judge(facts, &ret_findings[i]);
    }
    return CT_COUNT(checks);
}
