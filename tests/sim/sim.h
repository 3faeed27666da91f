/* A whole cluster in virtual time: the real daemon and agent cores and the real
 * codec, on a network, disks, clocks and workers that are made up here.
 *
 *      main.c      seeds, repetition, shrinking, reporting
 *      setting.c   what a run is like: sizes, times, delays, drawn from the seed
 *      faults.c    what goes wrong, and when: a list drawn from the seed
 *      scenario.c  runs that tell a story: their transcripts are documentation
 *      world.c     the event heap, processes, their clocks and pauses
 *      net.c       connections: delays, cuts, lost, doubled, reordered messages
 *      disk.c      the journal's files: claims, torn and lost ends, a full and a slow disk
 *      daemon.c    the daemons: the service; two of them when one takes over
 *      node.c      the nodes: the client of the rendezvous, the agent's core, their lives
 *      workers.c   what the agent's core decides, done to model workers
 *      training.c  what the workers do together: recover, step, finish
 *      embedded.c  no daemons: a holder of the record in each node
 *      quorum.c    whether enough of them live
 *      takeover.c  an operator takes a job over, where it lives and where it waits
 *      links.c     the holders' connections to each other, and their agents' to them
 *      oracle.c    the invariants of what the daemons do and say, checked after every event
 *      agreement.c the invariants of what the holders agree on
 *      history.c   the invariants of what the nodes and their workers live through
 *      liveness.c  what must have happened by the end, and what may not be wasted
 *      coverage.c  what the runs reached, and what they never did
 *      large.c     a round of thousands of agents: what it costs
 *
 * A run is a function of its seed: everything random comes from one of the
 * streams below, so that a draw added to one concern does not shift the others.
 * Times are in milliseconds. */
#ifndef CT_TEST_SIM_H
#define CT_TEST_SIM_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/number/rng.h"
#include "cmd/ctrun/agent/core/agent_core.h"
#include "rendezvous/client/endpoints.h"
#include "rendezvous/client/member.h"
#include "rendezvous/holder/holder.h"
#include "rendezvous/service/journal_file.h"
#include "rendezvous/service/service.h"
#include "wire/frame.h"

enum {
    SIM_DAEMONS = 2, /* the second takes over on another machine, from the same journal */
    SIM_NODES = 8,
    SIM_PROCESSES = SIM_DAEMONS + SIM_NODES,
    SIM_WORKERS = 2, /* processes of a node, whatever its slots */
    SIM_CONNS = 400,
    SIM_FAULTS = 40,
    SIM_EPOCHS = 512,     /* tenures of one run */
    SIM_ROUNDS = 2048,    /* generations of one run */
    SIM_MEMBERS = 64,     /* places of the daemon's table that are watched */
    SIM_PHASE_MS = 60000, /* everything goes wrong so long, then nothing does for as long */
    SIM_INCARNATION = 16, /* embedded: between incarnations, so that all fold to other ids */
    SIM_LED_MS = 5000,    /* embedded: and a lease, until somebody leads after the faults */
    SIM_LONG = 12,        /* some runs last so many times longer, at a slower pace */
};

/* ---- events ---- */

enum event_kind {
    EV_TIMER,       /* process a: its timer b (a serial number) fires */
    EV_TICK,        /* process a has read what had arrived when its timer fired */
    EV_STALL,       /* fault a: it stands still once more */
    EV_POLL,        /* daemon a looks for a newer one */
    EV_CONNECT,     /* node a tries to connect, attempt b */
    EV_DIAL,        /* connection a is asked for where it is to lead */
    EV_DIAL_END,    /* ... in vain: refused (b = 1), or not answered in time */
    EV_OPENED,      /* connection a is open at side b */
    EV_DELIVER,     /* chunk a (see net.c) arrives */
    EV_CLOSED,      /* connection a ends at side b */
    EV_UNANSWERED,  /* connection a, side b: TCP gave up on data that nobody acknowledged */
    EV_READY,       /* worker b of node a has left its round (see sim_worker_tag) */
    EV_GONE,        /* worker b of node a has ended, as it was to */
    EV_AGENT,       /* event b of the agent's core of node a, which has no operands */
    EV_BASE_LOST,   /* the workers of node a find that they lost what it promised for round b */
    EV_STEP,        /* the round's workers meet for their next step */
    EV_MEMBER_STEP, /* node a completes its next step, of round b */
    EV_DONE,        /* the agent of node a learns that its workers have finished round b */
    EV_FAULT_BEGIN, /* fault a */
    EV_FAULT_END,
    EV_CALM,       /* what fault a of a calm run may have cost is counted */
    EV_START,      /* process a starts (again) */
    EV_LED,        /* somebody must lead by now */
    EV_QUIET,      /* all has been well for long */
    EV_FAULTS_END, /* from now on nothing goes wrong */
    EV_KINDS,
};

