/* See drill.h. */
#include "drill.h"

#include "cluster.h"
#include "e2e.h"
#include "preload/interpose.h"
#include "relay.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENDPOINT_BYTES = 64 };

static struct {
    struct proc daemon;
    struct proc nodes[DRILL_NODES];
    char endpoint[ENDPOINT_BYTES]; /* "" before the first start of the daemon */
    int host;                      /* of the daemon */
    char report[8192];             /* the newest */
    char status[32];               /* where the newest one tells its state */
    int daemons;                   /* that were started */
    char key[PATH_MAX];
    const char *const *start_by; /* NULL: nothing */
    char sleeper[PATH_MAX];      /* written once: agents look at it while others are started */
} drill;

void drill_enter(void)
{
    e2e_enter();
    memset(&drill, 0, sizeof drill);
    (void)snprintf(drill.sleeper, sizeof drill.sleeper, "%s",
                   e2e_script("sleeper", "#!/bin/sh\nat=pid.$CTRUN_GENERATION.$RANK\n"
                                         "echo $$ > $at.new && mv $at.new $at\nexec sleep 600\n"));
}

/* For who looks into a test that fails: TEST_SHOW=1 shows what the programs said. */
static void show(struct proc *proc)
{
    if (getenv("TEST_SHOW") == NULL)
        return;
    if (proc->status < 0) {
        (void)kill(proc->pid, SIGKILL);
        (void)proc_finish(proc, 5);
    }
    (void)fprintf(stderr, "---- pid %d, status %d\n%s", (int)proc->pid, proc->status,
                  ct_buf_str(&proc->text));
}

/* A slot that was never used has no descriptor to close. */
static void end(struct proc *proc)
{
    if (proc->pid <= 0)
        return;
    show(proc);
    proc_free(proc);
}

void drill_leave(void)
{
    for (int i = 0; i < DRILL_NODES; i++)
        end(&drill.nodes[i]);
    end(&drill.daemon);
    relay_stop();
    cluster_down();
    e2e_leave();
}

/* ---- starting ------------------------------------------------------------------------------- */

enum { WORDS_MAX = 48 };

/* Words, with NULL at their end. */
struct words {
    const char *list[WORDS_MAX];
    size_t count;
};

static void add(struct words *words, const char *const list[])
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        cr_assert_lt(words->count + 1, CT_COUNT(words->list));
        words->list[words->count++] = list[i];
    }
}

void drill_start_by(const char *const words[])
{
    drill.start_by = words;
}

struct interpose_page *drill_interpose(void)
{
    static char library[PATH_MAX + 16], page[PATH_MAX + 32], asan[512];
    static const char *const words[] = {"env", library, page, asan, NULL};
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
    drill_start_by(words);
    return map;
}

static void start(struct proc *proc, int host, const struct words *words)
{
    struct words all = {0};

    end(proc);
    add(&all, drill.start_by);
    add(&all, words->list);
    if (host == DRILL_HERE)
        proc_start(proc, all.list, NULL);
    else
        cluster_start(proc, host, all.list);
}

