/* Which fault comes when, and how it is done and undone. See soak.h.
 *
 * Host 0 is the elder: its agent and its first worker are never killed and never away for longer
 * than the lease, so that leaks have a whole soak to show in (with --leaders it dies as others). */
#include "soak.h"

#include "chance.h"

#include <signal.h>
#include <stdio.h>

enum { ELDER = 0, SETTLE_S = 12, DRAIN_S = 25, FENCE_S = 10, AWAY_S = 3 };

static const struct fault {
    const char *words;
    unsigned weights[2]; /* with a daemon; with --leaders */
    bool spaces;
} faults[FAULT_COUNT] = {
#define FAULT(NAME, function, words, weight, leaders, spaces) {words, {weight, leaders}, spaces},
#include "faults.def"
#undef FAULT
};

const char *faults_words(enum fault_kind kind)
{
    return faults[kind].words;
}

unsigned faults_weight(const struct soak *soak, enum fault_kind kind)
{
    return faults[kind].weights[soak->leaders];
}

/* ---- later ---------------------------------------------------------------------------------- */

static void plan(struct soak *soak, double in_s, void (*run)(void *, int), int host)
{
    timeline_add(&soak->faults.later, in_s, run, host);
}

static void later_start_agent(void *context, int host)
{
    struct soak *soak = context;

    if (process_runs(soak->cast.nodes[host].agent)) {
        if (soak->cast.nodes[host].ending)
            plan(soak, soak->leaders ? 0.02 : 0.5, later_start_agent, host);
        return;
    }
    report_event(soak, "host %d starts an agent", host);
    if (!cast_start_agent(soak, host))
        report_alarm(soak, "agent %d cannot be started", host);
}

static void later_continue_agent(void *context, int host)
{
    struct soak *soak = context;

    if (process_runs(soak->cast.nodes[host].agent))
        (void)kill(soak->cast.nodes[host].agent->pid, SIGCONT);
    report_event(soak, "agent %d goes on", host);
}

static void start_daemon(struct soak *soak, int seat, bool takeover)
{
    report_event(soak, "a daemon starts on host %d%s", SOAK_HOSTS + seat,
                 takeover ? " and takes over" : "");
    if (!cast_start_daemon(soak, seat, takeover))
        report_alarm(soak, "the daemon cannot be started");
}

static void later_start_daemon(void *context, int host)
{
    struct soak *soak = context;
    const struct seat *seats = soak->cast.seats;
    int seat = (int)ct_rng_below(&soak->rng, SOAK_SEATS);

    if (process_runs(seats[0].daemon) || process_runs(seats[1].daemon))
        plan(soak, 0.02, later_start_daemon, host); /* its end is not collected yet */
    else
        start_daemon(soak, seat, false);
}

static void later_continue_daemon(void *context, int host)
{
    struct soak *soak = context;
    const struct proc *daemon = soak->cast.seats[host - SOAK_HOSTS].daemon;

    if (process_runs(daemon))
        (void)kill(daemon->pid, SIGCONT);
    report_event(soak, "the daemon on host %d goes on", host);
}

static void heal(struct soak *soak, int host)
{
    if (!hosts_restore(&soak->hosts, host))
        report_alarm(soak, "host %d cannot be connected again", host);
}

static void later_plug(void *context, int host)
{
    struct soak *soak = context;

    heal(soak, host);
    report_event(soak, "host %d is plugged in", host);
}

static void later_lose_nothing(void *context, int host)
{
    struct soak *soak = context;

    heal(soak, host);
    report_event(soak, "host %d receives all packets", host);
}

/* ---- choosing ------------------------------------------------------------------------------- */

static bool is_sound(const struct soak *soak, int host)
{
    const struct node *node = &soak->cast.nodes[host];

    return process_runs(node->agent) && !node->leaving && soak_now_s(soak) > node->busy_s;
}

