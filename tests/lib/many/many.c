/* See many.h. */
#include "many/many.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "cluster/job.h"
#include "cluster/procfs.h"
#include "cluster/step_tail.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PORT = 29400,
    BATCH_MOST = 512,
    STEPS = 120,
    EVAL_STEP = 30,
    CENSUS_STEP = 31, /* an evaluation may need more connections than a step */
    TURN_MS = 2,
    WORD_BYTES = 128,
    METRICS_BYTES = 4 << 20,
};

struct run {
    const struct many_setting *setting;
    const struct many_shape *shape;
    struct many_result *result;
    struct job job;
    struct step_tail tail;
    double began_s, began_wall_s;
    uint64_t step; /* the newest */
    char error[MANY_TROUBLE], failed[MANY_TROUBLE];
};

static double wall_s(void)
{
    return (double)ct_clock_wall_ns(&ct_clock_system) * 1e-9;
}

static void note(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct run *run, const char *format, ...)
{
    va_list args;

    if (run->result->trouble[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(run->result->trouble, MANY_TROUBLE, format, args);
    va_end(args);
}

/* ---- starting ------------------------------------------------------------------------------- */

/* Its ranks are started by the site's mpirun, without an agent. */
static bool is_mpi(const struct run *run)
{
    return strcmp(run->shape->backend, "mpi") == 0;
}

/* Of the training; what follows LAUNCH is for agents. */
static const char *const *options_of(const struct run *run, int node)
{
    enum { LAUNCH = 6 };
    static char words[9][WORD_BYTES];
    static const char *list[64];
    int world = run->shape->nodes * run->shape->ranks;
    const char *folder = run->result->folder;
    size_t count = 0;

    (void)snprintf(words[0], WORD_BYTES, "--log.dir=%s/log", folder);
    (void)snprintf(words[1], WORD_BYTES, "--batch.global=%d", BATCH_MOST / world * world);
    (void)snprintf(words[2], WORD_BYTES, "--train.steps=%d", STEPS);
    (void)snprintf(words[3], WORD_BYTES, "--eval.every=%d", EVAL_STEP);
    (void)snprintf(words[4], WORD_BYTES, "--parallel.backend=%s", run->shape->backend);
    (void)snprintf(words[5], WORD_BYTES, "--parallel.timeout=%.0f", run->setting->seconds);
    (void)snprintf(words[6], WORD_BYTES, "--join_timeout=%.0f", run->setting->seconds);
    /* Its ranks stand still during the census, long on a busy machine. */
    (void)snprintf(words[7], WORD_BYTES, "--hang_timeout=%.0f", run->setting->seconds);
    (void)snprintf(words[8], WORD_BYTES, "--node_rank=%d", node);
    size_t used = CT_COUNT(words) - (run->shape->nodes == 1);
    for (size_t i = 0; i < (is_mpi(run) ? LAUNCH : used); i++)
        list[count++] = words[i];
    list[count++] = "--optim.lr=0.03";
    list[count++] = "--log.every=1";
    list[count++] = "--log.tensorboard=false";
    list[count++] = "--checkpoint.dir=";
    for (size_t i = 0; run->setting->options != NULL && run->setting->options[i] != NULL; i++) {
        CT_ASSERT(count + 1 < CT_COUNT(list));
        list[count++] = run->setting->options[i];
    }
    list[count] = NULL;
    return list;
}

/* ctrun's sentence, and the last line of what lies behind it. */
static void take_line(void *context, struct proc *proc, const char *line)
{
    struct run *run = context;

    (void)proc;
    if (run->error[0] == '\0' && strstr(line, "error: ") != NULL)
        (void)ct_str_copy(run->error, sizeof run->error, strstr(line, "error: "));
    if (run->failed[0] == '\0' && strstr(line, "job failed: ") != NULL)
        (void)ct_str_copy(run->failed, sizeof run->failed, strstr(line, "job failed: "));
    else if (run->error[0] == '\0' && ct_starts_with(line, "  | "))
        (void)ct_str_copy(run->error, sizeof run->error, line + 4);
}

static bool start_mpi(struct run *run)
{
    char ranks[16], ctworker[PATH_MAX];
    const char *const front[] = {
        "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", ranks, ctworker, NULL};
    struct words words = {0};

    (void)snprintf(ranks, sizeof ranks, "%d", run->shape->ranks);
    (void)snprintf(ctworker, sizeof ctworker, "%s/ctworker", run->setting->programs);
    words_append(&words, front);
    words_append(&words, options_of(run, 0));
    words_add(&words, run->setting->config);
    return run->shape->nodes == 1 &&
           job_start(&run->job, &run->job.agents[0], "mpirun", 0, "host0", words.list) == 0;
}

static bool start(struct run *run)
{
    static const char *env[] = {"CTRUN_TUNING=none", NULL, NULL};
    static char runtime[WORD_BYTES];
    char endpoint[JOB_ENDPOINT], nodes[16], name[16];
    struct job_agent agent = {.endpoints = run->shape->nodes > 1 ? endpoint : NULL,
                              .nodes = nodes,
                              .lease = run->setting->lease,
                              .workers = run->shape->ranks,
                              .program = run->setting->config};

    if (run->setting->hosts->spaces && !job_make_key(&run->job, 30))
        return false;
    (void)snprintf(runtime, sizeof runtime, "XDG_RUNTIME_DIR=%s", run->result->folder);
    env[1] = runtime;
    run->job.logs = true;
    run->job.how = (struct process_how){
        .cwd = run->result->folder, .env = env, .on_line = take_line, .context = run};
    (void)snprintf(endpoint, sizeof endpoint, "%s:%d", hosts_address(run->setting->hosts, 0), PORT);
    (void)snprintf(nodes, sizeof nodes, "%d", run->shape->nodes);
    run->began_s = process_now_s();
    run->began_wall_s = wall_s();
    if (is_mpi(run))
        return start_mpi(run);
    for (int i = 0; i < run->shape->nodes; i++) {
        (void)snprintf(name, sizeof name, "host%d", i);
        agent.options = options_of(run, i);
        if (job_start_agent(&run->job, i, i, name, &agent) != 0)
            return false;
    }
    return true;
}

/* ---- while it runs -------------------------------------------------------------------------- */

static void count(struct many_figure *figure, double value)
{
    figure->mean += value; /* the sum, until all are counted */
    figure->most = CT_MAX(figure->most, value);
}

/* One node's ranks; its first one stands for the network that all of them are in. */
static void look_at_node(struct run *run, int node)
{
    static struct procfs_child ranks[MANY_RANKS];
    struct many_result *result = run->result;
    struct procfs_network network = {0};
    int found =
        procfs_children(run->job.agents[node].pid, "ctworker", ranks, run->shape->ranks, NULL);

    if (found == 0 || !procfs_network_read(ranks[0].pid, &network))
        return;
    for (int i = 0; i < found; i++) {
        long connections = procfs_connections(ranks[i].pid, &network);
        long descriptors = procfs_descriptors(ranks[i].pid);
        double kib = (double)procfs_proportional_bytes(ranks[i].pid) / 1024;
        if (connections < 0 || !procfs_lives(ranks[i].pid, ranks[i].born) || kib <= 0)
            continue;
        count(&result->connections, (double)connections);
        count(&result->descriptors, (double)descriptors);
        count(&result->kib, kib);
        result->looked_at++;
    }
    procfs_network_free(&network);
}

/* One rank stands still meanwhile, and so does the training: it may not end before all are seen. */
static void look_at_all(struct run *run)
{
    struct procfs_child first;
    struct many_result *result = run->result;
    struct many_figure *const figures[] = {&result->connections, &result->descriptors,
                                           &result->kib};

    if (procfs_children(run->job.agents[0].pid, "ctworker", &first, 1, NULL) == 0)
        return;
    (void)kill(first.pid, SIGSTOP);
    for (int i = 0; i < run->shape->nodes; i++)
        look_at_node(run, i);
    (void)kill(first.pid, SIGCONT);
    for (size_t i = 0; i < CT_COUNT(figures) && result->looked_at > 0; i++)
        figures[i]->mean /= result->looked_at;
}

static void follow_steps(struct run *run)
{
    uint64_t before = run->step, step;
    double end_s;

    while (step_tail_next(&run->tail, &step, &end_s)) {
        if (run->step == 0)
            run->result->step1_s = end_s - run->began_wall_s;
        run->step = step;
    }
    if (before < CENSUS_STEP && run->step >= CENSUS_STEP)
        look_at_all(run);
}

static void watch(struct run *run)
{
    int running = run->shape->nodes;

    while (running > 0) {
        running = 0;
        for (int i = 0; i < run->shape->nodes; i++) {
            struct proc *agent = &run->job.agents[i];
            process_drain(agent);
            if (process_reap(agent))
                process_drain(agent);
            running += process_runs(agent);
        }
        follow_steps(run);
        if (process_now_s() > run->began_s + run->setting->seconds) {
            note(run, "after %.0f s %d agents have not ended, the newest step is %d: %s",
                 run->setting->seconds, running, (int)run->step, run->job.agents[0].last);
            return;
        }
        (void)poll(NULL, 0, TURN_MS);
    }
    run->result->whole_s = process_now_s() - run->began_s;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* That of the last evaluation in the metrics, -1: there is none. */
static double read_accuracy(const struct run *run)
{
    static const char label[] = "\"accuracy\":";
    struct ct_error err = {0};
    struct ct_buf text;
    double accuracy = -1;

    ct_buf_init(&text, METRICS_BYTES);
    if (ct_fs_read(run->tail.path, METRICS_BYTES, &text, &err) == 0)
        for (const char *at = ct_buf_str(&text); (at = strstr(at, label)) != NULL;) {
            at += strlen(label);
            accuracy = strtod(at, NULL);
        }
    ct_buf_deinit(&text);
    return accuracy;
}

static void judge(struct run *run)
{
    struct many_result *result = run->result;
    int world = run->shape->nodes * run->shape->ranks;

    for (int i = 0; i < run->shape->nodes; i++)
        if (run->job.agents[i].status != 0)
            note(run, "agent %d ended with %d: %s%s%s", i, run->job.agents[i].status, run->failed,
                 run->failed[0] != '\0' && run->error[0] != '\0' ? ": " : "", run->error);
    result->accuracy = read_accuracy(run);
    if (result->accuracy < MANY_ACCURACY)
        note(run, "the accuracy is %.2f %% after step %d, not %.0f %%", 100 * result->accuracy,
             (int)run->step, 100 * MANY_ACCURACY);
    if (result->looked_at != world)
        note(run, "%d of %d ranks were looked at", result->looked_at, world);
}

bool many_run(const struct many_setting *setting, const struct many_shape *shape,
              struct many_result *ret_result)
{
    struct run *run = calloc(1, sizeof *run);
    char metrics[PATH_MAX];

    CT_ASSERT(run != NULL && shape->nodes * shape->ranks <= MANY_RANKS);
    *ret_result = (struct many_result){.folder = "/tmp/ctrun-many-XXXXXX", .accuracy = -1};
    run->setting = setting;
    run->shape = shape;
    run->result = ret_result;
    if (mkdtemp(ret_result->folder) == NULL) {
        note(run, "there is no folder %s", ret_result->folder);
        free(run);
        return false;
    }
    (void)snprintf(metrics, sizeof metrics, "%s/log/metrics.jsonl", ret_result->folder);
    step_tail_init(&run->tail, metrics);
    job_init(&run->job, setting->hosts, setting->programs, ret_result->folder);
    if (start(run))
        watch(run);
    else
        note(run, "the agents cannot be started");
    job_end(&run->job);
    if (ret_result->trouble[0] == '\0')
        judge(run);
    step_tail_deinit(&run->tail);
    if (ret_result->trouble[0] == '\0' && !setting->keep) {
        (void)ct_fs_remove_tree(ret_result->folder);
        ret_result->folder[0] = '\0';
    }
    free(run);
    return ret_result->trouble[0] == '\0';
}
