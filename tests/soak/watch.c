/* Who takes part, watched: what they say, how they end, what the daemon's figures are. See soak.h.
 */
#include "soak.h"

#include "base/assert.h"
#include "cluster/status.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The longest that an orphan, a zombie, a silent daemon, a node that leaves, a daemon that another
 * one has taken over from, an order may take; the age from which on a worker counts as a survivor;
 * the exit statuses of a daemon that was taken over from and of an order that is refused. */
enum {
    ORPHAN_S = 3,
    ZOMBIE_S = 5,
    MUTE_S = 5,
    LEAVE_S = 25,
    FENCE_S = 10,
    ORDER_S = 10,
    YOUNG_S = 3,
    FENCED = 76,
    REFUSED = 69,
};

static const double LOOK_S = 0.1; /* how often to ask the daemon for its figures */

/* ---- what must never be said ---------------------------------------------------------------- */

static const char *const forbidden[] = {
    "a bug in",        "iverged",
    "assert",          "Sanitizer",
    "runtime error:",  "egmentation",
    "corrupt",         "protocol",
    "out of memory",   "different collectives",
    "does not hold",   "internal error",
    "replicas differ", "cannot be written",
    "invariant",
};

void cast_on_line(void *context, struct proc *proc, const char *line)
{
    struct soak *soak = context;

    for (size_t i = 0; i < CT_COUNT(forbidden); i++)
        if (strstr(line, forbidden[i]) != NULL)
            report_alarm(soak, "%s says: %s", proc->name, line);
    for (int i = 0; soak->leaders && i < SOAK_HOSTS; i++)
        if (soak->cast.nodes[i].agent == proc)
            leaders_on_line(soak, i, line);
}

/* ---- the daemon's figures ------------------------------------------------------------------- */

static void watch_figures(struct soak *soak)
{
    struct cast *cast = &soak->cast;
    double now_s = soak_now_s(soak);
    char text[65536];

    if (now_s < cast->looked_s + LOOK_S)
        return;
    cast->looked_s = now_s;
    if (!process_runs(cast_daemon(soak)) || now_s < cast->daemon_busy_s) {
        cast->answered_s = now_s;
        return;
    }
    if (!status_get(soak->job.seats[cast->serving].socket, "/metrics", 300, text, sizeof text)) {
        if (now_s - cast->answered_s > MUTE_S) {
            report_alarm(soak, "the daemon has not answered for %d s", MUTE_S);
            cast->answered_s = now_s;
        }
        return;
    }
    double generation = status_figure(text, "ctrun_generation", cast->generation);
    double epoch = status_figure(text, "ctrun_epoch", cast->epoch);
    if (generation < cast->generation)
        report_alarm(soak, "the generation fell from %.0f to %.0f", cast->generation, generation);
    if (epoch < cast->epoch)
        report_alarm(soak, "the epoch fell from %.0f to %.0f", cast->epoch, epoch);
    cast->generation = generation;
    cast->epoch = epoch;
    cast->members = status_figure(text, "ctrun_members", 0);
    cast->world = status_figure(text, "ctrun_world_size", 0);
    cast->running = status_figure(text, "ctrun_running", 0);
    cast->answered_s = cast->figures_s = now_s;
}

/* ---- workers -------------------------------------------------------------------------------- */

static void add_orphan(struct soak *soak, struct worker worker)
{
    for (size_t i = 0; i < CT_COUNT(soak->cast.orphans); i++) {
        struct orphan *orphan = &soak->cast.orphans[i];
        if (orphan->worker.pid != 0)
            continue;
        *orphan = (struct orphan){worker, soak_now_s(soak) + ORPHAN_S};
        return;
    }
}

static void watch_orphans(struct soak *soak)
{
    for (size_t i = 0; i < CT_COUNT(soak->cast.orphans); i++) {
        struct orphan *orphan = &soak->cast.orphans[i];
        if (orphan->worker.pid == 0)
            continue;
        if (!procfs_lives(orphan->worker.pid, orphan->worker.born)) {
            orphan->worker.pid = 0;
        } else if (soak_now_s(soak) > orphan->due_s) {
            report_alarm(soak, "worker %d lives %d s after its agent", (int)orphan->worker.pid,
                         ORPHAN_S);
            (void)kill(orphan->worker.pid, SIGKILL);
            orphan->worker.pid = 0;
        }
    }
}

static bool is_among(const struct worker *worker, const struct procfs_child *now, int count)
{
    for (int i = 0; i < count; i++)
        if (now[i].pid == worker->pid && now[i].born == worker->born)
            return true;
    return false;
}

/* It is known, or takes a free place. */
static void note_worker(struct node *node, const struct procfs_child *child, double now_s)
{
    struct worker *place = NULL;

    for (int i = 0; i < SOAK_SLOTS; i++) {
        if (is_among(&node->workers[i], child, 1))
            return;
        if (node->workers[i].pid == 0 && place == NULL)
            place = &node->workers[i];
    }
    if (place != NULL)
        *place = (struct worker){.pid = child->pid, .born = child->born, .seen_s = now_s};
}

