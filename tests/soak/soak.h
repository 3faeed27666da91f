/* The soak: a real elastic training under random faults for as long as one likes.
 *
 *      seed -> faults.c ----------> cast.c (daemon, agents) ----> tests/lib/cluster: job.h, hosts.h
 *                  \                   |                            (processes, lines, cables)
 *                   timeline.h: undo, restart              leaders.c: who leads without a daemon
 *      watched all the time:   steps.c (the training), census.c (/proc), watch.c (ends, words)
 *      at the end:             verify.c (against an undisturbed run), report.c (the table)
 *
 * One process, one loop that looks around every few milliseconds; nothing here blocks for long.
 * What must never happen is an alarm: it is told with the seed and the last events, and the exit
 * status is 1. Times are seconds of the monotonic clock since the soak began, unless a name says
 * wall. */
#ifndef TESTS_SOAK_H
#define TESTS_SOAK_H

#include "base/bytes.h"
#include "base/number/rng.h"
#include "cluster/agent_log.h"
#include "cluster/job.h"
#include "cluster/procfs.h"
#include "cluster/step_tail.h"
#include "cluster/timeline.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SOAK_HOSTS = 5, /* hosts that may have an agent */
    SOAK_SEATS = 2, /* hosts that may have the daemon, behind the others */
    SOAK_ALL_HOSTS = SOAK_HOSTS + SOAK_SEATS,
    SOAK_MIN = 2,
    SOAK_MAX = 4,
    SOAK_SLOTS = 2,   /* workers of a node */
    SOAK_LEAVES = 8,  /* micro-batches of a step in soak.yaml: the ranks divide them */
    SOAK_HANG_S = 8,  /* a worker without a sign of life for so long hangs */
    SOAK_EVENTS = 40, /* remembered for an alarm */
    SOAK_TRACKED = 64,
    SOAK_PATH = 256,
    SOAK_ALARMS = 20 /* after so many the soak gives up */
};

enum fault_kind {
#define FAULT(NAME, function, words, weight, leaders, spaces) FAULT_##NAME,
#include "faults.def"
#undef FAULT
    FAULT_COUNT
};

struct soak;

/* ---- cast.c: daemon, agents, workers -------------------------------------------------------- */

struct worker {
    pid_t pid;        /* 0: none */
    uint64_t born;    /* pid and this name it for ever */
    double seen_s;    /* when it was found */
    double excused_s; /* until then its end is no surprise */
};

/* What a node is in the job. */
enum place { PLACE_NONE, PLACE_WORKS, PLACE_SPARE };

struct node {
    struct proc *agent; /* of the job */
    char host_name[32];
    struct worker workers[SOAK_SLOTS];
    bool ending;      /* its end was ordered, in whatever way */
    bool leaving;     /* drained: its end is near */
    double busy_s;    /* until then it stays as it is: a fault is at work on it */
    double excused_s; /* until then its workers may end */
    double zombie_s;  /* since when it has had a zombie, 0: it has none */
    uint32_t lives;   /* agents that this host has had */
    /* with --leaders, from what its agent said (leaders.c): */
    enum place place;
    double led_s;          /* since when it leads, 0: it does not */
    uint64_t first_before; /* the newest round when it was started */
    uint64_t round;        /* its own newest, 0: none */
};

struct orphan {
    struct worker worker;
    double due_s;
};

/* Where a daemon may be. */
struct seat {
    struct proc *daemon; /* of the job */
    bool killed;         /* its end was ordered */
    double fenced_s;     /* by then it has noticed that another one took over; 0: nobody has */
};

struct cast {
    struct seat seats[SOAK_SEATS];
    int serving;          /* the seat of the newest daemon */
    struct proc desk;     /* ctrun drain, ctrun status: one at a time */
    double order_s;       /* by then its command is over */
    int ordered;          /* the host that it drains, -1: none */
    double daemon_busy_s; /* until then it is down or stopped on purpose */
    struct node nodes[SOAK_HOSTS];
    struct orphan orphans[SOAK_HOSTS * SOAK_SLOTS];
    /* what the daemon's metrics said last */
    double generation, epoch, members, world, running;
    double looked_s, answered_s; /* when it was asked, since when it owes an answer */
    double figures_s;            /* when it gave these figures */
    double started_s;            /* when it was started */
};

/* Make the hosts and the key, start the daemon and the first agents. */
bool cast_open(struct soak *soak);

/* Start a daemon on a seat; with `takeover` although another one serves. */
bool cast_start_daemon(struct soak *soak, int seat, bool takeover);
struct proc *cast_daemon(struct soak *soak);
bool cast_start_agent(struct soak *soak, int host);

/* `ctrun VERB`, about a host unless that is -1, as an operator would: it must succeed within 10 s.
 * False while another such command runs. */
bool cast_order(struct soak *soak, const char *verb, int host);

/* Every agent that is up is known to the daemon, as it said since its start. */
bool cast_is_complete(const struct soak *soak);

/* Nodes that are up, and those of them that no fault is at work on. */
int cast_up(const struct soak *soak);
int cast_sound(const struct soak *soak);

