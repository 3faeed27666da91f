/* A trial as it is seen from outside: lines, ends, steps. See leaders.h. */
#include "leaders.h"

#include "base/assert.h"
#include "base/clock.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TURN_MS = 2 };

double watch_wall_s(void)
{
    return (double)ct_clock_wall_ns(&ct_clock_system) * 1e-9;
}

void trial_trouble(struct trial *trial, const char *format, ...)
{
    va_list args;

    if (trial->result.trouble[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(trial->result.trouble, sizeof trial->result.trouble, format, args);
    va_end(args);
}

/* ---- what agents say ------------------------------------------------------------------------ */

static void begin_round(struct trial *trial, struct member *member, uint64_t generation)
{
    member->round = generation;
    member->spare = false;
    member->fenced_s = 0;
    if (generation > trial->generation)
        trial->generation = generation;
}

/* It is cut off, or was, or stood still, and others have gone on without it. Who only stood still
 * leads on if nobody else has led meanwhile. */
static bool may_not_publish(const struct trial *trial, const struct member *member)
{
    return member->fenced_s != 0 && process_now_s() > member->fenced_s &&
           (trial->undone_s == 0 || trial->renewed);
}

void watch_on_line(void *context, struct proc *proc, const char *text)
{
    struct trial *trial = context;
    struct member *member = &trial->members[proc - trial->job.agents];
    const struct agent_line line = agent_log_parse(text);

    switch (line.said) {
    case AGENT_LEADS:
        member->led_s = process_now_s();
        if (trial->undone_s != 0) /* all hear it again */
            member->fenced_s = 0;
        break;
    case AGENT_YIELDS:
        member->led_s = 0;
        break;
    case AGENT_HOLDERS:
        trial->holders = line.count;
        break;
    case AGENT_PUBLISHES:
        trial->result.twice += !agent_rosters_add(&trial->rosters, &line);
        break;
    case AGENT_SAVES:
        trial->result.minority += may_not_publish(trial, member);
        break;
    case AGENT_BEGINS:
        begin_round(trial, member, line.generation);
        break;
    case AGENT_RESTARTS:
        trial->restarts = CT_MAX(trial->restarts, line.count);
        break;
    case AGENT_SPARES:
        member->spare = true;
        break;
    case AGENT_OTHER:
        break;
    }
}

int watch_leader(const struct trial *trial)
{
    int found = -1;

    for (int i = 0; i < trial->setting->nodes; i++) {
        const struct member *member = &trial->members[i];
        if (member->led_s != 0 && process_runs(member->agent) &&
            (found < 0 || member->led_s > trial->members[found].led_s))
            found = i;
    }
    return found;
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void note_end(struct trial *trial, int host)
{
    struct member *member = &trial->members[host];

    member->led_s = 0;
    member->spare = false;
    member->round = 0;
    if (trial->ending || (member->killed && member->agent->status == 128 + SIGKILL))
        return;
    trial->result.early++;
    trial_trouble(trial, "agent %d ended by itself with status %d: %s", host, member->agent->status,
                  member->agent->last);
}

struct procfs_child watch_worker(const struct trial *trial, int host)
{
    const struct proc *agent = trial->members[host].agent;
    struct procfs_child child = {0};

    if (!process_runs(agent) ||
        procfs_children(agent->pid, program_comm(trial->program), &child, 1, NULL) == 0)
        child.pid = 0;
    return child;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void take_step(struct trial *trial, uint64_t step, double wall_s)
{
    bool after = trial->wall_s != 0 && wall_s > trial->wall_s;
    double since_s = trial->old_wall_s > trial->wall_s ? trial->old_wall_s : trial->wall_s;

    trial->step = step;
    if (after && trial->renewed && trial->next_step == 0) {
        trial->next_step = step;
        trial->result.next_ms = (wall_s - since_s) * 1e3;
        trial->result.repeated = trial->old_step >= step ? (int)(trial->old_step + 1 - step) : 0;
    }
    if (trial->next_step != 0)
        return;
    if (after && wall_s - since_s > trial->longest_s)
        trial->longest_s = wall_s - since_s;
    if (step > trial->old_step)
        trial->old_step = step;
    trial->old_wall_s = wall_s;
}

/* Has a member that goes on begun a round since the fault? Steps that are done by then are of older
 * ones: it says so before its first step. */
static bool is_renewed(const struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes && trial->wall_s != 0; i++)
        if (!trial->members[i].hit && trial->members[i].round > trial->before)
            return true;
    return false;
}

void watch_turn(struct trial *trial)
{
    uint64_t step;
    double wall_s;

    for (int i = 0; i < trial->setting->nodes; i++) {
        struct proc *agent = trial->members[i].agent;
        process_drain(agent);
        if (process_reap(agent)) {
            process_drain(agent);
            note_end(trial, i);
        }
    }
    while (step_tail_next(&trial->tail, &step, &wall_s))
        take_step(trial, step, wall_s);
    trial->renewed = trial->renewed || is_renewed(trial);
    timeline_run(&trial->later, trial);
    (void)poll(NULL, 0, TURN_MS);
}

bool watch_until(struct trial *trial, bool (*condition)(struct trial *), double seconds)
{
    double end_s = process_now_s() + seconds;

    while (!condition(trial)) {
        if (process_now_s() > end_s)
            return false;
        watch_turn(trial);
    }
    return true;
}
