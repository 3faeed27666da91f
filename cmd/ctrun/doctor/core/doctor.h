/* What would keep a job from starting, judged: facts in, findings out. Nothing here looks at the
 * machine; look.h and hosts_uv.h do.
 *
 *   facts of this machine --> doctor_judge        a finding for each row DOCTOR_CHECK
 *   facts of a host       --> doctor_judge_host   a finding for each row DOCTOR_HOST_CHECK
 *
 * A problem keeps a job from starting, and has the code that it would end with; a warning does not,
 * or not every job. Both have a remedy. A check that does not apply has no finding. */
#ifndef CT_CTRUN_DOCTOR_H
#define CT_CTRUN_DOCTOR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum doctor_check {
#define DOCTOR_CHECK(name, function) DOCTOR_##name,
#include "cmd/ctrun/doctor/core/checks.def"
    DOCTOR_CHECKS
};

enum doctor_host_check {
#define DOCTOR_HOST_CHECK(name, function) DOCTOR_HOST_##name,
#include "cmd/ctrun/doctor/core/checks.def"
    DOCTOR_HOST_CHECKS
};

enum doctor_level { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };

struct doctor_finding {
    const char *check; /* the row's name */
    enum doctor_level level;
    int code; /* of a problem: error.def */
    char text[1280];
    char remedy[512]; /* "": none is needed */
};

/* ---- this machine ---- */

/* The addresses of a name. */
enum { DOCTOR_ADDRESSES = 4, DOCTOR_NAME = 256, DOCTOR_ADDRESS = 64 };
struct doctor_lookup {
    char name[DOCTOR_NAME];
    char failure[128]; /* why it does not resolve; "": it does */
    uint32_t count;    /* of addresses, at most DOCTOR_ADDRESSES of them known */
    bool loopback;     /* all of them are */
    char first[DOCTOR_ADDRESS];
};

/* A folder, or the nearest one above that exists. */
struct doctor_folder {
    char path[512];
    int error; /* an errno that keeps this user from making files there; 0: nothing does */
    uint64_t free_bytes, free_files;
};

/* Whether something may be used, with the sentence of who tried. */
struct doctor_outcome {
    bool wanted; /* the configuration names it */
    int code;
    char text[1024];
};

struct doctor_facts {
    bool beyond; /* the job spans machines */
    struct doctor_lookup name;
    struct doctor_outcome nproc; /* nproc_per_node, resolved */
    uint32_t workers, cpus;      /* cpus: by affinity and the cgroup's quota */
    uint32_t cpus_online;
    uint64_t files, memlock, processes; /* limits; UINT64_MAX: none */
    uint64_t pids_max, pids_now;        /* of the cgroup; UINT64_MAX: none */
    bool has_infiniband;
    struct doctor_folder shm, folder, tmpdir;
    uint64_t shm_bytes; /* its size; 0: there is none */
    struct doctor_outcome key;
    bool has_key;
    bool by_munge;        /* instead of a file */
    bool has_certificate; /* likewise */
    int clock_error;      /* an errno; 0: it was read */
    bool clock_unsynced;
    uint64_t segment_bytes;              /* of shared memory for the workers' collectives */
    uint64_t memory_free, memory_limit;  /* limit of the cgroup; UINT64_MAX: none */
    uint32_t gpus_present, gpus_visible; /* the latter to workers */
    struct doctor_outcome nvml, mpi, ucx;
    char version[32], worker[64], library[64]; /* ctrun's, ctworker's; "": it did not answer */
    bool has_library;                          /* libctrun.so.1 lies beside this ctrun */
    char python[256];                          /* the interpreter of scripts; "": none */
    char python_version[64], torch[64];        /* "": none */
};

/* Judge; `ret_findings` has room for DOCTOR_CHECKS. Returns how many there are. */
size_t doctor_judge(const struct doctor_facts *facts, struct doctor_finding *ret_findings);

/* ---- another machine ---- */

/* How far one of its addresses was reached. */
struct doctor_address {
    char text[DOCTOR_ADDRESS];
    bool loopback;
    int route; /* an errno: there is none; 0: there is */
    char source[DOCTOR_ADDRESS], interface[32];
    int mtu; /* 0: not known */
    enum { DOCTOR_NOT_CONNECTED, DOCTOR_CONNECTED, DOCTOR_ADMITTED, DOCTOR_ANSWERED } reached;
    int code; /* the failure, or the code of the answer */
    char sentence[512];
};

struct doctor_host {
    char given[DOCTOR_NAME + 16]; /* as the user wrote it */
    uint16_t port;
    struct doctor_lookup name;
    bool has_key, by_munge;
    uint32_t protocol; /* in which it was asked last */
    struct doctor_address at[DOCTOR_ADDRESSES];
};

/* Judge; `ret_findings` has room for DOCTOR_HOST_CHECKS. Returns how many there are: what a failed
 * check makes pointless is left out. */
size_t doctor_judge_host(const struct doctor_host *host, struct doctor_finding *ret_findings);

/* Return the exit status: 0, or that of the first problem. */
int doctor_status(const struct doctor_finding *findings, size_t count);

#endif
