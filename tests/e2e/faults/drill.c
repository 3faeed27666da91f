/* See drill.h. */
#include "drill.h"

#include "e2e.h"
#include "nodes/cluster.h"
#include "preload/interpose.h"

#include "base/assert.h"
#include "cluster/job.h"
#include "cluster/relay.h"
#include "cluster/status.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    struct job job;
    int seat;          /* of the newest daemon */
    bool started;      /* a daemon has been */
    char peers[256];   /* "": none */
    char report[8192]; /* the newest */
    char folder[PATH_MAX];
    char sleeper[PATH_MAX]; /* written once: agents look at it while others are started */
} drill;

void drill_enter(void)
{
    e2e_enter();
    memset(&drill, 0, sizeof drill);
    cr_assert_not_null(getcwd(drill.folder, sizeof drill.folder));
    job_init(&drill.job, cluster_hosts(), getenv("TEST_PROGRAMS"), drill.folder);
    (void)snprintf(drill.sleeper, sizeof drill.sleeper, "%s",
                   e2e_script("sleeper", "#!/bin/sh\nat=pid.$CTRUN_GENERATION.$RANK\n"
                                         "echo $$ > $at.new && mv $at.new $at\nexec sleep 600\n"));
}

/* For who looks into a test that fails: TEST_SHOW=1 shows what the programs said. */
static void show(struct proc *proc)
{
    if (proc->pid <= 0 || getenv("TEST_SHOW") == NULL)
        return;
    if (process_runs(proc)) {
        (void)kill(proc->pid, SIGKILL);
        (void)proc_finish(proc, 5);
    }
    (void)fprintf(stderr, "---- pid %d, status %d\n%s", (int)proc->pid, proc->status,
                  ct_buf_str(&proc->text));
}

void drill_leave(void)
{
    for (int i = 0; i < JOB_SLOTS; i++)
        show(&drill.job.agents[i]);
    for (int i = 0; i < JOB_SEATS; i++)
        show(&drill.job.seats[i].daemon);
    job_end(&drill.job);
    relay_stop();
    cluster_down();
    e2e_leave();
}

/* ---- starting ------------------------------------------------------------------------------- */

void drill_start_by(const char *const words[])
{
    drill.job.start_by = words;
}

void drill_programs(const char *folder)
{
    drill.job.programs = folder != NULL ? folder : getenv("TEST_PROGRAMS");
}

struct interpose_page *drill_page(const char *const **ret_env)
{
    static char library[PATH_MAX + 16], page[PATH_MAX + 32], asan[512];
    static const char *const env[] = {library, page, asan, NULL};
    static struct interpose_page empty;
    const char *options = getenv("ASAN_OPTIONS");
    const char *path = e2e_in_folder("interpose");

    (void)snprintf(library, sizeof library, "LD_PRELOAD=%s", proc_program("../tests/interpose.so"));
    (void)snprintf(page, sizeof page, INTERPOSE_PAGE "=%s", path);
    (void)snprintf(asan, sizeof asan, "ASAN_OPTIONS=%s:verify_asan_link_order=0",
                   options != NULL ? options : "");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, &empty, sizeof empty), (ssize_t)sizeof empty);
    void *map = mmap(NULL, sizeof empty, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(map, MAP_FAILED);
    (void)close(fd);
    *ret_env = env;
    return map;
}

struct interpose_page *drill_interpose(void)
{
    static const char *words[5] = {"env"};
    const char *const *env;
    struct interpose_page *page = drill_page(&env);

    memcpy(words + 1, env, 3 * sizeof *env);
    drill_start_by(words);
    return page;
}

/* The name by which a program knows its host; DRILL_HERE has its own. */
static const char *name_of(int host)
{
    static char name[16];

    (void)snprintf(name, sizeof name, "host%d", host);
    return name;
}

static struct proc *start_daemon(int seat, int host, const char *takeover)
{
    const char *const words[] = {takeover, NULL};
    struct job_seat *it = &drill.job.seats[seat];

    drill.seat = seat;
    show(&it->daemon);
    cr_assert_eq(job_start_daemon(&drill.job, seat, host, name_of(host), words), 0);
    cr_assert(job_await_daemon(&drill.job, seat, 10), "the daemon does not listen; it says:\n%s",
              ct_buf_str(&it->daemon.text));
    return &it->daemon;
}

/* Hosts of their own trust each other by a key. */
static void make_key(int host)
{
    if (drill.job.key[0] != '\0' || host == DRILL_HERE)
        return;
    cr_assert(job_make_key(&drill.job, 10));
    drill.job.port = 29400;
}

struct proc *drill_daemon(int host)
{
    make_key(host);
    drill.started = true;
    return start_daemon(drill.seat, host, "--takeover=no");
}

struct proc *drill_takeover(int host, struct proc *ret_old)
{
    struct proc *old = &drill.job.seats[drill.seat].daemon;

    *ret_old = *old;
    *old = (struct proc){0};
    return start_daemon(1 - drill.seat, host, "--takeover=yes");
}