static void make_key(void)
{
    struct proc run;

    if (drill.key[0] != '\0')
        return;
    (void)snprintf(drill.key, sizeof drill.key, "%s", e2e_in_folder("key"));
    cr_assert_eq(e2e_run(&run, "key", "new", drill.key, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static const char *address_of(int host)
{
    return host == DRILL_HERE ? "127.0.0.1" : cluster_address(host);
}

/* Start a daemon at `endpoint`, and put there where it listens. */
static void start_daemon(int host, char endpoint[ENDPOINT_BYTES], bool takeover)
{
    const char *port_file = e2e_in_folder("port");
    char status[PATH_MAX];
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                endpoint,
                                "--port_file",
                                port_file,
                                "--status",
                                status,
                                "--journal",
                                e2e_in_folder("journal"),
                                takeover ? "--takeover=yes" : "--takeover=no",
                                host == DRILL_HERE ? NULL : "--key_file",
                                drill.key,
                                NULL};
    struct words words = {0};

    (void)snprintf(drill.status, sizeof drill.status, "status.%d", ++drill.daemons);
    (void)snprintf(status, sizeof status, "unix:%s", e2e_in_folder(drill.status));
    (void)unlink(port_file);
    add(&words, argv);
    drill.host = host;
    start(&drill.daemon, host, &words);
    (void)snprintf(endpoint, ENDPOINT_BYTES, "%s:%d", address_of(host),
                   atoi(e2e_wait_file(port_file, 10)));
}

struct proc *drill_daemon(int host)
{
    if (host != DRILL_HERE)
        make_key();
    if (drill.endpoint[0] == '\0')
        (void)snprintf(drill.endpoint, sizeof drill.endpoint, "%s:%s", address_of(host),
                       host == DRILL_HERE ? "0" : "29400");
    start_daemon(host, drill.endpoint, false);
    return &drill.daemon;
}

struct proc *drill_takeover(int host, struct proc *ret_old)
{
    char endpoint[ENDPOINT_BYTES];

    *ret_old = drill.daemon;
    drill.daemon = (struct proc){0};
    (void)snprintf(endpoint, sizeof endpoint, "%s:29400", address_of(host));
    start_daemon(host, endpoint, true);
    return &drill.daemon;
}

struct proc *drill_node_as(int index, int rank, int host, const struct drill_job *job)
{
    char numbers[3][16];
    const char *const argv[] = {proc_program("ctrun"),
                                "--rdzv_endpoint",
                                job->endpoints != NULL ? job->endpoints : drill.endpoint,
                                "--nnodes",
                                job->nodes,
                                "--lease",
                                job->lease,
                                "--max_restarts",
                                numbers[0],
                                "--nproc_per_node",
                                numbers[1],
                                "--node_rank",
                                numbers[2],
                                "--join_timeout=20s",
                                "--grace=2s",
                                "--grow=150ms",
                                "--last_call",
                                job->last_call != NULL ? job->last_call : "5s",
                                NULL};
    const char *const key[] = {"--key_file", drill.key, NULL};
    const char *const program[] = {job->program != NULL ? job->program : drill.sleeper, NULL};
    struct words words = {0};

    if (host != DRILL_HERE)
        make_key();
    (void)snprintf(numbers[0], sizeof numbers[0], "%d", job->restarts);
    (void)snprintf(numbers[1], sizeof numbers[1], "%d", CT_MAX(job->workers, 1));
    (void)snprintf(numbers[2], sizeof numbers[2], "%d", rank);
    add(&words, argv);
    add(&words, host == DRILL_HERE ? NULL : key);
    add(&words, job->options);
    add(&words, program);
    start(&drill.nodes[index], host, &words);
    return &drill.nodes[index];
}

struct proc *drill_node(int index, int host, const struct drill_job *job)
{
    return drill_node_as(index, index, host, job);
}

struct proc *drill_proc(int index)
{
    return &drill.nodes[index];
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

const char *drill_status(void)
{
    static char text[65536];

    e2e_get(drill.status, "/status", text, sizeof text);
    return text;
}

double drill_metric(const char *name)
{
    static char text[65536];
    size_t length = strlen(name);

    e2e_get(drill.status, "/metrics", text, sizeof text);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '{'))
            return strtod(line + length + strcspn(line + length, " "), NULL);
    }
    return -1;
}

const char *drill_report(const char *endpoint)
{
    const char *const argv[] = {proc_program("ctrun"),
                                "status",
                                "--json",
                                "--rdzv_endpoint",
                                endpoint != NULL ? endpoint : drill.endpoint,
                                drill.host == DRILL_HERE ? NULL : "--key_file",
                                drill.key,
                                NULL};
    struct proc ask;

    if (drill.host == DRILL_HERE)
        proc_start(&ask, argv, NULL);
    else
        cluster_start(&ask, drill.host, argv);
    cr_assert_eq(proc_finish(&ask, 10), 0, "%s", ct_buf_str(&ask.text));
    (void)snprintf(drill.report, sizeof drill.report, "%s", ct_buf_str(&ask.text));
    proc_free(&ask);
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
