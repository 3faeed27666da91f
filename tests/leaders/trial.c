/* One cell of the table, from the start of its job to the end. See leaders.h. */
#include "leaders.h"

#include "base/fs.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PORT = 29400,
    START_S = 300, /* until all are at work: many ranks share few cores */
    NEXT_S = 30,   /* beside the lease, until the next step ... */
    SLOW_S = 90,   /* ... of PyTorch, which is started again */
    BACK_S = 60,   /* until who returns is at work */
    END_S = 60,
    WARM_STEPS = 60, /* before the fault */
    MORE_STEPS = 20, /* after it */
    HOLDERS_MOST = 5,
};

int trial_min(int nodes)
{
    return nodes <= 3 ? 1 : 2;
}

/* ---- starting ------------------------------------------------------------------------------- */

bool trial_start_agent(struct trial *trial, int host)
{
    const char *const *more;
    const char *program = program_words(trial, &more);
    char endpoint[64], nodes[32], name[16], rank[16];
    const char *const own[] = {
        "--rdzv_id=table", "--node_rank",       rank, "--grace=2s", "--join_timeout=180s",
        "--grow=150ms",    "--log.level=debug", NULL};
    /* The first round waits for all, one without survivors for those that are left. */
    struct words options = {0};
    const struct job_agent agent = {.endpoints = endpoint,
                                    .nodes = nodes,
                                    .lease = trial->setting->lease,
                                    .restarts = 100,
                                    .workers = 1,
                                    .options = options.list,
                                    .program = program};

    (void)snprintf(endpoint, sizeof endpoint, "%s:%d", hosts_address(trial->setting->hosts, 0),
                   PORT);
    (void)snprintf(nodes, sizeof nodes, "%d:%d", trial_min(trial->setting->nodes),
                   trial->setting->nodes);
    (void)snprintf(name, sizeof name, "host%d", host);
    (void)snprintf(rank, sizeof rank, "%d", host);
    words_append(&options, own);
    words_add(&options, trial->before == 0 ? "--last_call=20s" : "--last_call=300ms");
    words_append(&options, more);
    trial->members[host].killed = false;
    return job_start_agent(&trial->job, host, host, name, &agent) == 0;
}

static bool open_trial(struct trial *trial)
{
    char metrics[PATH_MAX];

    (void)snprintf(trial->folder, sizeof trial->folder, "/tmp/ctrun-leaders-XXXXXX");
    if (mkdtemp(trial->folder) == NULL)
        return false;
    job_init(&trial->job, trial->setting->hosts, trial->setting->programs, trial->folder);
    for (int i = 0; i < trial->setting->nodes; i++)
        trial->members[i].agent = &trial->job.agents[i];
    program_metrics(trial, metrics);
    step_tail_init(&trial->tail, metrics);
    if (!job_make_key(&trial->job, 30))
        return false;
    trial->job.logs = true;
    trial->job.how = (struct process_how){.cwd = trial->folder,
                                          .env = program_environment(trial),
                                          .on_line = watch_on_line,
                                          .context = trial};
    for (int i = 0; i < trial->setting->nodes; i++)
        if (!trial_start_agent(trial, i))
            return false;
    return true;
}

/* ---- conditions ----------------------------------------------------------------------------- */

static uint64_t holders_of(int nodes)
{
    if (nodes > 4)
        return HOLDERS_MOST;
    return nodes > 2 ? 3 : 2;
}

/* All are in one round and the record is held by as many as will be ... */
static bool are_all_in(const struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++)
        if (trial->members[i].round == 0 || trial->members[i].round != trial->generation)
            return false;
    return trial->holders == holders_of(trial->setting->nodes) && trial->step >= WARM_STEPS;
}

/* ... for a second. */
static bool is_at_work(struct trial *trial)
{
    if (!are_all_in(trial))
        trial->settled_s = 0;
    else if (trial->settled_s == 0)
        trial->settled_s = process_now_s();
    return trial->settled_s != 0 && process_now_s() > trial->settled_s + 1;
}

/* A fault that ends no round is over when steps follow its undoing. */
static bool has_next(struct trial *trial)
{
    return trial->next_step != 0 ||
           (trial->undone_s != 0 && !trial->renewed && process_now_s() > trial->undone_s + 3 &&
            trial->old_wall_s > trial->wall_s + trial->longest_s + 1);
}

static bool are_back(struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++) {
        const struct member *member = &trial->members[i];
        if (!member->spare && (member->round == 0 || member->round != trial->generation))
            return false;
    }
    return trial->undone_s != 0;
}

static bool have_steps(struct trial *trial)
{
    return trial->step >= trial->mark + MORE_STEPS;
}

static bool are_over(struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++)
        if (!trial->members[i].hit && process_runs(trial->members[i].agent))
            return false;
    return true;
}

