/* A whole cluster in virtual time: the real daemon and agent cores and the real codec, on a
 * network, disks, clocks and workers that are made up here.
 *
 *      main.c      seeds, repetition, shrinking, reporting
 *      faults.c    what goes wrong, and when: a list drawn from the seed
 *      world.c     the event heap, processes, their clocks and pauses
 *      net.c       connections: delays, cuts, lost, doubled and reordered messages
 *      daemon.c    the daemon: service, journal, disk
 *      node.c      the nodes: the agent core, model workers
 *      training.c  what the workers do together: heal, step, finish
 *      oracle.c    the invariants, checked after every event
 *
 * A run is a function of its seed: everything random comes from one of the streams below, so that a
 * draw added to one concern does not shift the others. Times are in milliseconds. */
#ifndef CT_TEST_SIM_H
#define CT_TEST_SIM_H

#include "base/bytes.h"
#include "base/rng.h"
#include "rendezvous/journal.h"
#include "rendezvous/member.h"
#include "rendezvous/service.h"
#include "wire/frame.h"

enum {
    SIM_NODES = 8,
    SIM_CONNS = 64,
    SIM_FAULTS = 40,
    SIM_ROUNDS = 4096,     /* generations of one run */
    SIM_FAULTS_MS = 60000, /* everything goes wrong ... */
    SIM_HEALED_MS = 60000, /* ... then nothing does */
};

/* ---- events ---- */

enum event_kind {
    EV_TIMER,       /* process a: its timer b (a serial number) fires */
    EV_CONNECT,     /* node a tries to connect, attempt b */
    EV_OPENED,      /* connection a is open at side b */
    EV_DELIVER,     /* chunk a (see net.c) arrives */
    EV_CLOSED,      /* connection a ends at side b */
    EV_UNANSWERED,  /* connection a, side b: TCP gave up on data that nobody acknowledged */
    EV_PREPARED,    /* node a has stopped its workers for generation b */
    EV_STEP,        /* the round's workers meet for their next step */
    EV_MEMBER_STEP, /* node a completes step b */
    EV_DONE,        /* the agent of node a learns that its workers have finished round b */
    EV_FAULT_BEGIN, /* fault a */
    EV_FAULT_END,
    EV_START, /* process a starts (again) */
    EV_HEAL,  /* from now on nothing goes wrong */
    EV_KINDS,
};

struct event {
    uint64_t at;
    uint64_t order; /* of making: events of one moment happen in this order */
    enum event_kind kind;
    uint32_t a;
    uint32_t life; /* of process or connection `a` when it was made: a later life ignores it */
    uint64_t b;
};

/* ---- processes: the daemon is 0, node i is i + 1 ---- */

struct process {
    bool alive;
    uint32_t life; /* grows with each start and each crash */
    uint64_t paused_until;
    int32_t rate_ppm;   /* how wrong its clock runs */
    uint64_t offset_ms; /* of its clock at time 0 */
    uint64_t timer;     /* serial number of the timer that counts */
};

/* ---- connections ---- */

enum { AT_DAEMON, AT_NODE };

struct conn {
    bool used;
    uint32_t life;
    uint32_t node;
    bool open[2];              /* at each side */
    bool closing;              /* the daemon wants no more of it */
    bool dead;                 /* both sides are closed: to be freed when the event is over */
    bool dirty;                /* something was written in this step */
    uint64_t link;             /* the service's number */
    uint64_t last[2];          /* when the last chunk towards a side arrives: TCP keeps order */
    uint64_t sent[2];          /* chunks towards a side */
    uint64_t came[2];          /* and those that have arrived */
    uint32_t next_sequence[2]; /* of frames from a side */
    struct ct_frame_reader reader[2];
    struct ct_buf out[2]; /* written by a side, to be sent when its step is over */
};

/* Bytes on their way, or held up by a cut. */
struct chunk {
    bool used;
    bool held;
    uint32_t conn;
    uint32_t life;  /* of the connection */
    int side;       /* that it goes to */
    uint64_t order; /* among those to the same side of the connection */
    size_t size;
    unsigned char *data;
};

/* ---- daemon and nodes ---- */

struct disk {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
    uint32_t full;  /* faults that make it so */
    bool tear_next; /* the daemon dies in the middle of its next record */
};

struct sim_daemon {
    struct ct_service *service;
    struct disk disk;
    uint64_t epoch;
    bool close_failed; /* the disk did not take the result (yet) */
    bool dying;        /* it wrote its last record: nothing it does now is seen by anybody */
    bool was_reaped;   /* the job has ended and all its nodes know: the run is over */
};