static bool is_at_work(const struct soak *soak, int host)
{
    return is_sound(soak, host) && soak->cast.nodes[host].workers[0].pid != 0 &&
           soak->cast.nodes[host].workers[1].pid != 0;
}

/* A host from `first` on that `suits`, -1: none. */
static int choose_host(struct soak *soak, int first, bool (*suits)(const struct soak *, int))
{
    int start = (int)ct_rng_below(&soak->rng, SOAK_HOSTS);

    for (int i = 0; i < SOAK_HOSTS; i++) {
        int host = (start + i) % SOAK_HOSTS;
        if (host >= first && suits(soak, host))
            return host;
    }
    return -1;
}

/* A host that the job can do without: at least MIN stay, now and then fewer, so that it pauses. */
static int choose_dispensable(struct soak *soak)
{
    int stay = cast_sound(soak) - 1;

    if (stay < SOAK_MIN && (stay < 1 || !rng_chance(&soak->rng, 100)))
        return -1;
    return choose_host(soak, ELDER + 1, is_sound);
}

static struct worker *choose_worker(struct soak *soak, int *ret_host)
{
    int host = choose_host(soak, ELDER, is_at_work);

    if (host < 0)
        return NULL;
    *ret_host = host;
    int slot = host == ELDER ? 1 : (int)ct_rng_below(&soak->rng, SOAK_SLOTS);
    return &soak->cast.nodes[host].workers[slot];
}

static void occupy(struct soak *soak, int host, double seconds)
{
    struct node *node = &soak->cast.nodes[host];

    node->busy_s = soak_now_s(soak) + seconds;
}

static void excuse(struct soak *soak, int host, double seconds)
{
    struct node *node = &soak->cast.nodes[host];

    occupy(soak, host, seconds);
    node->excused_s = node->busy_s + SETTLE_S;
}

/* ---- workers -------------------------------------------------------------------------------- */

static bool kill_a_worker(struct soak *soak, const char *when)
{
    int host;
    struct worker *worker = choose_worker(soak, &host);

    if (worker == NULL)
        return false;
    report_event(soak, "SIGKILL to worker %d of host %d%s", (int)worker->pid, host, when);
    worker->excused_s = soak_now_s(soak) + SETTLE_S;
    return kill(worker->pid, SIGKILL) == 0;
}

static bool do_kill_worker(struct soak *soak)
{
    return kill_a_worker(soak, "");
}

static void later_kill_worker(void *context, int host)
{
    struct soak *soak = context;

    (void)host;
    (void)kill_a_worker(soak, ", during the recovery");
}

static bool do_kill_twice(struct soak *soak)
{
    if (!kill_a_worker(soak, ", another one follows"))
        return false;
    plan(soak, soak_draw(soak, 0.002, 0.15), later_kill_worker, 0);
    return true;
}

static void later_continue_workers(void *context, int host)
{
    struct soak *soak = context;

    for (int i = 0; i < SOAK_SLOTS; i++) {
        const struct worker *worker = &soak->cast.nodes[host].workers[i];
        if (worker->pid != 0 && procfs_lives(worker->pid, worker->born))
            (void)kill(worker->pid, SIGCONT);
    }
    report_event(soak, "the workers of host %d go on", host);
}

static bool do_stop_worker(struct soak *soak)
{
    double seconds = soak_draw(soak, 0.1, 3);
    int host;
    struct worker *worker = choose_worker(soak, &host);

    if (worker == NULL)
        return false;
    report_event(soak, "SIGSTOP to worker %d of host %d for %.1f s", (int)worker->pid, host,
                 seconds);
    (void)kill(worker->pid, SIGSTOP);
    /* Should a round end meanwhile, it is given up after the grace. */
    worker->excused_s = soak_now_s(soak) + seconds + SETTLE_S;
    occupy(soak, host, seconds);
    plan(soak, seconds, later_continue_workers, host);
    return true;
}