static void watch_zombies(struct soak *soak, int host, int zombies)
{
    struct node *node = &soak->cast.nodes[host];
    double now_s = soak_now_s(soak);

    if (zombies == 0 || now_s < node->busy_s) {
        node->zombie_s = 0;
    } else if (node->zombie_s == 0) {
        node->zombie_s = now_s;
    } else if (now_s - node->zombie_s > ZOMBIE_S) {
        report_alarm(soak, "agent %d has left %d zombies for %d s", host, zombies, ZOMBIE_S);
        node->zombie_s = now_s;
    }
}

/* Who is there now, compared with who was: only those that a fault concerned may be gone. */
static void watch_workers(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];
    struct procfs_child now[SOAK_SLOTS + 2];
    double now_s = soak_now_s(soak);
    int zombies = 0;
    int count = procfs_children(node->agent->pid, "ctworker", now, SOAK_SLOTS + 2, &zombies);

    for (int i = 0; i < SOAK_SLOTS; i++) {
        struct worker *was = &node->workers[i];
        if (was->pid == 0 || is_among(was, now, count))
            continue;
        /* Before its first round has begun it could not say that it lives on, and nothing is lost.
         */
        bool young = now_s - was->seen_s < YOUNG_S;
        if (!young && now_s > was->excused_s && now_s > node->excused_s)
            report_alarm(soak, "worker %d of host %d ended, though no fault concerned it; %s: %s",
                         (int)was->pid, host, node->agent->name, node->agent->last);
        was->pid = 0;
    }
    for (int i = 0; i < count; i++)
        note_worker(node, &now[i], now_s);
    watch_zombies(soak, host, zombies);
}

/* ---- watching ------------------------------------------------------------------------------- */

static void agent_ended(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];

    process_drain(node->agent);
    if (node->leaving && (node->agent->status == 0 || node->agent->status == 128 + SIGTERM))
        report_event(soak, "host %d has left with status %d", host, node->agent->status);
    else if (node->agent->status != 128 + SIGKILL)
        report_alarm(soak, "agent %d ended with status %d: %s", host, node->agent->status,
                     node->agent->last);
    for (int i = 0; i < SOAK_SLOTS; i++)
        if (node->workers[i].pid != 0)
            add_orphan(soak, node->workers[i]);
    memset(node->workers, 0, sizeof node->workers);
    node->leaving = false;
    leaders_forget(soak, host);
}

static void watch_node(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];

    process_drain(node->agent);
    if (process_reap(node->agent)) {
        agent_ended(soak, host);
        return;
    }
    if (!process_runs(node->agent))
        return;
    if (node->leaving && soak_now_s(soak) > node->busy_s) {
        report_alarm(soak, "host %d was asked to leave and is still there: %s", host,
                     node->agent->last);
        node->leaving = node->ending = false;
    }
    watch_workers(soak, host);
}

static void watch_seat(struct soak *soak, struct seat *seat)
{
    struct proc *daemon = seat->daemon;
    bool fenced = seat->fenced_s != 0;

    process_drain(daemon);
    if (process_reap(daemon)) {
        process_drain(daemon);
        if (!seat->killed && !(fenced && daemon->status == FENCED))
            report_alarm(soak, "%s ended with status %d: %s", daemon->name, daemon->status,
                         daemon->last);
        seat->fenced_s = 0;
    } else if (fenced && process_runs(daemon) && soak_now_s(soak) > seat->fenced_s) {
        report_alarm(soak, "%s serves on after another one took over", daemon->name);
        seat->fenced_s += FENCE_S;
    }
}

static void watch_operator(struct soak *soak)
{
    struct proc *desk = &soak->cast.desk;

    process_drain(desk);
    if (process_reap(desk)) {
        process_drain(desk);
        if (desk->status == 0)
            return;
        if (desk->status == REFUSED) /* a node that was to be up has not joined yet */
            report_event(soak, "an order is refused: %s", desk->last);
        else
            report_alarm(soak, "an operator's command ended with status %d: %s", desk->status,
                         desk->last);
        if (soak->cast.ordered >= 0)
            soak->cast.nodes[soak->cast.ordered].leaving =
                soak->cast.nodes[soak->cast.ordered].ending = false;
    } else if (process_runs(desk) && soak_now_s(soak) > soak->cast.order_s) {
        report_alarm(soak, "an operator's command has not ended within %d s: %s", ORDER_S,
                     desk->last);
        soak->cast.order_s += ORDER_S;
    }
}

void cast_watch(struct soak *soak)
{
    watch_operator(soak);
    for (int i = 0; i < SOAK_SEATS; i++)
        watch_seat(soak, &soak->cast.seats[i]);
    for (int i = 0; i < SOAK_HOSTS; i++)
        watch_node(soak, i);
    watch_orphans(soak);
    if (!soak->leaders)
        watch_figures(soak);
}
