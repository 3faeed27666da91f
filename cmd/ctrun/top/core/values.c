/* What stands in the tables; see top.h. */
#include "cmd/ctrun/top/core/top.h"

#include "base/number/scale.h"
#include "base/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct top_node *top_node_at(const struct top_state *state, struct top_row row)
{
    return &state->snapshot->nodes[row.index];
}

const struct top_rank *top_rank_at(const struct top_state *state, struct top_row row)
{
    const struct top_node *node = top_node_at(state, row);
    const struct top_rank *worker = &state->snapshot->workers[node->rank_first + row.part];
    bool is_there = row.part < node->rank_count && worker->rank == node->first_rank + row.part;

    return is_there ? worker : NULL;
}

const struct top_event *top_event_at(const struct top_state *state, struct top_row row)
{
    return &state->events[row.index];
}

const char *top_job_name(const struct top_state *state, struct top_row row)
{
    if (state->view == TOP_EVENTS)
        return top_event_at(state, row)->job;
    if (state->view == TOP_JOBS)
        return state->snapshot->jobs[row.index].name;
    return state->snapshot->jobs[top_node_at(state, row)->job].name;
}

/* ---- ways to write a value; each returns what it is ordered by ------------------------------ */

static double put(char text[TOP_VALUE], double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static double put(char text[TOP_VALUE], double value, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, TOP_VALUE, format, args);
    va_end(args);
    return value;
}

static double put_text(char text[TOP_VALUE], const char *value)
{
    (void)ct_str_copy(text, TOP_VALUE, value);
    return NAN;
}

static double put_whole(char text[TOP_VALUE], int64_t value)
{
    return value < 0 ? put_text(text, "-") : put(text, (double)value, "%" PRId64, value);
}

static double put_real(char text[TOP_VALUE], double value, const char *unit)
{
    return isfinite(value) ? put(text, value, "%.4g%s", value, unit) : put_text(text, "-");
}

static double put_clock(char text[TOP_VALUE], double seconds)
{
    char clock[CT_SCALE_SIZE];

    if (!(seconds >= 0))
        return put_text(text, "-");
    return put(text, seconds, "%s", ct_scale_clock(seconds, clock));
}

static double put_lower(char text[TOP_VALUE], const char *value)
{
    (void)ct_str_copy(text, TOP_VALUE, value);
    for (char *at = text; *at != '\0'; at++)
        *at = (char)(*at == '_' ? ' ' : tolower((unsigned char)*at));
    return NAN;
}

/* ---- views ----------------------------------------------------------------------------------- */

static double job_value(const struct top_job *job, enum top_column column, char text[TOP_VALUE])
{
    switch (column) {
    case TOP_JOB_NAME:
        return put_text(text, job->name);
    case TOP_JOB_PHASE:
        return put_lower(text, job->phase);
    case TOP_JOB_SINCE:
        return put_clock(text, job->phase_s);
    case TOP_JOB_RANKS:
        return put_whole(text, job->world);
    case TOP_JOB_STEP:
        return put_whole(text, job->step);
    case TOP_JOB_DONE:
        return isfinite(job->percent) ? put(text, job->percent, "%.0f %%", job->percent)
                                      : put_text(text, "-");
    case TOP_JOB_LOSS:
        return put_real(text, job->loss, "");
    case TOP_JOB_RATE:
        return put_real(text, job->samples_per_s, "");
    case TOP_JOB_LEFT:
        return put_clock(text, job->eta_s);
    case TOP_JOB_RESTARTS:
        return put(text, (double)job->restarts, "%" PRId64 "/%" PRId64, job->restarts,
                   job->max_restarts);
    case TOP_JOB_NODES:
        return put(text, (double)job->node_count, "%zu/%" PRId64 ":%" PRId64, job->node_count,
                   job->nodes_min, job->nodes_max);
    case TOP_JOB_ROUND:
        return put_whole(text, job->generation);
    default:
        return put_whole(text, job->saved);
    }
}

static double put_state(char text[TOP_VALUE], const char *state)
{
    static const char *const words[][2] = {{"STANDBY", "waiting"}, {"PREPARING", "stopping"},
                                           {"PROMISED", "ready"},  {"ACTING", "working"},
                                           {"DONE", "done"},       {"CORDONED", "cordoned"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], state) == 0)
            return put_text(text, words[i][1]);
    return put_lower(text, state);
}

static double put_ranks(char text[TOP_VALUE], const struct top_node *node)
{
    if (node->first_rank < 0)
        return put_text(text, "-");
    if (node->slots <= 1)
        return put_whole(text, node->first_rank);
    return put(text, (double)node->first_rank, "%" PRId64 "-%" PRId64, node->first_rank,
               node->first_rank + node->slots - 1);
}

static void add_note(char text[TOP_VALUE], const char *note)
{
    size_t used = strlen(text);

    (void)snprintf(text + used, TOP_VALUE - used, "%s%s", used > 0 ? ", " : "", note);
}

static double put_note(char text[TOP_VALUE], const struct top_node *node)
{
    text[0] = '\0';
    if (!node->connected)
        add_note(text, "not connected");
    if (node->leaving)
        add_note(text, "leaving");
    if (node->gpu_trouble[0] != '\0')
        add_note(text, node->gpu_trouble);
    if (node->cordon != NULL) {
        char reason[TOP_VALUE];

        (void)snprintf(reason, sizeof reason, "cordoned%s%s", node->cordon[0] != '\0' ? ": " : "",
                       node->cordon);
        add_note(text, reason);
    }
    return NAN;
}