struct proc *drill_peer(int host, int count)
{
    size_t used = 0;

    make_key(host);
    for (int i = 0; drill.job.peers == NULL && i < count; i++)
        used += (size_t)snprintf(drill.peers + used, sizeof drill.peers - used, "%s%s:29400",
                                 i > 0 ? "," : "", cluster_address(i));
    drill.job.peers = drill.peers;
    drill.started = true;
    return start_daemon(host, host, NULL);
}

void drill_ask_peer(int host)
{
    drill.seat = host;
}

const char *drill_peers(void)
{
    return drill.peers;
}

struct proc *drill_node_as(int index, int rank, int host, const struct drill_job *job)
{
    char node_rank[16];
    const char *const own[] = {"--node_rank",
                               node_rank,
                               "--join_timeout=20s",
                               "--grace=2s",
                               "--grow=150ms",
                               "--last_call",
                               job->last_call != NULL ? job->last_call : "5s",
                               NULL};
    struct words options = {0};
    struct job_agent agent = {
        .endpoints = job->endpoints != NULL ? job->endpoints : drill.job.seats[0].endpoint,
        .nodes = job->nodes,
        .lease = job->lease,
        .restarts = job->restarts,
        .workers = CT_MAX(job->workers, 1),
        .options = options.list,
        .program = job->program != NULL ? job->program : drill.sleeper,
    };

    make_key(host);
    (void)snprintf(node_rank, sizeof node_rank, "%d", rank);
    words_append(&options, own);
    words_append(&options, job->options);
    show(&drill.job.agents[index]);
    cr_assert_eq(job_start_agent(&drill.job, index, host, name_of(host), &agent), 0);
    return &drill.job.agents[index];
}

struct proc *drill_node(int index, int host, const struct drill_job *job)
{
    return drill_node_as(index, index, host, job);
}

struct proc *drill_proc(int index)
{
    return &drill.job.agents[index];
}

/* ---- seeing --------------------------------------------------------------------------------- */

static void name_worker(char name[32], int generation, int rank)
{
    (void)snprintf(name, 32, "pid.%d.%d", generation, rank);
}

pid_t drill_worker(int generation, int rank, double seconds)
{
    char name[32];

    name_worker(name, generation, rank);
    return atoi(e2e_wait_file(name, seconds));
}

bool drill_has_worker(int generation, int rank)
{
    char name[32];

    name_worker(name, generation, rank);
    return e2e_exists(name);
}

static const char *ask(const char *what)
{
    static char text[65536];

    (void)status_get(drill.job.seats[drill.seat].socket, what, 500, text, sizeof text);
    return text;
}

const char *drill_status(void)
{
    return ask("/status");
}

double drill_metric(const char *name)
{
    return status_figure(ask("/metrics"), name, -1);
}

const char *drill_report(const char *endpoint)
{
    const struct job_seat *seat = &drill.job.seats[drill.seat];
    char ctrun[PATH_MAX];

    CT_ASSERT(snprintf(ctrun, sizeof ctrun, "%s/ctrun", drill.job.programs) < PATH_MAX);
    const char *const argv[] = {ctrun,
                                "status",
                                "--json",
                                "--rdzv_endpoint",
                                endpoint != NULL ? endpoint : drill.job.seats[0].endpoint,
                                seat->host == DRILL_HERE ? NULL : "--key_file",
                                drill.job.key,
                                NULL};
    struct proc query = {0};

    cr_assert_eq(job_start(&drill.job, &query, "query", seat->host, name_of(seat->host), argv), 0);
    cr_assert_eq(proc_finish(&query, 10), 0, "%s", ct_buf_str(&query.text));
    (void)snprintf(drill.report, sizeof drill.report, "%s", ct_buf_str(&query.text));
    proc_free(&query);
    return drill.report;
}

double drill_reported(const char *name)
{
    char key[64];

    (void)snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(drill.report, key);
    return at != NULL ? strtod(at + strlen(key), NULL) : -1;
}

struct wish {
    const char *name;
    double value;
};

static bool is_granted(void *context)
{
    const struct wish *wish = context;

    return drill_metric(wish->name) == wish->value;
}

void drill_wait_metric(const char *name, double value, double seconds)
{
    struct wish wish = {name, value};
    char what[96];

    (void)snprintf(what, sizeof what, "%s = %g", name, value);
    proc_until(is_granted, &wish, seconds, what);
}

/* ---- doing ---------------------------------------------------------------------------------- */

static bool is_past(void *context)
{
    return proc_now_s() >= *(const double *)context;
}

void drill_pass(double seconds)
{
    double end = proc_now_s() + seconds;

    proc_until(is_past, &end, seconds + 30, "the end of a fault");
}

void drill_signal(struct proc *proc, int signal)
{
    cr_assert_eq(kill(proc->pid, signal), 0);
    if (signal == SIGKILL)
        (void)proc_finish(proc, 5);
}

double drill_ms(double since_s)
{
    return (proc_now_s() - since_s) * 1e3;
}
