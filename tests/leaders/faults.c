/* Who is concerned by a fault of the table, and how it is done and undone. See leaders.h. */
#include "leaders.h"

#include "base/assert.h"

#include <signal.h>
#include <string.h>

enum how { KILL, CUT, STOP, RESET };
enum who {
    LEADER,
    TWO,         /* the leader and another */
    OTHERS,      /* two that do not lead */
    LAST,        /* the last that does not lead */
    LAST_FOUR,   /* the last four such */
    MINORITY,    /* the leader and as many others as fewer than half of the holders are */
    ALL_BUT_MIN, /* the leader and all others but MIN */
};

enum { MOST_HOLDERS = 5 };

static const double FENCE_S = 0.2;

static const struct {
    const char *option, *words;
    enum how how;
    enum who who;
    int undone_ms, least;
} faults[FAULT_COUNT] = {
#define FAULT(NAME, option, words, how, who, undone_ms, least) \
    {option, words, how, who, undone_ms, least},
#include "faults.def"
#undef FAULT
};

const char *fault_option(enum fault fault)
{
    return faults[fault].option;
}

const char *fault_words(enum fault fault)
{
    return faults[fault].words;
}

bool fault_suits(enum fault fault, int nodes)
{
    return nodes >= faults[fault].least;
}

bool fault_is_undone(enum fault fault)
{
    return faults[fault].undone_ms >= 0;
}

/* ---- who ------------------------------------------------------------------------------------ */

static uint64_t with_others(const struct trial *trial, int leader, int count)
{
    uint64_t hosts = 0;

    for (int i = 0; i < trial->setting->nodes && count > 0; i++) {
        if (i == leader)
            continue;
        hosts |= 1ull << i;
        count--;
    }
    return hosts;
}

static uint64_t last_others(const struct trial *trial, int leader, int count)
{
    uint64_t hosts = 0;

    for (int i = trial->setting->nodes - 1; i >= 0 && count > 0; i--) {
        if (i == leader)
            continue;
        hosts |= 1ull << i;
        count--;
    }
    return hosts;
}

static uint64_t choose(const struct trial *trial, int leader)
{
    int nodes = trial->setting->nodes, holders = CT_MIN(nodes, MOST_HOLDERS);
    uint64_t first = 1ull << leader;

    switch (faults[trial->fault].who) {
    case LEADER:
        return first;
    case TWO:
        return first | with_others(trial, leader, 1);
    case OTHERS:
        return with_others(trial, leader, 2);
    case LAST:
        return last_others(trial, leader, 1);
    case LAST_FOUR:
        return last_others(trial, leader, 4);
    case MINORITY:
        return first | with_others(trial, leader, (holders - 1) / 2 - (holders > 2));
    case ALL_BUT_MIN:
        return first | with_others(trial, leader, nodes - trial_min(nodes) - 1);
    }
    return 0;
}

/* Of two nodes that do not hear each other the one that led goes on. */
static uint64_t losers(const struct trial *trial, uint64_t hosts)
{
    bool pair = trial->setting->nodes == 2 && faults[trial->fault].how == CUT;

    return pair ? ~hosts & 3 : hosts;
}

/* ---- what ----------------------------------------------------------------------------------- */

static void strike(struct trial *trial, uint64_t hosts)
{
    for (int i = 0; i < trial->setting->nodes; i++) {
        struct member *member = &trial->members[i];
        if ((hosts >> i & 1) == 0)
            continue;
        if (faults[trial->fault].how == RESET && !hosts_reset(trial->setting->hosts, i, 0))
            trial_trouble(trial, "the connections of host %d cannot be broken", i);
        else if (faults[trial->fault].how == KILL)
            member->killed = kill(member->agent->pid, SIGKILL) == 0;
        else if (faults[trial->fault].how == STOP)
            (void)kill(member->agent->pid, SIGSTOP);
    }
}

static void undo_stop(void *context, int host)
{
    struct trial *trial = context;

    trial->undone_s = process_now_s();
    (void)kill(trial->members[host].agent->pid, SIGCONT);
}

static void undo_kill(void *context, int host)
{
    struct trial *trial = context;

    if (process_runs(trial->members[host].agent)) { /* its end is not collected yet */
        timeline_add(&trial->later, 0.002, undo_kill, host);
        return;
    }
    trial->undone_s = process_now_s();
    if (!trial_start_agent(trial, host))
        trial_trouble(trial, "agent %d cannot be started again", host);
}

static void undo_cut(void *context, int host)
{
    struct trial *trial = context;

    (void)host;
    trial->undone_s = process_now_s();
    if (!hosts_split(trial->setting->hosts, 0))
        trial_trouble(trial, "the hosts cannot be joined again");
}

static void undo_reset(void *context, int host)
{
    struct trial *trial = context;

    trial->undone_s = process_now_s();
    if (!hosts_restore(trial->setting->hosts, host))
        trial_trouble(trial, "the connections of host %d break still", host);
}

static void plan_undo(struct trial *trial, uint64_t hosts)
{
    static void (*const undo[])(void *, int) = {
        [KILL] = undo_kill, [CUT] = undo_cut, [STOP] = undo_stop, [RESET] = undo_reset};
    double seconds = faults[trial->fault].undone_ms / 1e3;

    for (int i = 0; seconds >= 0 && i < trial->setting->nodes; i++)
        if ((hosts >> i & 1) != 0)
            timeline_add(&trial->later, seconds, undo[faults[trial->fault].how], i);
}

/* What a majority has confirmed before may still be said; a killed agent's words are older. */
static void fence(struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++)
        if (trial->members[i].hit && faults[trial->fault].how != KILL)
            trial->members[i].fenced_s = process_now_s() + FENCE_S;
}

bool fault_begin(struct trial *trial)
{
    int leader = watch_leader(trial);

    if (leader < 0) {
        trial_trouble(trial, "nobody leads");
        return false;
    }
    uint64_t hosts = choose(trial, leader), lost = losers(trial, hosts);
    for (int i = 0; i < trial->setting->nodes; i++)
        trial->members[i].hit = (lost >> i & 1) != 0;
    trial->before = trial->generation;
    trial->wall_s = watch_wall_s();
    if (faults[trial->fault].how != CUT)
        strike(trial, hosts);
    else if (!hosts_split(trial->setting->hosts, hosts))
        trial_trouble(trial, "the hosts cannot be cut apart");
    fence(trial);
    plan_undo(trial, hosts);
    return trial->result.trouble[0] == '\0';
}