struct event {
    uint64_t at;
    uint64_t order; /* of making: events of one moment happen in this order */
    enum event_kind kind;
    uint32_t a;
    uint32_t life; /* of process or connection `a` when it was made: a later life
                      ignores it */
    uint64_t b;
};

/* ---- processes: first the daemons, then the nodes ---- */

struct process {
    bool alive;
    uint32_t life; /* grows with each start and each crash */
    uint64_t paused_from, paused_until;
    uint64_t stalled_ms; /* it stood still so long that it must have noticed, in all */
    int32_t rate_ppm;    /* how wrong its clock runs */
    uint64_t offset_ms;  /* of its clock at time 0 */
    int64_t wall_ms;     /* how far its wall clock was set wrong */
    uint64_t timer;      /* serial number of the timer that counts */
};

/* ---- connections ---- */

enum { AT_DAEMON, AT_NODE };

/* What for: of an agent; between two holders; of a leader to the job's endpoint. */
enum conn_kind { CONN_AGENT, CONN_REPLICA, CONN_ENDPOINT };

struct conn {
    bool used;
    enum conn_kind kind;
    uint32_t life;
    uint32_t node;   /* that dialled it */
    uint32_t daemon; /* process that it leads to */
    uint32_t port;   /* ... there */
    bool dialling;   /* it is not open yet */
    bool held;       /* by the holder there: */
    struct ct_holder_conn holder;
    uint64_t epoch;            /* of the daemon when it was made */
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

/* ---- the disk ---- */

/* The records of one tenure: empty when it was claimed only, otherwise it
 * begins with a snapshot.
 */
struct file {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
    bool doubtful; /* a write failed: the next record is preceded by a new
                      snapshot */
};

struct disk {
    struct file files[SIM_EPOCHS]; /* by epoch */
    uint64_t newest;               /* epoch that was claimed last */
    uint32_t full;                 /* faults that make it so */
    uint64_t full_until;           /* when the last of them ended */
    uint32_t slow;                 /* faults that make it slow */
    bool tear_next;                /* the daemon dies in the middle of its next record */
    bool race_next;                /* another daemon takes over in the middle of the next record
                                    */
};

/* ---- daemons and nodes ---- */

struct sim_daemon {
    struct sim *sim;
    uint32_t index;
    struct ct_service *service;
    uint64_t epoch;
    uint64_t slow_until; /* it waits for the disk */
    bool dying;          /* nothing it does now is seen: it dies in its last record ... */
    uint32_t tears;      /* embedded: it dies before so many messages have left */
    bool fenced;         /* ... or found that a newer daemon has the journal */