/* "1.2/15.6 GiB": ordered by the share. */
static double put_memory(char text[TOP_VALUE], const struct top_node *node)
{
    const double gib = 1024.0 * 1024 * 1024;

    if (!(node->memory_total > 0))
        return put_text(text, "-");
    return put(text, node->memory / node->memory_total, "%.1f/%.1f GiB", node->memory / gib,
               node->memory_total / gib);
}

static double put_wait(char text[TOP_VALUE], const struct top_rank *worker)
{
    if (!(worker->waits_s > 0))
        return put_text(text, "-");
    if (worker->awaits < 0)
        return put(text, worker->waits_s, "%.1f s", worker->waits_s);
    return put(text, worker->waits_s, "%.1f s for %" PRId64, worker->waits_s, worker->awaits);
}

/* Of a worker, what is known of it. */
static double worker_value(const struct top_rank *worker, enum top_column column,
                           char text[TOP_VALUE])
{
    if (worker == NULL)
        return put_text(text, "-");
    switch (column) {
    case TOP_RANK_STEP:
        return put_whole(text, worker->step);
    case TOP_RANK_STEP_TIME:
        return put_real(text, worker->step_s * 1e3, "");
    case TOP_RANK_WAITS:
        return put_wait(text, worker);
    case TOP_RANK_MEMORY:
        return isfinite(worker->memory)
                   ? put(text, worker->memory, "%.4g M", worker->memory / 1024 / 1024)
                   : put_text(text, "-");
    default:
        return put_whole(text, worker->pid);
    }
}

static double node_value(const struct top_state *state, struct top_row row, enum top_column column,
                         char text[TOP_VALUE])
{
    const struct top_node *node = top_node_at(state, row);

    switch (column) {
    case TOP_NODE_HOST:
    case TOP_RANK_HOST:
        return put_text(text, node->host);
    case TOP_NODE_STATE:
    case TOP_RANK_STATE:
        return put_state(text, top_sort_text(state, row, column));
    case TOP_NODE_RANKS:
        return put_ranks(text, node);
    case TOP_NODE_HEARD:
        return isfinite(node->heard_s) ? put(text, node->heard_s, "%.1f s", node->heard_s)
                                       : put_text(text, "-");
    case TOP_NODE_NOTE:
        return put_note(text, node);
    case TOP_NODE_RANK:
    case TOP_RANK_NODE:
        return put_whole(text, node->node_rank);
    case TOP_NODE_LOAD:
        return put_real(text, node->load, "");
    case TOP_NODE_MEMORY:
        return put_memory(text, node);
    case TOP_NODE_SLOTS:
        return put_whole(text, node->slots);
    case TOP_RANK_RANK:
        return put_whole(text, node->first_rank + row.part);
    case TOP_RANK_LOCAL:
        return put_whole(text, row.part);
    case TOP_RANK_STEP:
    case TOP_RANK_STEP_TIME:
    case TOP_RANK_WAITS:
    case TOP_RANK_MEMORY:
    case TOP_RANK_PID:
        return worker_value(top_rank_at(state, row), column, text);
    default:
        return put_text(text, top_job_name(state, row));
    }
}

static double event_value(const struct top_event *event, enum top_column column,
                          char text[TOP_VALUE])
{
    switch (column) {
    case TOP_EVENT_NUMBER:
        return put(text, (double)event->number, "%s", event->clock);
    case TOP_EVENT_TEXT:
        return put_text(text, event->text);
    case TOP_EVENT_ROUND:
        return put_whole(text, event->generation);
    case TOP_EVENT_KIND:
        return put_lower(text, event->kind);
    default:
        return put_text(text, event->job);
    }
}

double top_value(const struct top_state *state, struct top_row row, enum top_column column,
                 char text[TOP_VALUE])
{
    switch (top_columns[column].view) {
    case TOP_JOBS:
        return job_value(&state->snapshot->jobs[row.index], column, text);
    case TOP_EVENTS:
        return event_value(top_event_at(state, row), column, text);
    default:
        return node_value(state, row, column, text);
    }
}

const char *top_sort_text(const struct top_state *state, struct top_row row, enum top_column column)
{
    const struct top_node *node;
    const struct top_rank *worker;

    switch (column) {
    case TOP_JOB_PHASE:
        return state->snapshot->jobs[row.index].phase;
    case TOP_EVENT_TEXT:
        return top_event_at(state, row)->text;
    case TOP_EVENT_KIND:
        return top_event_at(state, row)->kind;
    case TOP_NODE_HOST:
    case TOP_RANK_HOST:
        return top_node_at(state, row)->host;
    case TOP_NODE_STATE:
        return top_node_at(state, row)->state;
    case TOP_RANK_STATE:
        worker = top_rank_at(state, row);
        return worker != NULL ? worker->state : top_node_at(state, row)->state;
    case TOP_NODE_NOTE: /* what is worst comes first */
        node = top_node_at(state, row);
        return !node->connected               ? "1"
               : node->gpu_trouble[0] != '\0' ? "2"
               : node->leaving                ? "3"
               : node->cordon != NULL         ? "4"
                                              : "5";
    default:
        return top_job_name(state, row);
    }
}
