/* What it costs when who leads a rendezvous inside ctrun, or another, dies, is cut off: a table
 * of nodes x faults x programs, each cell a job of its own in network namespaces.
 *
 *      main.c      which cells, how often; the table
 *      trial.c     one job: start -> at work -> fault -> next step -> undone, back -> the end
 *      faults.c    who is concerned, what is done and undone (faults.def)
 *      watch.c     what agents say, how they end, when steps are done
 *      programs.c  what is trained
 *
 * One process, one loop. Times are of the monotonic clock unless a name says wall. */
#ifndef TESTS_LEADERS_H
#define TESTS_LEADERS_H

#include "cluster/agent_log.h"
#include "cluster/job.h"
#include "cluster/procfs.h"
#include "cluster/step_tail.h"
#include "cluster/timeline.h"
#include "history/history.h"

enum { TRIAL_NODES = 64, TRIAL_PATH = 256 };

enum fault {
#define FAULT(NAME, option, words, how, who, undone_ms, least) FAULT_##NAME,
#include "faults.def"
#undef FAULT
    FAULT_COUNT
};

enum program { PROGRAM_DDP, PROGRAM_FSDP, PROGRAM_SCRIPT, PROGRAM_STORE, PROGRAM_COUNT };

/* What cells are run with. */
struct setting {
    const char *programs; /* folder of ctrun and ctworker */
    const char *root;     /* of the sources */
    const char *lease;
    const struct hosts *hosts;
    int nodes;
    bool keep; /* the folders of all trials */
};

struct member {
    struct proc *agent; /* of the job */
    struct procfs_child worker;
    bool hit;        /* killed, or not among those that go on */
    double fenced_s; /* from then on it may publish nothing, until it takes part again; 0: it may */
    bool spare;      /* it said so last */
    bool killed;     /* its end is no surprise */
    double led_s;    /* when it began to lead, 0: it does not */
    uint64_t round;  /* its newest, 0: none */
};

/* What a trial has measured. */
struct result {
    double next_ms; /* from the fault to the next step, or the longest time without one */
    double back_ms; /* from the undoing until all concerned are at work; -1: nobody returns */
    int repeated;   /* steps */
    int kept;       /* survivors' workers that live on ... */
    int survivors;  /* ... of so many */
    int early;      /* survivors that ended by themselves */
    int rounds;     /* that the fault and its undoing took */
    int restarts;   /* that they were charged of the job's budget */
    int twice;      /* generations with two rosters */
    int minority;   /* publications that counted where no majority was */
    struct history_report history; /* of the store's clients */
    char trouble[1024];            /* why there are no such figures; "": all is well */
};

struct trial {
    const struct setting *setting;
    enum fault fault;
    enum program program;
    char folder[64];
    struct job job;
    struct member members[TRIAL_NODES];
    struct timeline later;
    struct agent_rosters rosters;
    uint64_t holders;    /* of the record */
    uint64_t generation; /* the newest that a member has begun */
    uint64_t restarts;   /* that were charged so far */
    uint64_t before;     /* the same at the fault, 0: before it */
    double undone_s;     /* when the fault was undone, 0: not yet */
    double wall_s;       /* of the fault, 0: before it */
    double settled_s;    /* since when all are at work, 0: they are not */
    bool ending;
    struct step_tail tail;
    uint64_t step;                /* the newest that was seen */
    uint64_t mark;                /* the newest when steps were waited for */
    uint64_t old_step;            /* the last of the rounds before the fault's */
    double old_wall_s, longest_s; /* its end; the longest time without one since the fault */
    uint64_t next_step;           /* the first of a later round, 0: none yet */
    bool renewed;                 /* a later round has begun */
    struct result result;
};

/* ---- trial.c -------------------------------------------------------------------------------- */

/* Run one cell. The folder with all logs is kept when something is wrong. */
struct result trial_run(const struct setting *setting, enum fault fault, enum program program);

/* How many nodes the job needs at least. */
int trial_min(int nodes);

/* Start the agent of a host, again too. */
bool trial_start_agent(struct trial *trial, int host);

/* ---- faults.c ------------------------------------------------------------------------------- */

const char *fault_option(enum fault fault);
const char *fault_words(enum fault fault);
bool fault_suits(enum fault fault, int nodes);
bool fault_is_undone(enum fault fault);

/* Do it to the job as it is now. False, with the trouble: it cannot be done. */
bool fault_begin(struct trial *trial);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Look at everybody once. */
void watch_turn(struct trial *trial);

/* The same until `condition` holds; false after `seconds`. */
bool watch_until(struct trial *trial, bool (*condition)(struct trial *trial), double seconds);

void watch_on_line(void *trial, struct proc *proc, const char *line);

/* The host that leads, -1: none that is known. */
int watch_leader(const struct trial *trial);

/* What an agent's worker is called (comm), and the worker itself; its pid is 0 without one. */
struct procfs_child watch_worker(const struct trial *trial, int host);

double watch_wall_s(void);

/* Note the first trouble. */
void trial_trouble(struct trial *trial, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- programs.c ----------------------------------------------------------------------------- */

const char *program_option(enum program program);
const char *program_comm(enum program program);

/* The end of an agent's command line; static: one trial at a time. `options` is NULL-terminated. */
const char *program_words(const struct trial *trial, const char *const **ret_options);

/* "NAME=value", NULL-terminated; static, likewise. */
const char *const *program_environment(const struct trial *trial);

/* Where its steps are written. */
void program_metrics(const struct trial *trial, char path[PATH_MAX]);

#endif