    /* The oracle's observations at its last step. */
    enum ct_rdzv_phase phase;
    uint64_t phase_ms;      /* when it last changed, by its clock */
    uint64_t isolated_ms;   /* when it last could not give anybody up, likewise */
    uint64_t step_ms;       /* its last step */
    uint32_t overdue_steps; /* in which somebody was to be given up, without one in between */
    uint64_t overdue_ms;    /* the first of them */
    uint64_t generation;
    uint32_t restarts;
    bool was_member[SIM_MEMBERS]; /* by number */
    uint64_t received_ms[SIM_MEMBERS];
    uint64_t received_stalled_ms[SIM_MEMBERS]; /* the daemon's stalls by then */
    bool cause_reported;                       /* in this step: a round is over ... */
    bool failure_reported;                     /* ... because of a failure or loss */
};

struct state {
    uint64_t lineage;
    uint64_t step;
    uint64_t digest;
};

enum node_end { NODE_RUNS, NODE_CLOSED, NODE_RELEASED, NODE_FAILED, NODE_ENDS };

struct sim_node {
    struct sim *sim;
    uint32_t index;
    char host[8];
    char address[16];
    struct ct_clock clock;
    struct ct_agent_options options;
    struct ct_member member;
    bool has_member;
    uint64_t incarnations;
    uint32_t conn;    /* SIM_CONNS: none */
    uint64_t attempt; /* serial number of the connection attempt */
    uint64_t give_up_ms;
    uint32_t cut[SIM_DAEMONS][2]; /* faults that hold up what goes to the daemon,
                                     to the node */
    uint64_t sides;               /* of the network splits, a bit a fault: which half it is in */

    struct agent_core core;
    struct ct_survivor survivors[SIM_WORKERS];
    bool dismissed[SIM_WORKERS];
    bool alive[SIM_WORKERS];      /* its workers; ... */
    bool holds[SIM_WORKERS];      /* ... these hold `state` */
    uint32_t serial[SIM_WORKERS]; /* grows with each start of a worker */
    bool stuck[SIM_WORKERS];      /* it never leaves a round */
    bool running, stopping;       /* as the launcher of real workers would say */
    bool workers;                 /* all live */
    struct state state;
    uint64_t done_step;    /* at which they ended well; 0: they have not */
    uint64_t acting;       /* the round that they act in, 0: none */
    uint64_t requested;    /* to be promised */
    bool boundary;         /* they stop after this step */
    bool stopped;          /* they wait at the boundary */
    uint64_t ends_ms;      /* when somebody first asked for its end, or the job's came */
    uint64_t published_ms; /* when it asked for a publication that is not answered */
    uint64_t digest;       /* of that */
    uint64_t promised_max;
    uint64_t acting_max;
    uint64_t recovered_max; /* the newest round whose state they held */
    uint64_t epoch;         /* the newest it was welcomed by */
    uint32_t untold;        /* answers in a row that see it as asked, and it was not */
    enum node_end end;
    struct ct_rdzv_result result;
    char cause_room[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)]; /* of the result's */
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
    uint64_t published_generation; /* the newest when the round was made */
    uint64_t published_step;
    struct state base;      /* what all take; lineage 0: not looked at yet */
    bool recovered;         /* all hold it */
    uint64_t boundary_step; /* they stop after it; 0: none */
    uint64_t done_ms;       /* when the last of them ends, or ended */
};

/* ---- faults ---- */

enum fault_kind {
#define FAULT(name, rounds, text) FAULT_##name,
#include "faults.def"
#undef FAULT
    FAULT_KINDS,
};

struct fault {
    enum fault_kind kind;
    uint32_t node;
    uint64_t at;
    uint64_t lasts;
    uint32_t daemon;     /* that it hit */
    uint64_t generation; /* calm run: before it, as the next two */
    uint64_t incarnation;
    uint32_t nodes;
    bool split;   /* a stall with short moments in which it wakes */
    bool skipped; /* when a failing list is shortened */
};

/* A scripted run, see scenario.c. */
struct scenario {
    const char *name;
    uint32_t nodes, nodes_min, nodes_max, last_nodes; /* those from last_nodes on come late */
    uint64_t ends;
    size_t fault_count;
    struct fault faults[3];
};

enum voice { VOICE_NONE, VOICE_STORY, VOICE_ALL };

#include "embedded.h"
#include "oracle.h"

struct sim {
    uint64_t seed;
    const struct scenario *scenario; /* NULL: drawn from the seed */
    enum voice voice;
    struct ct_buf *transcript; /* where the story goes; NULL: standard output */
    uint64_t now;
    uint64_t same_time; /* events since time went on */
    uint64_t hash;      /* of the trace */
    char failure[2048]; /* "": all is well */