static bool do_hang(struct soak *soak)
{
    int host;
    struct worker *worker = choose_worker(soak, &host);

    if (worker == NULL)
        return false;
    report_event(soak, "SIGSTOP to worker %d of host %d for good", (int)worker->pid, host);
    worker->excused_s = soak_now_s(soak) + 2 * SOAK_HANG_S + SETTLE_S;
    occupy(soak, host, SOAK_HANG_S);
    return kill(worker->pid, SIGSTOP) == 0;
}

/* ---- agents --------------------------------------------------------------------------------- */

/* Another agent on the same host soon, or the host stays empty until one joins. */
static void replace(struct soak *soak, int host)
{
    if (rng_chance(&soak->rng, 500) || cast_sound(soak) <= SOAK_MIN)
        plan(soak, soak_draw(soak, 0, 5), later_start_agent, host);
}

static bool do_kill_agent(struct soak *soak)
{
    int host = choose_dispensable(soak);

    if (host < 0)
        return false;
    report_event(soak, "SIGKILL to agent %d", host);
    (void)kill(soak->cast.nodes[host].agent->pid, SIGKILL);
    soak->cast.nodes[host].ending = true;
    excuse(soak, host, 0);
    replace(soak, host);
    return true;
}

static bool stop_agent(struct soak *soak, int host, double seconds)
{
    if (host < 0)
        return false;
    report_event(soak, "SIGSTOP to agent %d for %.1f s", host, seconds);
    (void)kill(soak->cast.nodes[host].agent->pid, SIGSTOP);
    plan(soak, seconds, later_continue_agent, host);
    return true;
}

static bool do_pause_agent(struct soak *soak)
{
    double seconds = soak_draw(soak, 0.05, 0.5) * soak->lease_s;
    int host = choose_host(soak, ELDER, is_sound);

    if (host >= 0)
        occupy(soak, host, seconds);
    return stop_agent(soak, host, seconds);
}

static bool do_stop_agent(struct soak *soak)
{
    double seconds = soak_draw(soak, 1.1, 3) * soak->lease_s;
    int host = choose_dispensable(soak);

    if (host >= 0)
        excuse(soak, host, seconds);
    return stop_agent(soak, host, seconds);
}

static void expect_leave(struct soak *soak, int host)
{
    excuse(soak, host, DRAIN_S);
    soak->cast.nodes[host].leaving = soak->cast.nodes[host].ending = true;
    replace(soak, host);
}

static bool do_drain(struct soak *soak)
{
    int host = choose_dispensable(soak);

    if (host < 0)
        return false;
    report_event(soak, "SIGTERM to agent %d", host);
    (void)kill(soak->cast.nodes[host].agent->pid, SIGTERM);
    expect_leave(soak, host);
    return true;
}

static bool do_join(struct soak *soak)
{
    for (int i = 0; i < SOAK_HOSTS; i++) {
        if (process_runs(soak->cast.nodes[i].agent) || timeline_concerns(&soak->faults.later, i))
            continue;
        later_start_agent(soak, i);
        return true;
    }
    return false;
}

/* ---- who leads the rendezvous inside ctrun --------------------------------------------------- */

static void kill_workers(struct soak *soak, int host)
{
    for (int i = 0; i < SOAK_SLOTS; i++) {
        const struct worker *worker = &soak->cast.nodes[host].workers[i];
        if (worker->pid != 0 && procfs_lives(worker->pid, worker->born))
            (void)kill(worker->pid, SIGKILL);
    }
}

static bool kill_leader(struct soak *soak, bool workers)
{
    double seconds = soak_draw(soak, 0, AWAY_S);
    int host = leaders_find(soak);

    if (host < 0 || !is_sound(soak, host) || cast_sound(soak) <= SOAK_MIN)
        return false;
    report_event(soak, "SIGKILL to agent %d, which leads%s, back in %.1f s", host,
                 workers ? ", and to its workers" : "", seconds);
    (void)kill(soak->cast.nodes[host].agent->pid, SIGKILL);
    if (workers)
        kill_workers(soak, host);
    soak->cast.nodes[host].ending = true;
    excuse(soak, host, 0);
    plan(soak, seconds, later_start_agent, host);
    return true;
}

