/* See job_events_uv.h. */
#include "job_events_uv.h"

#include "hook/hooks_uv.h"
#include "node_state_uv.h"
#include "rendezvous/history/history.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job_events {
    struct node *node;
    struct ct_hooks *hooks;  /* NULL: nobody asks for one */
    struct ct_written *file; /* NULL: no event has come yet, or no file is wanted */
    bool wants_file;
    bool finishing;
    void (*finished)(struct node *node);
};

int job_events_new(struct node *node, struct job_events **ret_events, struct ct_error *err)
{
    const struct job *job = node->job;
    const struct ct_hooks_options options = {
        .loop = &node->loop,
        .target = &job->hook,
        .timeout_ms = (uint64_t)job->cfg.launch.on_event_timeout_ms,
        .env = job->env,
        .log = &node->log,
    };
    int rc = 0;

    *ret_events = NULL;
    if (!job->folder.stays && job->hook.path == NULL)
        return 0;
    struct job_events *events = calloc(1, sizeof *events);
    if (events == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    events->node = node;
    events->wants_file = job->folder.stays;
    if (job->hook.path != NULL)
        rc = ct_hooks_new(&options, &events->hooks, err);
    if (rc == 0)
        *ret_events = events;
    else
        free(events);
    return rc;
}

/* ---- the file ------------------------------------------------------------------------------- */

static void write_lines(struct job_events *events, const char *text, size_t size)
{
    const struct node *node = events->node;
    char path[PATH_MAX];
    struct ct_error err = {0};

    if (!events->wants_file)
        return;
    if (events->file == NULL) {
        (void)snprintf(path, sizeof path, "%s/events.jsonl", node->job->folder.path);
        if (ct_log_files_open(ct_workers_files(node->workers), path, CT_LOG_FILES_NO_RANK,
                              &events->file, &err) != 0) {
            ct_log_event(&node->log, CT_LOG_WARN, "events", "the job's events are not kept: %s",
                         err.text);
            events->wants_file = false;
            return;
        }
    }
    ct_written_append(events->file, text, size);
}

/* ---- the hook ------------------------------------------------------------------------------- */

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));

    return text != NULL ? text : "";
}

static uint64_t number_of(const json_t *record, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(record, key));
}

/* A kind that this ctrun does not know goes to hooks that want all. */
static bool is_wanted(const struct job *job, const char *kind)
{
    int number = ct_announcement_find(kind);

    return number < 0 ? job->hook_kinds == UINT64_MAX : (job->hook_kinds >> number & 1) != 0;
}

/* Returns the record's number. */
static uint64_t receive_line(struct job_events *events, const char *line, size_t size)
{
    json_t *record = json_loadb(line, size, 0, NULL);
    const struct ct_hook_event event = {.job = text_of(record, "job"),
                                        .kind = text_of(record, "event"),
                                        .level = text_of(record, "level"),
                                        .number = number_of(record, "number"),
                                        .generation = number_of(record, "generation"),
                                        .record = line,
                                        .size = size};

    if (record != NULL && events->hooks != NULL && is_wanted(events->node->job, event.kind))
        ct_hooks_put(events->hooks, &event);
    json_decref(record);
    return event.number;
}

uint64_t job_events_receive(struct job_events *events, const char *text, size_t size)
{
    uint64_t last = 0;

    write_lines(events, text, size);
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        size_t length = end != NULL ? (size_t)(end + 1 - text) : size;
        uint64_t number = receive_line(events, text, length);

        last = number > last ? number : last;
        text += length;
        size -= length;
    }
    return last;
}

void job_events_reaped(struct job_events *events, pid_t pid, int status)
{
    if (events != NULL && events->hooks != NULL)
        ct_hooks_reaped(events->hooks, pid, status);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void on_finished(void *context)
{
    struct job_events *events = context;
    struct node *node = events->node;
    void (*finished)(struct node * of) = events->finished;

    free(events);
    node->events = NULL;
    finished(node);
}

void job_events_finish(struct job_events *events, void (*finished)(struct node *node),
                       struct node *node)
{
    char waiting[96];
    size_t left = events != NULL && events->hooks != NULL ? ct_hooks_left(events->hooks) : 0;
    uint64_t patience_ms =
        node->core.forced ? 0 : (uint64_t)node->job->cfg.launch.on_event_timeout_ms;

    if (events == NULL) {
        finished(node);
        return;
    }
    ct_written_close(events->file);
    events->file = NULL;
    events->finished = finished;
    events->finishing = true;
    (void)snprintf(waiting, sizeof waiting, "waiting for launch.on_event to take %zu event%s", left,
                   left == 1 ? "" : "s");
    show_waiting(node, left > 0 ? waiting : NULL);
    if (events->hooks != NULL)
        ct_hooks_finish(events->hooks, patience_ms, on_finished, events);
    else
        on_finished(events);
}

void job_events_hurry(struct job_events *events)
{
    if (events != NULL && events->hooks != NULL && events->finishing)
        ct_hooks_finish(events->hooks, 0, NULL, NULL);
}
