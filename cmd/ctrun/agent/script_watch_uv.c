/* See script_watch_uv.h. */
#include "script_watch_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "diagnose/backtrace_uv.h"
#include "diagnose/odd_rank.h"
#include "diagnose/process_facts.h"
#include "diagnose/python_stacks_uv.h"
#include "diagnose/rhythm.h"
#include "job/round.h"
#include "node_state_uv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 64,
    HEARTBEAT_BYTES = 1 << 16, /* a heartbeat file that has grown beyond is emptied */
    EXAMINATION_MS = 3000,     /* how long Python may take to print its stacks and end */
};

/* What is known of a worker from outside. */
struct subject {
    int heartbeat_fd;
    char heartbeat_file[PATH_BYTES];
    pid_t pid;
    bool ran;        /* it was seen at work, or in turn for a processor, at the last poll */
    bool has_family; /* its descendants were looked at at the last poll: `family` is theirs */
    struct ct_process_family family;
    uint64_t cpu_ms, io, births; /* of descendants, since they are looked at */
};

enum phase {
    WATCHING,
    COLLECTING, /* py-spy is at work */
    EXAMINING,  /* workers print their stacks and end */
    WRITING,    /* the file */
};

struct script_watch {
    struct node *node;
    uv_timer_t timer;
    enum phase phase;
    struct ct_rhythm rhythm;
    struct ct_rhythm_rank *ranks; /* of each worker, as the next four */
    struct ct_rhythm_sample *samples;
    struct subject *subjects;
    struct ct_hung_rank *hung; /* those that live; `hung_count` */
    const char **files;
    uint32_t hung_count;
    uint64_t generation; /* of the round that it looks at */

    struct ct_rhythm_verdict verdict;
    struct ct_buf stacks; /* as they were printed, for the file */
    struct ct_odd odd;
    struct ct_error sentence;
    uint64_t deadline_ms; /* EXAMINING */
};

/* ---- looking -------------------------------------------------------------------------------- */

bool script_watch_judges(const struct script_watch *watch, const struct ct_record_view *view)
{
    return watch != NULL && (!view->opened || view->group_count == 0);
}