static bool do_kill_leader(struct soak *soak)
{
    return kill_leader(soak, false);
}

static bool do_kill_leader_host(struct soak *soak)
{
    return kill_leader(soak, true);
}

/* ---- the daemon ----------------------------------------------------------------------------- */

/* One daemon there is, and nothing is done to it. */
static bool is_daemon_sound(const struct soak *soak)
{
    const struct cast *cast = &soak->cast;

    return process_runs(cast->seats[cast->serving].daemon) &&
           !process_runs(cast->seats[1 - cast->serving].daemon) &&
           soak_now_s(soak) > cast->daemon_busy_s;
}

static bool do_drain_order(struct soak *soak)
{
    bool can = is_daemon_sound(soak) && cast_is_complete(soak);
    int host = can ? choose_dispensable(soak) : -1;

    if (host < 0 || !cast_order(soak, "drain", host))
        return false;
    report_event(soak, "ctrun drain %s", soak->cast.nodes[host].host_name);
    expect_leave(soak, host);
    return true;
}

static void later_kill_daemon(void *context, int host)
{
    struct soak *soak = context;
    double seconds = soak_draw(soak, 0, 3);

    if (!process_runs(cast_daemon(soak)))
        return;
    report_event(soak, "SIGKILL to the daemon, back in %.1f s", seconds);
    soak->cast.seats[soak->cast.serving].killed = true;
    soak->cast.daemon_busy_s = soak_now_s(soak) + seconds + 1;
    (void)kill(cast_daemon(soak)->pid, SIGKILL);
    plan(soak, seconds, later_start_daemon, host);
}

static bool do_kill_daemon(struct soak *soak)
{
    if (!is_daemon_sound(soak))
        return false;
    later_kill_daemon(soak, SOAK_HOSTS);
    return true;
}

static bool do_kill_both(struct soak *soak)
{
    if (!is_daemon_sound(soak) || !kill_a_worker(soak, ", the daemon follows"))
        return false;
    soak->cast.daemon_busy_s = soak_now_s(soak) + 1;
    plan(soak, soak_draw(soak, 0, 0.06), later_kill_daemon, SOAK_HOSTS);
    return true;
}

/* Stop the daemon on its host, and let it go on. */
static void stop_daemon(struct soak *soak, double seconds)
{
    int host = SOAK_HOSTS + soak->cast.serving;

    report_event(soak, "SIGSTOP to the daemon on host %d for %.1f s", host, seconds);
    (void)kill(cast_daemon(soak)->pid, SIGSTOP);
    soak->cast.daemon_busy_s = soak_now_s(soak) + seconds + 1;
    plan(soak, seconds, later_continue_daemon, host);
}

static bool do_stop_daemon(struct soak *soak)
{
    if (!is_daemon_sound(soak))
        return false;
    stop_daemon(soak, soak_draw(soak, 0.1, 3) * soak->lease_s);
    return true;
}

/* Who served must notice within `seconds` and end. */
static void take_over(struct soak *soak, double seconds)
{
    int seat = soak->cast.serving;

    soak->cast.seats[seat].fenced_s = soak_now_s(soak) + seconds;
    start_daemon(soak, 1 - seat, true);
}

static bool do_take_over(struct soak *soak)
{
    if (!is_daemon_sound(soak))
        return false;
    soak->cast.daemon_busy_s = soak_now_s(soak) + 1;
    take_over(soak, FENCE_S);
    return true;
}

static bool do_take_stopped(struct soak *soak)
{
    double seconds = soak_draw(soak, 0.1, 3) * soak->lease_s;

    if (!is_daemon_sound(soak))
        return false;
    stop_daemon(soak, seconds);
    take_over(soak, seconds + FENCE_S);
    return true;
}