struct state {
    uint64_t lineage;
    uint64_t step;
    uint64_t digest;
};

enum node_end { NODE_RUNS, NODE_CLOSED, NODE_RELEASED, NODE_FAILED };

struct sim_node {
    struct sim *sim;
    uint32_t index;
    char host[8];
    struct ct_agent_options options;
    struct ct_member member;
    bool has_member;
    uint64_t incarnations;
    uint32_t conn;    /* SIM_CONNS: none */
    uint64_t attempt; /* serial number of the connection attempt */
    uint64_t give_up_ms;
    uint32_t cut[2];    /* faults that cut it off: what goes to the daemon, to the node */
    uint32_t cut_peers; /* from the other nodes */

    bool workers; /* they live */
    struct state state;
    uint64_t acting; /* the round that they act in, 0: none */
    uint64_t asked;  /* to be promised */
    bool boundary;   /* they stop after this step */
    bool stopped;    /* they wait at the boundary */
    bool promised;   /* the answer to `asked` was given */
    uint64_t promised_max;
    uint64_t acting_max;
    uint64_t healed_max; /* the newest round whose state they held */
    enum node_end end;
    struct ct_rdzv_result result;
    struct ct_error error;
};

/* The newest round, as its workers live it. */
struct training {
    uint64_t generation; /* 0: none yet */
    uint32_t count;
    uint32_t nodes[SIM_NODES];
    struct ct_id ids[SIM_NODES];
    uint64_t lineage;
    uint64_t base_step;
    int32_t base_node;
    bool healed;            /* all hold the same state */
    uint64_t boundary_step; /* they stop after it; 0: none */
};

/* ---- faults ---- */

enum fault_kind {
#define FAULT(name, text) FAULT_##name,
#include "faults.def"
#undef FAULT
    FAULT_KINDS,
};

struct fault {
    enum fault_kind kind;
    uint32_t node;
    uint64_t at;
    uint64_t lasts;
    bool skipped; /* when a failing list is shortened */
};

/* ---- what the oracle remembers ---- */

struct oracle {
    uint64_t generation; /* highest told */
    uint64_t committed;  /* highest told in a ROUND */
    bool told_close;
    uint64_t phase_ms;            /* when the daemon's phase last changed, by its clock */
    uint64_t rosters[SIM_ROUNDS]; /* hash of the roster by generation, 0: none seen */
    uint64_t epoch;
    uint64_t core_generation; /* the daemon's last step */
    uint32_t core_restarts;
    uint32_t order_count;
    struct ct_id order[SIM_NODES + 8]; /* the last committed roster */
    uint32_t worlds[SIM_NODES + 8];
    uint64_t order_generation;
    bool overlaps[SIM_ROUNDS];      /* the round has a member of the one committed before it */
    bool was_member[SIM_NODES * 4]; /* by number, at the last step */
    bool closed;                    /* some node was told the result */
    struct ct_rdzv_result result;
    uint64_t step_generation; /* the newest round that made a step */
    uint64_t stable;          /* its newest stable step */
    uint64_t digest;          /* of its newest completed step */
    uint64_t digest_step;
    bool has_digest;
};

struct coverage {
    uint64_t events;
    uint64_t rounds;
    uint64_t steps;
    uint64_t faults;
    uint64_t restarts; /* of the daemon */
    uint64_t phases[CT_RDZV_PHASES];
    uint64_t moves[CT_RDZV_PHASES][CT_RDZV_PHASES];
    uint64_t messages[64];
    uint64_t ends[4];
};

struct sim {
    uint64_t seed;
    bool trace;
    uint64_t now;
    uint64_t hash;      /* of the trace */
    char failure[2048]; /* "": all is well */

    struct ct_rng net_rng, fault_rng, work_rng, disk_rng, setup_rng;

    /* The setting, drawn from the seed. */
    uint32_t node_count;
    struct ct_rdzv_params params;
    bool datagrams; /* messages one by one, lost, doubled and out of order */
    bool survivable;
    uint32_t delay_ms; /* mean, one way */
    uint32_t loss_permille, double_permille;
    uint32_t step_ms;
    uint64_t total_steps; /* 0: without end */
    bool healed;

    struct chunk *chunks;
    size_t chunk_room;
    uint32_t dirty[SIM_CONNS];
    size_t dirty_count;