/* A number that changes when the heartbeat file does. */
static uint64_t read_heartbeats(const struct subject *subject)
{
    struct stat st;

    if (subject->heartbeat_fd < 0 || fstat(subject->heartbeat_fd, &st) != 0)
        return 0;
    if (st.st_size > HEARTBEAT_BYTES && ftruncate(subject->heartbeat_fd, 0) != 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec +
           (uint64_t)st.st_size;
}

static void look_at(struct script_watch *watch, uint32_t i)
{
    const struct ct_workers *workers = watch->node->workers;
    const struct ct_worker_record *record = ct_workers_record(workers, i);
    struct ct_rhythm_sample *sample = &watch->samples[i];
    struct subject *subject = &watch->subjects[i];
    struct ct_process_facts facts = {.state = '?'};
    struct ct_record_view view;
    pid_t pid = ct_workers_pid(workers, i);

    *sample = (struct ct_rhythm_sample){.pid = (int)pid};
    if (record == NULL || pid == 0 || !ct_process_facts(pid, &facts))
        return;
    ct_worker_record_read(record, &view);
    if (pid != subject->pid) {
        subject->pid = pid;
        subject->ran = subject->has_family = false;
        subject->cpu_ms = subject->io = subject->births = 0;
    }
    bool runs = facts.state == 'R';
    *sample = (struct ct_rhythm_sample){
        .alive = script_watch_judges(watch, &view),
        .excused = ct_workers_held(workers, i) || facts.state == 't' ||
                   watch->node->core.survivors[i].ready,
        .stopped = facts.state == 'T',
        .waiting = facts.state == 'D' || (runs && subject->ran),
        .pid = (int)pid,
        .heartbeats = read_heartbeats(subject) + view.signs,
        .output = ct_workers_output_bytes(workers, i),
        .io = facts.io_bytes,
        .cpu_ms = facts.cpu_ms,
    };
    subject->ran = runs;
}

/* What has changed since the last poll is theirs; at the first one nothing is known. */
static void note_family(struct subject *subject, const struct ct_process_family *now)
{
    const struct ct_process_family *last = &subject->family;

    if (subject->has_family) {
        subject->cpu_ms += now->cpu_ms - CT_MIN(now->cpu_ms, last->cpu_ms);
        subject->io += now->io_bytes != last->io_bytes;
        subject->births += now->digest != last->digest;
    }
    subject->has_family = true;
    subject->family = *now;
}

/* The descendants of those that are quiet themselves: one look at all processes of the machine. */
static void look_at_families(struct script_watch *watch)
{
    uint32_t slots = watch->node->job->slots, count = 0, at = 0;
    struct ct_process_family *families = calloc(slots, sizeof *families);
    bool always = watch->rhythm.floor_ms < 10u * CT_RHYTHM_POLL_MS;

    for (uint32_t i = 0; families != NULL && i < slots; i++)
        if (watch->samples[i].alive && (always || ct_rhythm_is_quiet(&watch->rhythm, i)))
            families[count++].root = watch->subjects[i].pid;
        else
            watch->subjects[i].has_family = false;
    if (count > 0)
        ct_process_families(families, count);
    for (uint32_t i = 0; i < slots; i++) {
        struct ct_rhythm_sample *sample = &watch->samples[i];
        struct subject *subject = &watch->subjects[i];

        if (at < count && sample->alive && families[at].root == subject->pid) {
            note_family(subject, &families[at]);
            sample->waiting |= families[at++].waiting;
        }
        sample->cpu_ms += subject->cpu_ms;
        sample->io += subject->io;
        sample->family = subject->births;
    }
    free(families);
}

/* Look at all workers now. True: they hang. */
static bool poll_workers(struct script_watch *watch)
{
    for (uint32_t i = 0; i < watch->node->job->slots; i++)
        look_at(watch, i);
    look_at_families(watch);
    return ct_rhythm_poll(&watch->rhythm, uv_now(&watch->node->loop), watch->samples,
                          &watch->verdict);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The local rank of the one at fault, when it is one of this node. */
static uint32_t culprit_of(const struct script_watch *watch)
{
    return watch->hung[watch->odd.culprit].rank - watch->node->round->own->first_rank;
}

static bool is_current(const struct script_watch *watch)
{
    return agent_core_acts(&watch->node->core) && watch->node->core.running == watch->generation;
}

/* Ranks of another node may be at work, and these wait for them? One that is stopped is at fault
 * by itself. */
static bool may_wait_for_others(const struct script_watch *watch)
{
    return watch->node->round->node_count > 1 && watch->verdict.kind != CT_RHYTHM_STOPPED;
}

static void end_it(struct script_watch *watch)
{
    struct node *node = watch->node;
    uint32_t worker = is_current(watch) ? culprit_of(watch) : UINT32_MAX;

    watch->phase = WATCHING;
    if (is_current(watch) && !may_wait_for_others(watch) &&
        ct_workers_pid(node->workers, worker) == watch->hung[watch->odd.culprit].pid)
        ct_workers_condemn(node->workers, worker, &watch->sentence);
    ct_workers_judge(node->workers, worker, &watch->sentence); /* those that were examined */
}

static void on_written(void *context, const char *failure)
{
    struct script_watch *watch = context;

    if (failure != NULL)
        ct_log_event(&watch->node->log, CT_LOG_WARN, "hang_stacks", "%s", failure);
    end_it(watch);
}

/* Write down all stacks, with the kernel's and gdb's view of the one at fault and another one. */
static void write_down(struct script_watch *watch)
{
    struct node *node = watch->node;
    const struct ct_hung_rank *culprit = &watch->hung[watch->odd.culprit];
    const struct ct_hung_rank *other = &watch->hung[watch->odd.other];
    char file[4096], titles[CT_DIAGNOSE_PROCESSES][64];
    struct ct_diagnose what = {.file = file,
                               .preface = ct_buf_str(&watch->stacks),
                               .pids = {culprit->pid},
                               .titles = {titles[0], titles[1]}};

    watch->phase = WRITING;
    if (!node->job->folder.stays) {
        end_it(watch);
        return;
    }
    if (other != culprit)
        what.pids[1] = other->pid;
    (void)snprintf(titles[0], sizeof titles[0], "rank %u, which hangs", culprit->rank);
    (void)snprintf(titles[1], sizeof titles[1], "rank %u, for comparison", other->rank);
    (void)snprintf(file, sizeof file, "%s/hang-rank-%04u.g%llu.txt", node->job->folder.path,
                   culprit->rank, (unsigned long long)watch->generation);
    ct_log_event(&node->log, CT_LOG_INFO, "hang_stacks", "its threads are written to %s", file);
    int rc = ct_diagnose(&node->loop, &what, on_written, watch);
    if (rc != 0)
        on_written(watch, ct_strerror(rc));
}

static void conclude(struct script_watch *watch)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_odd_find(watch->hung, watch->hung_count, &watch->odd);
    ct_odd_print(&watch->odd, watch->hung, watch->hung_count, watch->verdict.silent_ms, &text);
    if (may_wait_for_others(watch))
        (void)ct_buf_puts(&text, "; so are all ranks of this node, and none is ended, since those "
                                 "of another node may be at work");
    (void)ct_error_set(&watch->sentence, CT_EHUNG, "%s", ct_buf_str(&text));
    ct_log_event(&watch->node->log, CT_LOG_WARN, "hang", "%s", watch->sentence.text);
    ct_buf_deinit(&text);
    write_down(watch);
}

/* ---- stacks --------------------------------------------------------------------------------- */

/* Keep what was printed of a rank, and find where it is. */
static void read_stack(struct script_watch *watch, struct ct_hung_rank *hung, const char *text)
{
    if (text[0] == '\0')
        return;
    (void)ct_buf_printf(&watch->stacks, "==== rank %u (pid %d), Python\n%s\n", hung->rank,
                        hung->pid, text);
    (void)ct_python_place_find(text, hung->pid, &hung->place);
    hung->child_pid = ct_python_child_find(text, hung->pid, &hung->child);
}

/* Is it Python, which prints its stacks when it is aborted? */
static bool can_be_examined(const struct script_watch *watch, const struct ct_hung_rank *hung)
{
    const char *handler = ct_env_find(watch->node->job->env, "PYTHONFAULTHANDLER");

    return !hung->place.known && (handler == NULL || handler[0] != '\0') &&
           ct_process_is_python(hung->pid);
}

static void on_examined(struct script_watch *watch)
{
    const struct node *node = watch->node;
    bool all_ended = true;

    for (uint32_t i = 0; i < watch->hung_count; i++)
        all_ended &=
            ct_workers_examined(node->workers, watch->hung[i].rank - node->round->own->first_rank);
    if (!all_ended && uv_now(&node->loop) < watch->deadline_ms)
        return;
    for (uint32_t i = 0; i < watch->hung_count; i++)
        read_stack(watch, &watch->hung[i],
                   ct_workers_last_words(node->workers,
                                         watch->hung[i].rank - node->round->own->first_rank));
    conclude(watch);
}

/* Without py-spy: all hang, and all will be ended in any case. */
static void examine(struct script_watch *watch)
{
    struct node *node = watch->node;
    bool any = false;

    for (uint32_t i = 0; i < watch->hung_count; i++)
        any |= can_be_examined(watch, &watch->hung[i]);
    if (!any || may_wait_for_others(watch)) {
        conclude(watch);
        return;
    }
    for (uint32_t i = 0; i < watch->hung_count; i++)
        if (can_be_examined(watch, &watch->hung[i]))
            ct_workers_examine(node->workers, watch->hung[i].rank - node->round->own->first_rank);
    watch->phase = EXAMINING;
    watch->deadline_ms = uv_now(&node->loop) + EXAMINATION_MS;
}

static void on_stacks(void *context, struct ct_python_stack *stacks, size_t count)
{
    struct script_watch *watch = context;

    watch->phase = WATCHING;
    if (is_current(watch)) {
        (void)poll_workers(watch);
        if (ct_rhythm_stands(&watch->rhythm, &watch->verdict)) {
            for (size_t i = 0; i < count; i++)
                read_stack(watch, &watch->hung[i], stacks[i].text != NULL ? stacks[i].text : "");
            examine(watch);
        }
    }
    ct_python_stacks_free(stacks, count);
}

/* ---- a verdict ------------------------------------------------------------------------------ */

/* Who lives, and what its process does. */
static void list_hung(struct script_watch *watch)
{
    const struct node *node = watch->node;

    watch->hung_count = 0;
    for (uint32_t i = 0; i < node->job->slots; i++) {
        struct ct_hung_rank *hung = &watch->hung[watch->hung_count];

        if (!watch->samples[i].alive)
            continue;
        watch->hung_count++;
        *hung = (struct ct_hung_rank){.rank = node->round->own->first_rank + i,
                                      .pid = watch->samples[i].pid,
                                      .state = watch->samples[i].stopped ? 'T' : 'S',
                                      .works = watch->ranks[i].silent_ms == 0};
        struct ct_process_facts facts;
        if (!watch->samples[i].stopped && ct_process_facts(hung->pid, &facts))
            hung->state = facts.state;
        (void)ct_str_copy(hung->host, sizeof hung->host, node->job->host);
        ct_diagnose_state(hung->pid, hung->doing, sizeof hung->doing);
    }
}

/* All hang: where are they? */
static void begin_verdict(struct script_watch *watch)
{
    const struct node *node = watch->node;
    const char *program = node->job->program.path, *slash = strrchr(program, '/');
    char beside[PATH_MAX];

    list_hung(watch);
    ct_buf_clear(&watch->stacks);
    struct ct_python_stack *stacks = calloc(watch->hung_count, sizeof *stacks);
    for (uint32_t i = 0; stacks != NULL && i < watch->hung_count; i++)
        stacks[i] = (struct ct_python_stack){.pid = watch->hung[i].pid,
                                             .stopped = watch->hung[i].state == 'T'};
    (void)snprintf(beside, sizeof beside, "%.*s", slash != NULL ? (int)(slash - program) : 0,
                   program);
    watch->phase = COLLECTING;
    if (stacks == NULL || ct_python_stacks(&watch->node->loop, stacks, watch->hung_count, beside,
                                           on_stacks, watch) != 0)
        examine(watch);
    free(stacks);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_poll(uv_timer_t *timer)
{
    struct script_watch *watch = timer->data;
    struct node *node = watch->node;

    if (watch->phase == EXAMINING && is_current(watch)) {
        on_examined(watch);
        return;
    }
    if (watch->phase == EXAMINING) { /* the round is over: what has ended is told */
        watch->phase = WATCHING;
        ct_workers_judge(node->workers, UINT32_MAX, NULL);
    }
    if (watch->phase != WATCHING || !agent_core_acts(&node->core))
        return;
    if (node->core.running != watch->generation) {
        watch->generation = node->core.running;
        ct_rhythm_begin(&watch->rhythm, watch->ranks, node->job->slots);
    }
    if (poll_workers(watch))
        begin_verdict(watch);
}

/* ---- birth and death ------------------------------------------------------------------------ */

/* A file of each worker in memory, which this process keeps open: its name is short-lived, leaves
 * nothing behind, and no slow disk is waited for. */
static void make_heartbeat_file(struct subject *subject)
{
    subject->heartbeat_fd = memfd_create("ctrun-heartbeats", MFD_CLOEXEC);
    (void)snprintf(subject->heartbeat_file, PATH_BYTES, "/proc/%d/fd/%d", (int)getpid(),
                   subject->heartbeat_fd);
}

int script_watch_new(struct node *node, struct script_watch **ret_watch)
{
    const struct ct_config *cfg = &node->job->cfg;
    uint32_t slots = node->job->slots;

    *ret_watch = NULL;
    if (node->job->program.native || cfg->launch.hang_timeout_ms == 0 ||
        ct_config_origin(cfg, &cfg->launch.hang_timeout_ms)->layer == CT_CONFIG_DEFAULT)
        return 0;
    struct script_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return CT_ENOMEM;
    watch->node = node;
    watch->rhythm.floor_ms = (uint64_t)cfg->launch.hang_timeout_ms;
    ct_buf_init(&watch->stacks, 0);
    watch->ranks = calloc(slots, sizeof *watch->ranks);
    watch->samples = calloc(slots, sizeof *watch->samples);
    watch->subjects = calloc(slots, sizeof *watch->subjects);
    watch->hung = calloc(slots, sizeof *watch->hung);
    watch->files = calloc(slots, sizeof *watch->files);
    if (watch->ranks == NULL || watch->samples == NULL || watch->subjects == NULL ||
        watch->hung == NULL || watch->files == NULL) {
        free(watch->subjects);
        watch->subjects = NULL;
        script_watch_free(watch);
        return CT_ENOMEM;
    }
    for (uint32_t i = 0; i < slots; i++) {
        make_heartbeat_file(&watch->subjects[i]);
        if (watch->subjects[i].heartbeat_fd >= 0)
            watch->files[i] = watch->subjects[i].heartbeat_file;
    }
    (void)uv_timer_init(&node->loop, &watch->timer);
    watch->timer.data = watch;
    (void)uv_timer_start(&watch->timer, on_poll, CT_RHYTHM_POLL_MS, CT_RHYTHM_POLL_MS);
    *ret_watch = watch;
    return 0;
}

const char *const *script_watch_files(const struct script_watch *watch)
{
    return watch != NULL ? watch->files : NULL;
}

void script_watch_close(struct script_watch *watch)
{
    if (watch != NULL)
        uv_close((uv_handle_t *)&watch->timer, NULL);
}

void script_watch_free(struct script_watch *watch)
{
    if (watch == NULL)
        return;
    for (uint32_t i = 0; watch->subjects != NULL && i < watch->node->job->slots; i++)
        if (watch->subjects[i].heartbeat_fd >= 0)
            (void)close(watch->subjects[i].heartbeat_fd);
    free(watch->ranks);
    free(watch->samples);
    free(watch->subjects);
    free(watch->hung);
    free(watch->files);
    ct_buf_deinit(&watch->stacks);
    free(watch);
}
