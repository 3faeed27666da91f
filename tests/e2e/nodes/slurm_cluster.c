/* See slurm_cluster.h. */
#include "slurm_cluster.h"

#include "base/assert.h"
#include "cluster.h"
#include "e2e.h"
#include "munged.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder five times, the number of nodes twice. cred_expire is also how long a job waits before
 * it is queued again. */
static const char configuration[] =
    "ClusterName=test\n"
    "SlurmctldHost=host0\n"
    "SlurmUser=root\n"
    "SlurmdUser=root\n"
    "AuthType=auth/munge\n"
    "AuthInfo=socket=%s/munge.socket,cred_expire=5\n"
    "MpiDefault=none\n"
    "ProctrackType=proctrack/linuxproc\n"
    "TaskPlugin=task/none\n"
    "SelectType=select/cons_tres\n"
    "SelectTypeParameters=CR_CPU\n"
    "SchedulerParameters=sched_interval=2,bf_interval=1\n"
    "StateSaveLocation=%s/state\n"
    "SlurmdSpoolDir=%s/spool-%%n\n"
    "SlurmctldPidFile=%s/slurmctld.pid\n"
    "SlurmdPidFile=%s/%%n.pid\n"
    "SlurmdTimeout=5\n"
    "KillWait=2\n"
    "ReturnToService=2\n"
    "AccountingStorageType=accounting_storage/none\n"
    "JobAcctGatherType=jobacct_gather/none\n"
    "NodeName=host[1-%d] CPUs=2 State=UNKNOWN\n"
    "PartitionName=main Nodes=host[1-%d] Default=YES MaxTime=INFINITE State=UP\n";

static struct {
    bool up;
    struct munged munged;
    struct proc controller, nodes[SLURM_CLUSTER_NODES];
    struct proc command; /* the last one */
    int node_count;
} slurm;

/* ---- commands ---- */

static void start_list(struct proc *proc, const char *name, const char *first, va_list rest)
{
    const char *words[32] = {"sh", "-c", "mount --bind hosts /etc/hosts && exec \"$@\"", "sh",
                             name};
    size_t count = 5;

    for (const char *word = first; word != NULL; word = va_arg(rest, const char *)) {
        cr_assert_lt(count + 1, CT_COUNT(words));
        words[count++] = word;
    }
    cluster_start(proc, 0, words);
}

void slurm_start(struct proc *proc, const char *first, ...)
{
    va_list rest;

    va_start(rest, first);
    start_list(proc, first, va_arg(rest, const char *), rest);
    va_end(rest);
}

static int run_list(const char *name, const char *first, va_list rest)
{
    proc_free(&slurm.command);
    start_list(&slurm.command, name, first, rest);
    return proc_finish(&slurm.command, 30);
}

int slurm_command(const char *first, ...)
{
    va_list rest;

    va_start(rest, first);
    int status = run_list(first, va_arg(rest, const char *), rest);
    va_end(rest);
    return status;
}

const char *slurm_said(void)
{
    return ct_buf_str(&slurm.command.text);
}

int slurm_submit(const char *first, ...)
{
    va_list rest;

    va_start(rest, first);
    int status = run_list("sbatch", first, rest);
    va_end(rest);
    cr_assert_eq(status, 0, "sbatch: %s", slurm_said());
    return (int)proc_number_after(&slurm.command, "Submitted batch job");
}

const char *slurm_field(int job, const char *field)
{
    static char values[4][256];
    static unsigned next;
    char *value = values[next++ % CT_COUNT(values)];
    char number[16], label[64];

    (void)snprintf(number, sizeof number, "%d", job);
    (void)snprintf(label, sizeof label, "%s=", field);
    value[0] = '\0';
    if (slurm_command("scontrol", "show", "job", number, NULL) != 0)
        return value;
    const char *at = strstr(slurm_said(), label);
    if (at != NULL)
        (void)sscanf(at + strlen(label), "%255[^ \n]", value);
    return value;
}

static bool has_ended(void *context)
{
    static const char *const ends[] = {"COMPLETED", "FAILED",    "TIMEOUT",       "CANCELLED",
                                       "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED"};
    const char *state = slurm_field(*(int *)context, "JobState");

    for (size_t i = 0; i < CT_COUNT(ends); i++)
        if (strcmp(state, ends[i]) == 0)
            return true;
    return false;
}

void slurm_wait_completed(int job, const char *output, double seconds)
{
    double deadline = proc_now_s() + seconds;

    while (!has_ended(&job) && proc_now_s() < deadline)
        (void)poll(NULL, 0, 100);
    const char *state = slurm_field(job, "JobState");
    cr_assert_str_eq(state, "COMPLETED", "job %d is %s after %.0f s; it said:\n%s", job, state,
                     seconds, e2e_read(output));
}

