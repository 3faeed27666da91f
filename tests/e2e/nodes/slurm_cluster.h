/* A real Slurm on the hosts of cluster.h: its own munged, slurmctld and slurmds, which end with the
 * test.
 *
 *      host 0: slurmctld, sbatch, srun        hosts 1 to n: slurmd; each "host<i>" for Slurm too
 *
 * A host's processes live in a PID namespace of their own, so that a host can lose power: nothing
 * of it is left, neither slurmd nor the steps. Files are in the test's folder, which is shared as a
 * home directory would be (HOME); /etc/hosts is one that knows the hosts. Slurm's commands find
 * their configuration by SLURM_CONF. Needs root and the packages slurm-wlm and munge. */
#ifndef TESTS_SLURM_CLUSTER_H
#define TESTS_SLURM_CLUSTER_H

#include <stdbool.h>

enum { SLURM_CLUSTER_NODES = 4 };

/* Start Slurm on `nodes` nodes of 2 CPUs and wait until all are idle, or skip the test. */
void slurm_up(int nodes);
void slurm_down(void);

/* Run one of Slurm's commands on host 0 (NULL at the end): its exit status, what it said in the
 * static text below. */
int slurm_command(const char *first, ...) __attribute__((sentinel));
const char *slurm_said(void);

/* Start one in the same way, which goes on. */
struct proc;
void slurm_start(struct proc *proc, const char *first, ...) __attribute__((sentinel));

/* sbatch with these words: the job's number. */
int slurm_submit(const char *first, ...) __attribute__((sentinel));

/* The job as scontrol shows it: a field's value ("JobState"), static. */
const char *slurm_field(int job, const char *field);

/* Wait until the job is COMPLETED, or fail with its output (a file) when it ends otherwise. */
void slurm_wait_completed(int job, const char *output, double seconds);

/* Wait until it was queued again, or fail with its output. */
void slurm_wait_restarted(int job, const char *output, double seconds);

/* The node loses power. */
void slurm_lose(int node);

#endif
