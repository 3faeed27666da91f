/* The programs of one job: its daemons (ctrund) on seats and its agents (ctrun) in slots, each on
 * whatever host. All of their pids are here, and job_end ends them.
 *
 *      hosts_up(&hosts, ...);  job_init(&job, &hosts, programs, folder);  job_make_key(&job, 10)
 *      job_start_daemon(&job, 0, 5, NULL);  job_await_daemon(&job, 0, 10)       a daemon on host 5
 *      job_start_agent(&job, 0, 0, "host0", &how);  ...                         an agent on host 0
 *      hosts_cut, hosts_split, kill(job.agents[0].pid, SIGSTOP), timeline_add   faults
 *      job_end(&job);  hosts_down(&hosts);                                      nothing stays
 *
 * The journal, the key, port files and status sockets lie in the job's folder. */
#ifndef TESTS_CLUSTER_JOB_H
#define TESTS_CLUSTER_JOB_H

#include "cluster/hosts.h"

#include <limits.h>

enum { JOB_SEATS = 8, JOB_SLOTS = HOSTS_MAX, JOB_ENDPOINT = 64 };

struct job_seat {
    struct proc daemon;
    int host;
    char endpoint[JOB_ENDPOINT]; /* where it listens, or did; "" before its first start */
    char socket[PATH_MAX];       /* its status socket (status.h) */
};

struct job {
    const struct hosts *hosts;
    const char *programs; /* folder of ctrun and ctrund */
    const char *folder;
    bool bare;                   /* daemons keep no journal and have no status socket */
    bool logs;                   /* what a program says also goes to NAME.log in the folder */
    struct process_how how;      /* of each program; `name` and `log` are the job's */
    const char *const *start_by; /* words in front of each program's own, or NULL */
    char key[PATH_MAX];          /* the file; "": none, everybody is on loopback */
    int port;                    /* of all daemons; 0: the first one chooses */
    const char *peers;           /* --peers of all daemons, each with its own journal; NULL: none */
    struct job_seat seats[JOB_SEATS];
    struct proc agents[JOB_SLOTS];
};

void job_init(struct job *job, const struct hosts *hosts, const char *programs, const char *folder);

/* SIGKILL to whatever runs, and wait for it. */
void job_end(struct job *job);

/* `ctrun key new`; all that starts later uses it. False when it has not ended well by then. */
bool job_make_key(struct job *job, double seconds);

/* Start any program on a host, as the job's own are (start_by is not for it). */
int job_start(struct job *job, struct proc *proc, const char *name, int host, const char *host_name,
              const char *const argv[]);

/* Start a daemon, with more words or NULL ("--takeover=yes"). Again after its end: with the same
 * journal. Whatever the seat's process was is freed first. 0 or a negative errno. */
int job_start_daemon(struct job *job, int seat, int host, const char *host_name,
                     const char *const words[]);

/* Wait until it listens; its endpoint then has its port, which the job's other daemons share. */
bool job_await_daemon(struct job *job, int seat, double seconds);

/* What an agent is started with. */
struct job_agent {
    const char *endpoints; /* one, several with commas between, or NULL: a job on one node alone */
    const char *nodes;     /* --nnodes */
    const char *lease;
    int restarts;
    int workers;
    const char *const *options; /* more words in front of the program, or NULL */
    const char *program;        /* or a training's file */
};

/* Start an agent in a slot. Again: a new incarnation; the slot's process is freed first. */
int job_start_agent(struct job *job, int slot, int host, const char *host_name,
                    const struct job_agent *agent);

/* ---- for a daemon by itself ----------------------------------------------------------------- */

/* The command line of a ctrund that listens at `endpoint` and writes its port to `port_file`. */
void job_daemon_words(struct words *words, const char *ctrund, const char *endpoint,
                      const char *port_file);

/* The port in the file, 0: none was written in time. */
int job_await_port(const char *port_file, double seconds);

#endif