    struct ct_rng net_rng, fault_rng, work_rng, disk_rng, setup_rng;

    /* The setting, drawn from the seed. */
    uint32_t node_count;
    struct ct_rdzv_params params;
    uint32_t scale;     /* of all times: 1, or SIM_LONG */
    uint64_t faults_ms; /* when faults end */
    uint64_t ends_ms;   /* when the run is over */
    enum sim_mode mode;
    bool embedded;  /* no daemon: the nodes hold the record */
    bool calm;      /* a good network, and one fault after the other: nothing may be
                           wasted */
    bool datagrams; /* messages one by one, lost, doubled and out of order */
    bool survivable;
    bool programs;     /* of these, some that say themselves when they can live on */
    uint32_t poll_ms;  /* how often a daemon looks for a newer one */
    bool slow_stops;   /* some workers take long to stop, or too long */
    uint32_t delay_ms; /* mean, one way */
    uint32_t loss_permille, duplicate_permille;
    uint32_t step_ms;
    uint64_t total_steps; /* 0: without end */
    bool faults_ended;
    bool over;    /* the job has ended and all its nodes know */
    bool divided; /* two jobs of its name had rounds: they have to become one (R9) */

    struct chunk *chunks;
    size_t chunk_room;
    uint32_t dirty[SIM_CONNS];
    size_t dirty_count;

    struct event *heap;
    size_t heap_count, heap_room;
    uint64_t event_order;

    struct process processes[SIM_PROCESSES];
    struct conn conns[SIM_CONNS];
    struct conn operator;  /* of an order under way, answered at once or not at all */
    uint8_t operator_verb; /* what it is */
    uint32_t operator_node;
    int32_t operator_answer; /* its code; CT_EUNAVAILABLE: none */
    struct disk disk;
    struct sim_daemon daemons[SIM_PROCESSES]; /* of a node: its holder, while it leads */
    struct sim_node nodes[SIM_NODES];
    struct sim_host hosts[SIM_NODES];
    uint32_t severed[SIM_NODES][SIM_NODES]; /* embedded: cuts from one node to another */
    struct agreement agreement;
    struct fault faults[SIM_FAULTS];
    size_t fault_count;
    uint32_t storms; /* faults by which messages are lost and late beyond the usual */
    struct training training;
    struct oracle oracle;
    struct coverage coverage;
};

/* The process of a node. */
static inline uint32_t sim_process(uint32_t node)
{
    return SIM_DAEMONS + node;
}

static inline uint64_t sim_between(struct ct_rng *rng, uint64_t low, uint64_t high)
{
    return low + ct_rng_below(rng, high - low + 1);
}

/* ---- world.c ---- */
void sim_schedule(struct sim *sim, uint64_t at, enum event_kind kind, uint32_t a, uint64_t b);
uint64_t sim_local_ms(const struct sim *sim, uint32_t process);

/* Arm the one timer of a process for `due` by its own clock. */
void sim_arm(struct sim *sim, uint32_t process, uint64_t due);

/* A process stands still until then. */
void sim_pause(struct sim *sim, uint32_t process, uint64_t until);

/* One line of the transcript, hashed always; sim_trace's lines are the story,
 * too. */
