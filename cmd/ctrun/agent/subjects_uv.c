/* See subjects_uv.h. */
#include "subjects_uv.h"

#include "base/assert.h"
#include "diagnose/process_facts.h"
#include "node_state_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 64,
    HEARTBEAT_BYTES = 1 << 16, /* a heartbeat file that has grown beyond is emptied */
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

struct subjects {
    struct node *node;
    struct subject *all; /* of each slot, as the next two */
    struct ct_process_family *families;
    const char **files;
};

/* ---- looking -------------------------------------------------------------------------------- */

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

static void look_at(struct subjects *subjects, uint32_t i, struct ct_rhythm_sample *sample)
{
    const struct node *node = subjects->node;
    const struct ct_workers *workers = node->workers;
    const struct ct_worker_record *record = ct_workers_record(workers, i);
    struct subject *subject = &subjects->all[i];
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
        .alive = script_watch_judges(node->scripts, &view),
        .excused =
            ct_workers_held(workers, i) || facts.state == 't' || node->core.survivors[i].ready,
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
static void look_at_families(struct subjects *subjects, const struct ct_rhythm *rhythm,
                             struct ct_rhythm_sample *samples)
{
    uint32_t slots = subjects->node->job->slots, count = 0, at = 0;
    bool always = rhythm->floor_ms < 10u * CT_RHYTHM_POLL_MS;

    for (uint32_t i = 0; i < slots; i++)
        if (samples[i].alive && (always || ct_rhythm_is_quiet(rhythm, i)))
            subjects->families[count++].root = subjects->all[i].pid;
        else
            subjects->all[i].has_family = false;
    if (count > 0)
        ct_process_families(subjects->families, count);
    for (uint32_t i = 0; i < slots; i++) {
        struct ct_rhythm_sample *sample = &samples[i];
        struct subject *subject = &subjects->all[i];

        if (at < count && sample->alive && subjects->families[at].root == subject->pid) {
            note_family(subject, &subjects->families[at]);
            sample->waiting |= subjects->families[at++].waiting;
        }
        sample->cpu_ms += subject->cpu_ms;
        sample->io += subject->io;
        sample->family = subject->births;
    }
}

void subjects_look(struct subjects *subjects, const struct ct_rhythm *rhythm,
                   struct ct_rhythm_sample *samples)
{
    for (uint32_t i = 0; i < subjects->node->job->slots; i++)
        look_at(subjects, i, &samples[i]);
    look_at_families(subjects, rhythm, samples);
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

struct subjects *subjects_new(struct node *node)
{
    struct subjects *subjects = calloc(1, sizeof *subjects);
    uint32_t slots = node->job->slots;

    if (subjects == NULL)
        return NULL;
    subjects->node = node;
    subjects->all = calloc(slots, sizeof *subjects->all);
    subjects->families = calloc(slots, sizeof *subjects->families);
    subjects->files = calloc(slots, sizeof *subjects->files);
    for (uint32_t i = 0; subjects->all != NULL && i < slots; i++)
        make_heartbeat_file(&subjects->all[i]);
    if (subjects->all == NULL || subjects->families == NULL || subjects->files == NULL) {
        subjects_free(subjects);
        return NULL;
    }
    for (uint32_t i = 0; i < slots; i++)
        if (subjects->all[i].heartbeat_fd >= 0)
            subjects->files[i] = subjects->all[i].heartbeat_file;
    return subjects;
}

const char *const *subjects_files(const struct subjects *subjects)
{
    return subjects->files;
}

void subjects_free(struct subjects *subjects)
{
    if (subjects == NULL)
        return;
    for (uint32_t i = 0; subjects->all != NULL && i < subjects->node->job->slots; i++)
        if (subjects->all[i].heartbeat_fd >= 0)
            (void)close(subjects->all[i].heartbeat_fd);
    free(subjects->all);
    free(subjects->families);
    free(subjects->files);
    free(subjects);
}