/* End the job (SIGINT to one node), then the daemon, and see how all of them end. */
void cast_close(struct soak *soak);
void cast_destroy(struct soak *soak);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Look at everybody once: lines, ends, workers, the daemon's figures. */
void cast_watch(struct soak *soak);

/* A line that was said: an alarm when it must never be. */
void cast_on_line(void *soak, struct proc *proc, const char *line);

/* ---- leaders.c: a rendezvous inside ctrun --------------------------------------------------- */

/* Take what the agent of a host says about the rendezvous: who leads, what was published. */
void leaders_on_line(struct soak *soak, int host, const char *text);

/* Forget what its agent was; a new one is about to start. */
void leaders_forget(struct soak *soak, int host);

/* The host whose agent leads, -1: none is known to. */
int leaders_find(const struct soak *soak);

/* Every agent that is up is at work or a spare, as it said itself. */
bool leaders_are_complete(const struct soak *soak);

/* ---- faults.c ------------------------------------------------------------------------------- */

struct faults {
    double next_s;      /* when the next one is due */
    double last_wall_s; /* when the last one was done */
    enum fault_kind last;
    struct timeline later;
};

/* Do what is due; with `more`, also a new fault when its time has come. */
void faults_advance(struct soak *soak, bool more);
bool faults_idle(const struct soak *soak);
const char *faults_words(enum fault_kind kind);

/* How often it is drawn, 0: never in this soak. */
unsigned faults_weight(const struct soak *soak, enum fault_kind kind);

/* ---- steps.c: the training, from its metrics ------------------------------------------------ */

struct pauses {
    uint32_t faults; /* how often the fault was done */
    uint32_t count;
    uint32_t room;
    float *seconds; /* the longest time without a step after each of them */
};

struct steps {
    struct step_tail tail;
    uint64_t last;       /* the newest step */
    double last_wall_s;  /* when it ended */
    double seen_s;       /* when it was seen */
    double longest_s;    /* without a step */
    double longest_at_s; /* when that ended */
    float worst;         /* after the fault at hand */
    struct pauses pauses[FAULT_COUNT];
};

void steps_watch(struct soak *soak);

/* A fault was done at `wall_s`: the pauses that end after it are its. */
void steps_mark(struct soak *soak, enum fault_kind kind, double wall_s);

/* The last fault has had its pauses. */
void steps_flush(struct soak *soak);

/* ---- census.c: what processes hold ---------------------------------------------------------- */

enum role { ROLE_DAEMON, ROLE_AGENT, ROLE_WORKER, ROLE_COUNT };

struct holding {
    long fds;
    long memfds; /* mapped shared memory of ours */
    long rss_kib;
};

/* One process over its life, seen at quiet moments. */
struct tracked {
    pid_t pid;
    uint64_t born;
    enum role role;
    int host;
    uint32_t times;
    struct holding first, last;
    double first_s, last_s;
    uint32_t samples; /* after the first minute, for the slope of its memory in KiB a minute */
    double sum_t, sum_tt, sum_m, sum_tm;
};

struct census {
    uint32_t taken;
    struct tracked tracked[SOAK_TRACKED];
    struct tracked eldest[ROLE_COUNT]; /* who lived longest, for the table */
};

/* To be called at a quiet moment with everybody at work. */
void census_take(struct soak *soak);

/* Write down where everybody stands. */
void census_stacks(struct soak *soak);

/* After the end: processes, shared memory, files that were left. */
void census_leftovers(struct soak *soak);

/* KiB a minute. */
double census_slope(const struct tracked *tracked);

/* ---- verify.c ------------------------------------------------------------------------------- */

/* Train the same steps in one undisturbed process and compare each line and the parameters. */
void verify_run(struct soak *soak);

/* ---- report.c ------------------------------------------------------------------------------- */

struct report {
    char events[SOAK_EVENTS][256];
    uint64_t event_count;
    uint32_t alarms;
};

void report_event(struct soak *soak, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_alarm(struct soak *soak, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_table(const struct soak *soak);

/* ---- all of it ------------------------------------------------------------------------------ */

struct soak {
    uint64_t seed;
    double seconds;
    const char *programs; /* folder of ctrun, ctrund, ctworker */
    const char *config;   /* soak.yaml, absolute */
    double lease_s;
    bool leaders;    /* no daemon: the agents hold the record, and who leads is killed */
    char folder[64]; /* everything that is written lies here */
    char run[SOAK_PATH];
    double began_s;
    bool over; /* a stop was asked for, or nothing can go on */
    struct ct_rng rng;
    struct hosts hosts; /* from SOAK_HOSTS on they are the daemon's */
    struct job job;
    struct cast cast;
    struct agent_rosters rosters; /* of the last rounds, with --leaders */
    struct faults faults;
    struct steps steps;
    struct census census;
    struct report report;
};

double soak_now_s(const struct soak *soak);
double soak_wall_s(void);

/* Uniform between the two. */
double soak_draw(struct soak *soak, double low, double high);

/* Wait for some milliseconds, pumping output. */
void soak_pass(int milliseconds);

#endif