/* ---- what comes after the fault ------------------------------------------------------------- */

/* Survivors, and those of their workers that are what they were. */
static void count_kept(struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++) {
        const struct member *member = &trial->members[i];
        if (member->hit)
            continue;
        trial->result.survivors++;
        trial->result.kept += procfs_lives(member->worker.pid, member->worker.born);
    }
}

/* What an agent that goes on said last. */
static const char *last_words(const struct trial *trial)
{
    for (int i = 0; i < trial->setting->nodes; i++)
        if (!trial->members[i].hit)
            return trial->members[i].agent->last;
    return "";
}

static void follow(struct trial *trial)
{
    struct result *result = &trial->result;
    uint64_t restarts = trial->restarts, lease_ms = 0;
    int next_s = trial->program == PROGRAM_SCRIPT ? SLOW_S : NEXT_S;

    (void)ct_parse_duration_ms(trial->setting->lease, &lease_ms);
    next_s += (int)(lease_ms / 1000);
    if (!watch_until(trial, has_next, next_s)) {
        trial_trouble(trial, "no step for %d s after the fault: %s", next_s, last_words(trial));
        return;
    }
    if (trial->next_step == 0)
        result->next_ms = trial->longest_s * 1e3;
    if (fault_is_undone(trial->fault) && trial->renewed) {
        if (!watch_until(trial, are_back, BACK_S))
            trial_trouble(trial, "not all are back %d s after the fault's end", BACK_S);
        else
            result->back_ms = (process_now_s() - trial->undone_s) * 1e3;
    }
    trial->mark = trial->step;
    if (!watch_until(trial, have_steps, NEXT_S))
        trial_trouble(trial, "no steps followed: %s", last_words(trial));
    count_kept(trial);
    result->rounds = (int)(trial->generation - trial->before);
    result->restarts = (int)(trial->restarts - restarts);
}

/* One node stops the job; who goes on ends with it. */
static void finish(struct trial *trial)
{
    trial->ending = true;
    for (int i = 0; i < trial->setting->nodes; i++) {
        if (trial->members[i].hit || !process_runs(trial->members[i].agent))
            continue;
        (void)kill(trial->members[i].agent->pid, SIGINT);
        break;
    }
    if (!watch_until(trial, are_over, END_S))
        trial_trouble(trial, "not all have ended %d s after SIGINT: %s", END_S, last_words(trial));
    for (int i = 0; i < trial->setting->nodes; i++)
        if (!trial->members[i].hit && trial->members[i].agent->status != 128 + SIGINT)
            trial_trouble(trial, "agent %d ended with status %d: %s", i,
                          trial->members[i].agent->status, trial->members[i].agent->last);
}

/* What the clients of the store recorded, workers that were killed too. */
static void check_history(struct trial *trial)
{
    struct history history = {0};
    char text[HISTORY_TEXT];

    if (!history_read(&history, trial->folder, text))
        trial_trouble(trial, "%s", text);
    else if (!history_check(&history, &trial->result.history))
        trial_trouble(trial, "not linearizable: %s", trial->result.history.text);
    history_deinit(&history);
}

static void run(struct trial *trial)
{
    if (!open_trial(trial)) {
        trial_trouble(trial, "the job cannot be started");
        return;
    }
    if (!watch_until(trial, is_at_work, START_S)) {
        trial_trouble(trial, "not at work after %d s: %d nodes, %d holders, step %d: %s", START_S,
                      trial->setting->nodes, (int)trial->holders, (int)trial->step,
                      trial->job.agents[0].last);
        return;
    }
    for (int i = 0; i < trial->setting->nodes; i++)
        trial->members[i].worker = watch_worker(trial, i);
    if (!fault_begin(trial))
        return;
    follow(trial);
    finish(trial);
}

struct result trial_run(const struct setting *setting, enum fault fault, enum program program)
{
    struct trial *trial = calloc(1, sizeof *trial);
    struct result result = {.trouble = "no memory"};

    if (trial == NULL)
        return result;
    trial->setting = setting;
    trial->fault = fault;
    trial->program = program;
    trial->result.back_ms = -1;
    run(trial);
    job_end(&trial->job);
    if (program == PROGRAM_STORE)
        check_history(trial);
    (void)hosts_split(setting->hosts, 0);
    step_tail_deinit(&trial->tail);
    if (trial->result.twice + trial->result.minority > 0)
        trial_trouble(trial, "a generation was published twice, or a minority published");
    if (trial->result.trouble[0] != '\0')
        (void)fprintf(stderr, "leaders: %d nodes, %s, %s: %s\n    the logs are in %s\n",
                      setting->nodes, fault_option(fault), program_option(program),
                      trial->result.trouble, trial->folder);
    else if (!setting->keep)
        (void)ct_fs_remove_tree(trial->folder);
    result = trial->result;
    free(trial);
    return result;
}