void slurm_wait_restarted(int job, const char *output, double seconds)
{
    double deadline = proc_now_s() + seconds;

    while (atoi(slurm_field(job, "Restarts")) == 0 && !has_ended(&job) && proc_now_s() < deadline)
        (void)poll(NULL, 0, 100);
    cr_assert_neq(atoi(slurm_field(job, "Restarts")), 0,
                  "job %d is %s and was not queued again:\n%s", job, slurm_field(job, "JobState"),
                  e2e_read(output));
}

/* ---- up and down ---- */

static bool is_installed(void)
{
    static const char *const programs[] = {"munged", "slurmctld", "slurmd", "sbatch", "srun"};
    char path[PATH_MAX];

    for (size_t i = 0; i < CT_COUNT(programs); i++) {
        bool found = false;
        static const char *const folders[] = {"/usr/sbin", "/usr/bin", "/usr/local/sbin",
                                              "/usr/local/bin"};
        for (size_t j = 0; j < CT_COUNT(folders); j++) {
            (void)snprintf(path, sizeof path, "%s/%s", folders[j], programs[i]);
            found = found || access(path, X_OK) == 0;
        }
        if (!found)
            return false;
    }
    return true;
}

/* Files of all daemons, and what their hosts and jobs find in the environment. */
static void write_files(int nodes)
{
    char text[sizeof configuration + 6 * PATH_MAX], hosts[512] = "127.0.0.1 localhost\n";
    char path[PATH_MAX];
    const char *folder = e2e_in_folder("");

    for (int i = 0; i <= nodes; i++)
        (void)snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s host%d\n",
                       cluster_address(i), i);
    (void)e2e_write("hosts", hosts);
    (void)snprintf(text, sizeof text, configuration, folder, folder, folder, folder, folder, nodes,
                   nodes);
    (void)setenv("SLURM_CONF", e2e_write("slurm.conf", text), 1);
    (void)e2e_write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n");
    for (int i = 1; i <= nodes; i++) {
        (void)snprintf(path, sizeof path, "spool-host%d", i);
        cr_assert_eq(mkdir(path, 0755), 0);
    }
    cr_assert(mkdir("state", 0755) == 0 && mkdir("run", 0700) == 0);
    (void)setenv("HOME", folder, 1);
    (void)setenv("XDG_RUNTIME_DIR", e2e_in_folder("run"), 1);
    (void)snprintf(path, sizeof path, "%s:%s", getenv("TEST_PROGRAMS"), getenv("PATH"));
    (void)setenv("PATH", path, 1);
}

/* A daemon of Slurm on a host: the first process of a PID namespace, with a folder for sockets that
 * other hosts do not see. */
static void start_daemon(struct proc *proc, int host, const char *daemon)
{
    const char *const words[] = {"unshare",
                                 "--pid",
                                 "--fork",
                                 "--kill-child",
                                 "--mount-proc",
                                 "sh",
                                 "-c",
                                 "mount --bind hosts /etc/hosts && mount -t tmpfs run run && "
                                 "exec \"$0\" -D",
                                 daemon,
                                 NULL};

    cluster_start(proc, host, words);
}

static bool all_idle(void *context)
{
    char wanted[32];

    (void)snprintf(wanted, sizeof wanted, "%d idle\n", *(int *)context);
    return slurm_command("sinfo", "--noheader", "--format=%D %T", NULL) == 0 &&
           strcmp(slurm_said(), wanted) == 0;
}

void slurm_up(int nodes)
{
    cr_assert(nodes >= 1 && nodes <= SLURM_CLUSTER_NODES);
    if (!is_installed())
        cr_skip_test("skipped: Slurm is not installed (scripts/deps --test)");
    cluster_up(nodes + 1);
    slurm.up = true;
    slurm.node_count = nodes;
    write_files(nodes);
    munged_start(&slurm.munged, e2e_in_folder(""));
    start_daemon(&slurm.controller, 0, "slurmctld");
    for (int i = 0; i < nodes; i++)
        start_daemon(&slurm.nodes[i], i + 1, "slurmd");
    proc_until(all_idle, &nodes, 30, "a Slurm whose nodes are idle");
}

void slurm_lose(int node)
{
    struct proc *proc = &slurm.nodes[node - 1];

    cr_assert_eq(kill(proc->pid, SIGKILL), 0);
    (void)proc_finish(proc, 10);
}

void slurm_down(void)
{
    if (slurm.up) {
        for (int i = 0; i < slurm.node_count; i++)
            proc_free(&slurm.nodes[i]);
        proc_free(&slurm.controller);
        munged_stop(&slurm.munged);
    }
    proc_free(&slurm.command);
    slurm.up = false;
    cluster_down();
}
