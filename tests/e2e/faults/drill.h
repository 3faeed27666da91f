/* A fault drill: one ctrund, agents whose workers sleep, and figures about what a fault did.
 *
 *      drill_daemon(...); drill_node(0, ...); drill_node(1, ...);     start
 *      pid = drill_worker(1, 0, ...);                                 wait for rank 0 of round 1
 *      kill, cut, stop;  drill_worker(2, 0, ...);                     and for what follows
 *
 * Everything belongs to the running test and is ended by drill_leave, however the test ends. Host
 * DRILL_HERE is this machine on loopback; others are those of cluster.h. The programs are those of
 * tests/lib/cluster/job.h. */
#ifndef TESTS_DRILL_H
#define TESTS_DRILL_H

#include "cluster/hosts.h"
#include "proc.h"

#include <stdbool.h>

enum { DRILL_HERE = HOSTS_HERE };

/* What all nodes of a job are started with. */
struct drill_job {
    const char *nodes;          /* --nnodes */
    const char *lease;          /* --lease */
    int restarts;               /* --max_restarts */
    int workers;                /* --nproc_per_node; 0: 1 */
    const char *last_call;      /* NULL: so long that only MAX nodes end it */
    const char *program;        /* NULL: a worker that writes its pid and sleeps */
    const char *endpoints;      /* NULL: where the daemon listens */
    const char *const *options; /* more words in front of the program, NULL-terminated, or NULL */
};

void drill_enter(void);
void drill_leave(void);

/* Start the daemon on a host. Again after its end: at the same endpoint, with the same journal. */
struct proc *drill_daemon(int host);

/* Start another daemon, on port 29400 of another host, that takes the journal over from the first,
 * which now belongs to the caller. */
struct proc *drill_takeover(int host, struct proc *ret_old);

/* Start the daemon of a host as one of `count` that hold the record together, on hosts 0 to
 * count - 1. Again: with its own journal. What is asked of "the daemon" is asked of this one. */
struct proc *drill_peer(int host, int count);

/* Ask that one from now on. */
void drill_ask_peer(int host);

/* The endpoints of all of them, as agents are given them. Static. */
const char *drill_peers(void);

/* From now on daemons and nodes are started by these words, which precede the program's own
 * (NULL-terminated, they must stay valid); NULL: by nothing. */
void drill_start_by(const char *const words[]);

/* From now on daemons, nodes and operators are the programs in this folder; NULL: those under test
 * again. */
void drill_programs(const char *folder);

/* Start by preload/interpose.so from now on: the page that it shares with the test. Once a test. */
struct interpose_page *drill_interpose(void);

/* The same page for programs that the test starts itself, with these words in their environment. */
struct interpose_page *drill_page(const char *const **ret_env);

/* Start agent `index` (its slot here, and its --node_rank) on a host. Again: a new incarnation. */
struct proc *drill_node(int index, int host, const struct drill_job *job);

/* The same with another --node_rank than its slot. */
struct proc *drill_node_as(int index, int rank, int host, const struct drill_job *job);

/* The process in the slot. */
struct proc *drill_proc(int index);

/* The pid of the worker with `rank` in round `generation`, when it has started. */
pid_t drill_worker(int generation, int rank, double seconds);
bool drill_has_worker(int generation, int rank);

/* What the daemon says to GET /status; "" when it does not answer. Static. */
const char *drill_status(void);

/* What `ctrun status --json` says to an operator on the daemon's host who asks at `endpoint`; NULL:
 * where the daemon listens. Static. */
const char *drill_report(const char *endpoint);

/* A number of the newest report ("published_step"); -1: none. */
double drill_reported(const char *name);

/* A figure of the daemon's /metrics ("ctrun_generation"), the job's or the daemon's; -1: none. */
double drill_metric(const char *name);
void drill_wait_metric(const char *name, double value, double seconds);

/* Let a fault last. */
void drill_pass(double seconds);

/* SIGSTOP, SIGCONT, SIGKILL...; SIGKILL also waits for the end. */
void drill_signal(struct proc *proc, int signal);

/* Milliseconds since `since_s` of proc_now_s. */
double drill_ms(double since_s);

/* ---- the table ----
 *
 * A drill measures one row of faults.def. The figures of all drills of a run are printed as one
 * table after the last test. */

/* Fail unless `value` <= `bound`; a figure of the row. Times ("ms", "s") are allowed more when the
 * programs run under a sanitizer. */
void drill_figure(int row, const char *what, double value, double bound, const char *unit);

/* A figure that is a fact: "exit status 76". */
void drill_fact(int row, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The bound of what is seen when a lease runs out: a second more, as 6 s of a lease of 5 s. */
double drill_lease_bound(const struct drill_job *job);

#endif