    struct event *heap;
    size_t heap_count, heap_room;
    uint64_t event_order;

    struct process processes[SIM_NODES + 1];
    struct conn conns[SIM_CONNS];
    struct sim_daemon daemon;
    struct sim_node nodes[SIM_NODES];
    struct fault faults[SIM_FAULTS];
    size_t fault_count;
    uint32_t storms; /* faults by which messages are lost and late beyond the usual */
    struct training training;
    uint64_t healed_step;
    enum ct_rdzv_phase last_phase;
    struct oracle oracle;
    struct coverage coverage;
};

/* ---- world.c ---- */
void sim_schedule(struct sim *sim, uint64_t at, enum event_kind kind, uint32_t a, uint64_t b);
uint64_t sim_local_ms(const struct sim *sim, uint32_t process);

/* Arm the one timer of a process for `due` by its own clock. */
void sim_arm(struct sim *sim, uint32_t process, uint64_t due);

/* One line of the transcript; hashed always, printed when tracing. */
void sim_log(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An invariant is broken: the run ends. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Run a seed from beginning to end; faults in `skip` (a bit set) are left out. */
void sim_run(struct sim *sim, uint64_t seed, uint64_t skip, bool trace);
void sim_free(struct sim *sim);

/* ---- faults.c ---- */
void sim_draw_setting(struct sim *sim);
void sim_draw_faults(struct sim *sim, uint64_t skip);
void sim_fault_begin(struct sim *sim, struct fault *fault);
void sim_fault_end(struct sim *sim, struct fault *fault);
void sim_heal(struct sim *sim);
void sim_fault_print(const struct fault *fault, char *text, size_t room);

/* ---- net.c ---- */
void sim_connect(struct sim *sim, uint32_t node);
void sim_try_connect(struct sim *sim, uint32_t node, uint64_t attempt);
void sim_send(struct sim *sim, struct conn *conn, int side, const struct ct_message *message);
void sim_flush(struct sim *sim); /* what was written in the step that ends */
void sim_opened(struct sim *sim, uint32_t conn, int side);
void sim_deliver(struct sim *sim, uint32_t chunk);
void sim_close(struct sim *sim, struct conn *conn, int side); /* this side gives it up */
void sim_closed(struct sim *sim, uint32_t conn, int side);    /* the end reaches this side */
void sim_unanswered(struct sim *sim, uint32_t conn, int side);
void sim_kill_conns(struct sim *sim, uint32_t process); /* the process is gone */
void sim_cut_changed(struct sim *sim, uint32_t node);
void sim_net_free(struct sim *sim);

/* ---- daemon.c ---- */
void sim_daemon_start(struct sim *sim);
void sim_daemon_crash(struct sim *sim);
void sim_daemon_timer(struct sim *sim);
void sim_daemon_opened(struct sim *sim, struct conn *conn);
void sim_daemon_message(struct sim *sim, struct conn *conn, const struct ct_message *message);
void sim_daemon_closed(struct sim *sim, struct conn *conn, bool silent);
const struct ct_rdzv *sim_job(const struct sim *sim); /* NULL: none */

/* ---- node.c ---- */
void sim_node_start(struct sim *sim, uint32_t node);
void sim_node_crash(struct sim *sim, uint32_t node);
void sim_node_timer(struct sim *sim, uint32_t node);
void sim_node_after(struct sim *sim, uint32_t node); /* any call into its member */
void sim_node_prepared(struct sim *sim, uint32_t node, uint64_t generation);
void sim_worker_crash(struct sim *sim, uint32_t node);
void sim_node_done(struct sim *sim, uint32_t node, uint64_t generation);

/* The workers have stopped: the promise follows. */
void sim_node_answer(struct sim *sim, uint32_t node, uint64_t delay_ms);

/* ---- training.c ---- */
void sim_training_round(struct sim *sim, const struct ct_round *round);
void sim_training_step(struct sim *sim);
void sim_member_step(struct sim *sim, uint32_t node, uint64_t step);

/* ---- oracle.c ---- */
void oracle_daemon_step(struct sim *sim);
void oracle_daemon_tells(struct sim *sim, const struct ct_message *message);
void oracle_daemon_restored(struct sim *sim);
void oracle_node_round(struct sim *sim, uint32_t node, const struct ct_round *round);
void oracle_node_closed(struct sim *sim, uint32_t node);
void oracle_heal(struct sim *sim);
void oracle_step(struct sim *sim, uint32_t node);
void oracle_end(struct sim *sim);

#endif