/* ---- the network ---------------------------------------------------------------------------- */

static bool unplug(struct soak *soak, int host, double seconds)
{
    if (host < 0)
        return false;
    report_event(soak, "host %d is unplugged for %.1f s", host, seconds);
    if (!hosts_cut(&soak->hosts, host))
        report_alarm(soak, "host %d cannot be unplugged", host);
    plan(soak, seconds, later_plug, host);
    return true;
}

static bool do_blink(struct soak *soak)
{
    double seconds = soak_draw(soak, 0.05, 0.5) * soak->lease_s;
    int host = choose_host(soak, ELDER, is_sound);

    if (host >= 0)
        occupy(soak, host, seconds + 1);
    return unplug(soak, host, seconds);
}

static bool do_cut(struct soak *soak)
{
    double seconds = soak_draw(soak, 1.1, 3) * soak->lease_s;
    int host = choose_dispensable(soak);

    if (host >= 0)
        excuse(soak, host, seconds);
    return unplug(soak, host, seconds);
}

static bool do_lose(struct soak *soak)
{
    double seconds = soak_draw(soak, 0.5, 3);
    int host = choose_dispensable(soak);
    int percent = (int)soak_draw(soak, 2, 30);

    if (host < 0)
        return false;
    report_event(soak, "host %d loses %d %% of what it receives for %.1f s", host, percent,
                 seconds);
    if (!hosts_lose(&soak->hosts, host, HOSTS_IN, percent))
        report_alarm(soak, "host %d cannot be made to lose packets", host);
    excuse(soak, host, seconds);
    plan(soak, seconds, later_lose_nothing, host);
    return true;
}

/* ---- what comes next ------------------------------------------------------------------------ */

static bool do_fault(struct soak *soak, enum fault_kind kind)
{
    static bool (*const functions[FAULT_COUNT])(struct soak *) = {
#define FAULT(NAME, function, words, weight, leaders, spaces) do_##function,
#include "faults.def"
#undef FAULT
    };

    double wall_s = soak_wall_s();

    if (!functions[kind](soak))
        return false;
    steps_mark(soak, kind, wall_s);
    return true;
}

static enum fault_kind draw_kind(struct soak *soak)
{
    unsigned sum = 0;

    for (int i = 0; i < FAULT_COUNT; i++)
        sum += faults_weight(soak, (enum fault_kind)i);
    unsigned at = (unsigned)ct_rng_below(&soak->rng, sum);
    for (int i = 0; i < FAULT_COUNT; i++) {
        unsigned weight = faults_weight(soak, (enum fault_kind)i);
        if (at < weight)
            return (enum fault_kind)i;
        at -= weight;
    }
    return FAULT_KILL_WORKER;
}

/* Mostly seconds apart, sometimes one into the recovery from the other. */
static double draw_pause(struct soak *soak)
{
    if (soak->leaders)
        return soak_draw(soak, 2, 5);
    return rng_chance(&soak->rng, 150) ? soak_draw(soak, 0, 0.3) : soak_draw(soak, 1, 6);
}

void faults_advance(struct soak *soak, bool more)
{
    struct faults *state = &soak->faults;

    timeline_run(&state->later, soak);
    if (!more || soak_now_s(soak) < state->next_s)
        return;
    enum fault_kind kind = draw_kind(soak);
    if ((faults[kind].spaces && !soak->hosts.spaces) || !do_fault(soak, kind))
        return; /* another one in the next turn */
    state->next_s = soak_now_s(soak) + draw_pause(soak);
}

bool faults_idle(const struct soak *soak)
{
    if (soak->faults.later.count > 0 || soak_now_s(soak) < soak->cast.daemon_busy_s)
        return false;
    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        if (process_runs(node->agent) && (node->leaving || soak_now_s(soak) < node->busy_s))
            return false;
    }
    return true;
}