void sim_log(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An invariant is broken: the run ends. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Run sim->seed or sim->scenario from beginning to end; faults in `skip` (a bit set) are left out.
 * The caller has zeroed the rest. */
void sim_run(struct sim *sim, uint64_t skip);
void sim_free(struct sim *sim);

/* ---- setting.c, scenario.c ---- */
void sim_draw_setting(struct sim *sim);
extern const struct scenario sim_scenarios[];
extern const size_t sim_scenario_count;
void sim_stage(struct sim *sim); /* the setting of sim->scenario */

/* ---- faults.c ---- */
void sim_draw_faults(struct sim *sim, uint64_t skip);
void sim_fault_begin(struct sim *sim, struct fault *fault);
void sim_fault_end(struct sim *sim, struct fault *fault);
void sim_stall(struct sim *sim, struct fault *fault);
void sim_end_faults(struct sim *sim);
void sim_fault_print(const struct fault *fault, char *text, size_t room);

/* ---- net.c ---- */
void sim_connect(struct sim *sim, uint32_t node);
void sim_try_connect(struct sim *sim, uint32_t index, uint64_t attempt);
uint32_t sim_dial(struct sim *sim, uint32_t node, enum conn_kind kind, const char *address,
                  uint64_t wait_ms);
void sim_dial_arrives(struct sim *sim, uint32_t index);
void sim_dial_ends(struct sim *sim, uint32_t index, bool refused);
void sim_hang_up(struct sim *sim, uint32_t index); /* by who dialled it */
void sim_send(struct sim *sim, struct conn *conn, int side, const struct ct_message *message);
void sim_flush(struct sim *sim); /* what was written in the step that ends */
void sim_opened(struct sim *sim, uint32_t index, int side);
void sim_deliver(struct sim *sim, uint32_t index);
void sim_close(struct sim *sim, struct conn *conn, int side); /* this side gives it up */
void sim_closed(struct sim *sim, uint32_t index, int side);   /* the end reaches this side */
void sim_unanswered(struct sim *sim, uint32_t index, int side);
void sim_kill_conns(struct sim *sim, uint32_t process); /* the process is gone */
void sim_cut_changed(struct sim *sim, uint32_t node);
void sim_net_free(struct sim *sim);

/* ---- disk.c ---- */

/* Create the file of the next tenure exclusively. Returns its epoch. */
uint64_t sim_disk_claim(struct sim *sim);

/* Replay the newest file with content into the daemon's service. */
int sim_disk_replay(struct sim *sim, struct sim_daemon *daemon, struct ct_error *err);

/* The daemon's file becomes a snapshot. 0, CT_EIO, CT_EFENCED. */
int sim_disk_begin(struct sim *sim, struct sim_daemon *daemon);

/* Keep a record. 0, CT_EIO, CT_EFENCED; it may find out that the daemon dies in
 * it. */
int sim_disk_append(struct sim *sim, struct sim_daemon *daemon, struct ct_journal_record record);

/* Has a newer daemon claimed the journal? */
bool sim_disk_is_newest(const struct sim *sim, const struct sim_daemon *daemon);
void sim_disk_free(struct sim *sim);

/* ---- daemon.c ---- */
void sim_daemon_start(struct sim *sim, uint32_t index);
void sim_daemon_crash(struct sim *sim, uint32_t index);
void sim_daemon_timer(struct sim *sim, uint32_t index);
void sim_daemon_tick(struct sim *sim, uint32_t index);
void sim_daemon_poll(struct sim *sim, uint32_t index);
void sim_daemon_opened(struct sim *sim, struct conn *conn);
void sim_daemon_message(struct sim *sim, struct conn *conn, const struct ct_message *message);
void sim_daemon_closed(struct sim *sim, struct conn *conn, bool silent);

/* An operator asks the newest daemon (a verb of admin.h) to do something with a node's host. */
void sim_order(struct sim *sim, uint8_t verb, uint32_t node);

/* The living daemon of the newest epoch; NULL: none. */
struct sim_daemon *sim_newest_daemon(struct sim *sim);

/* The job that a daemon serves; NULL: none. */
const struct ct_rdzv *sim_job(const struct sim_daemon *daemon);

/* ---- node.c ---- */
void sim_node_start(struct sim *sim, uint32_t index);
void sim_node_crash(struct sim *sim, uint32_t index);
void sim_node_timer(struct sim *sim, uint32_t index);
void sim_node_after(struct sim *sim, uint32_t index); /* any call into its member */
void sim_node_message(struct sim *sim, struct conn *conn, const struct ct_message *message);

/* Feed an event to the node's agent core and carry out its actions. */
void sim_node_feed(struct sim *sim, uint32_t index, const struct agent_event *event);
void sim_node_signal(struct sim *sim, uint32_t index, int number);

/* ---- workers.c ---- */

/* Carry out one action of the core. */
void sim_workers_do(struct sim *sim, uint32_t index, enum agent_action action,
                    const struct agent_event *event);

enum { SIM_WORKER_ABLE = 1 << 7 }; /* in a tag of EV_READY: it can live on, and says so */

/* EV_READY and EV_GONE: worker and its serial number in one. */
static inline uint64_t sim_worker_tag(const struct sim_node *node, uint32_t worker)
{
    return worker | (uint64_t)node->serial[worker] << 8;
}

void sim_worker_ready(struct sim *sim, uint32_t index, uint64_t tag);
void sim_worker_gone(struct sim *sim, uint32_t index, uint64_t tag);
void sim_worker_crash(struct sim *sim, uint32_t index);
void sim_workers_base_lost(struct sim *sim, uint32_t index, uint64_t generation);

/* They are at the step boundary for which the round ends. */
void sim_workers_at_boundary(struct sim *sim, uint32_t index);

/* All of them have made the last step of the round. */
void sim_workers_done(struct sim *sim, uint32_t index, uint64_t generation);

/* They hold the base of the round that they act in. */
void sim_workers_recovered(struct sim *sim, uint32_t index);

/* One of them, rank 0, has a checkpoint of a step that all have completed. */
void sim_workers_publish(struct sim *sim, uint32_t index, uint64_t step, uint64_t digest);

/* ---- training.c ---- */
void sim_training_round(struct sim *sim, const struct ct_round *round);
void sim_training_step(struct sim *sim);
void sim_member_step(struct sim *sim, uint32_t index, uint64_t generation);

/* ---- coverage.c ---- */

/* Count the moves of all job cores from now on; NULL: no more. */
void sim_watch_moves(struct coverage *coverage);
void sim_coverage_add(struct coverage *sum, const struct coverage *more);
void sim_coverage_print(const struct coverage *c);

/* ---- oracle.c ---- */
void oracle_daemon_step(struct sim *sim, struct sim_daemon *daemon);
void oracle_daemon_sends(struct sim *sim, struct sim_daemon *daemon,
                         const struct ct_message *message);
void oracle_daemon_restored(struct sim *sim, struct sim_daemon *daemon);
/* The other cordons are lost with those who knew of them. */
void oracle_keep_cordons(struct sim *sim, const struct ct_rdzv *job);

/* May the message change anything? No: `ret_before` sums up the job as it is.
 */
bool oracle_is_void(struct sim *sim, const struct conn *conn, const struct ct_message *message,
                    uint64_t *ret_before);
void oracle_was_void(struct sim *sim, const struct conn *conn, const struct ct_message *message,
                     uint64_t before);

/* ---- history.c ---- */
void oracle_node_round(struct sim *sim, uint32_t index, const struct ct_round *round);
void oracle_node_informed(struct sim *sim, const struct conn *conn,
                          const struct ct_message *message, bool was_joining);
void oracle_node_closed(struct sim *sim, uint32_t index);
void oracle_base(struct sim *sim);
void oracle_recovered(struct sim *sim);

/* The record was lost, in part or as a whole, and no round has been made since: what is left of it
 * is taken as it is. */
static inline bool oracle_has_forgotten(const struct sim *sim)
{
    return sim->embedded && sim->oracle.order_generation == 0 &&
           sim->oracle.cut_generation == SIM_ROUNDS;
}
void oracle_step(struct sim *sim, uint32_t index);

/* A publication is on record. */
void oracle_published(struct sim *sim, const struct ct_rdzv_publication *published);

/* ---- liveness.c ---- */
void oracle_calm_begin(struct sim *sim, struct fault *fault);
void oracle_calm_out(struct sim *sim, const struct fault *fault);
void oracle_calm_ordered(struct sim *sim, const struct fault *fault);
void oracle_calm_left(struct sim *sim, const struct fault *fault);
void oracle_calm_end(struct sim *sim, const struct fault *fault);

/* Some time after the faults. False: it looks again a little later. */
bool oracle_led(struct sim *sim, bool is_again);
void oracle_quiet(struct sim *sim); /* at 3/4 of the phase without faults */
void oracle_end(struct sim *sim);

#endif
