/* What the user is told when the job has ended. */
#include "node_state_uv.h"

#include "base/fs.h"
#include "base/str.h"
#include "job/round.h"
#include "job/run_text.h"
#include "launch/failure/summary.h"
#include "train/checkpoint/checkpoint.h"
#include "train/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void keep_failure_cause(struct node *node)
{
    const struct ct_wire_failure *cause = &node->report.result.cause;

    node->report.cause_node = -1;
    node->report.first_node = node->round != NULL && node->round->self == 0;
    if (node->round != NULL && node->report.result.generation == node->round->generation)
        node->report.cause_node = ct_node_runs_node_of(node->round->runs, cause->rank);
}

/* ---- a failed job --------------------------------------------------------------------------- */

/* The root cause, with all that this node knows of it. */
static struct ct_worker_failure root_of(const struct node *node)
{
    const struct ct_rdzv_result *result = &node->report.result;
    const struct ct_worker_failure *own =
        failures_of(&node->report.failures, result->generation, result->cause.rank);
    struct ct_worker_failure root = {.record = result->cause, .sentence = "", .own_path = ""};

    if (own != NULL && own->record.pid == result->cause.pid)
        return *own;
    if (root.record.time_ms == 0)
        root.record.time_ms = ct_clock_wall_ns(&ct_clock_system) / 1000000;
    return root;
}

/* torchrun's table: where a worker failed, and on the first node. */
static void print_table(const struct node *node, const struct ct_worker_failure *root,
                        struct ct_buf *to)
{
    const struct ct_config_command *command = &node->job->cfg.command;
    const struct failures *known = &node->report.failures;
    struct ct_worker_failure list[FAILURES_MAX + 1] = {*root};
    size_t count = 1;

    if (known->generation == node->report.result.generation)
        for (size_t i = 0; i < known->count; i++)
            if (known->list[i].record.rank != root->record.rank)
                list[count++] = known->list[i];
    if (root->record.error_file[0] == '\0')
        list[0].record.text = ""; /* its last lines stand above */
    ct_report_print(command->program != NULL ? command->program : command->file, list, count, 0,
                    to);
}

static bool has_others(const struct node *node)
{
    const struct failures *known = &node->report.failures;

    if (known->generation == node->report.result.generation)
        for (size_t i = 0; i < known->count; i++)
            if (known->list[i].record.rank != node->report.result.cause.rank &&
                !known->list[i].stopped)
                return true;
    return false;
}

/* Where it is looked for, or says more than the summary. */
static bool wants_table(const struct node *node, const struct ct_worker_failure *root)
{
    const struct job *job = node->job;

    if (node->report.result.cause.rank < 0 || node->report.result.cause.pid <= 0 ||
        !(node->report.first_node || node->report.has_part))
        return false;
    return job->as_torchrun ||
           (!job->program.native && (root->record.error_file[0] != '\0' ||
                                     job->cfg.launch.log_dir[0] != '\0' || has_others(node)));
}

/* Does the console of this node have it? A hang is said as a warning. */
static bool is_shown(const struct node *node, const struct ct_worker_failure *root)
{
    return root->shown &&
           (node->report.result.cause.code != CT_EHUNG || node->log.level <= CT_LOG_WARN);
}

/* What the summary quotes of text that stands above it: nothing of ctworker's, whose last word is
 * its error; of other programs, the exception's line, which may be hard to find there. */
static void shorten(const struct node *node, const struct ct_worker_failure *root,
                    struct ct_summary *summary, struct ct_arena *arena)
{
    bool is_file = root->record.error_file[0] != '\0' && !node->job->program.native;

    summary->seen = !is_file && is_shown(node, root);
    if (summary->seen && !node->job->program.native && summary->cause.code != CT_EHUNG &&
        summary->cause.signal == 0 && root->record.text[0] != '\0') {
        summary->seen = false;
        summary->cause.text = ct_report_error_file(&root->record, arena).message;
    }
}

/* Those of our trainer's workers that failed with the root's own sentence: their ranks into `also`,
 * by number where they are few. A fault that all ranks find is one error, and one that the console
 * has of any of them stands above. */
static void find_same(const struct node *node, const struct ct_worker_failure *root,
                      struct ct_summary *summary, struct ct_arena *arena)
{
    enum { NAMED = 8 };
    const struct failures *known = &node->report.failures;
    const struct ct_worker_failure *same[NAMED];
    size_t count = 0;

    if (!node->job->program.native || root->record.text[0] == '\0' ||
        known->generation != node->report.result.generation)
        return;
    for (size_t i = 0; i < known->count; i++) {
        const struct ct_worker_failure *other = &known->list[i];
        if (other->record.rank == root->record.rank ||
            strcmp(other->record.text, root->record.text) != 0)
            continue;
        summary->seen = summary->seen || is_shown(node, other);
        if (count < NAMED)
            same[count] = other;
        count++;
    }
    if (count == 0)
        return;
    const char *names = count > NAMED ? ct_arena_printf(arena, "%zu other ranks", count)
                                      : ct_arena_printf(arena, "rank%s %d", count > 1 ? "s" : "",
                                                        same[0]->record.rank);
    for (size_t i = 1; i < count && count <= NAMED && names != NULL; i++)
        names = ct_arena_printf(arena, "%s%s%d", names, i + 1 < count ? ", " : " and ",
                                same[i]->record.rank);
    summary->also = names;
}

static void report_failure(struct node *node)
{
    const struct ct_rdzv_result *result = &node->report.result;
    const struct ct_worker_failure root = root_of(node);
    struct ct_arena arena;
    struct ct_summary summary = {.cause = result->cause, .node = node->report.cause_node};

    summary.cause.text = root.record.text;
    summary.cause.error_file = root.record.error_file;

    ct_arena_init(&arena, CT_ERROR_FILE_BYTES);
    bool own = failures_of(&node->report.failures, result->generation, result->cause.rank) != NULL;
    struct ct_buf *lines = ct_console_lines(node->console, CT_CONSOLE_ERR);

    if (wants_table(node, &root) && root.record.error_file[0] != '\0') /* which shows all of it */
        summary.cause.text = ct_report_error_file(&root.record, &arena).message;
    if (!node->log.json)
        shorten(node, &root, &summary, &arena);
    find_same(node, &root, &summary, &arena);
    if (node->log.json) {
        node->report.named_file = root.record.error_file[0] != '\0' && own;
        ct_summary_record(ct_clock_wall_ns(&ct_clock_system), &summary,
                          node->report.result.restarts, node->core.status, lines);
    } else {
        ct_summary_failed(node->job->cfg.launch.rdzv_id, &summary, node->report.result.restarts,
                          (uint32_t)node->job->cfg.launch.max_restarts, node->core.status, lines);
        if (wants_table(node, &root)) {
            print_table(node, &root, lines);
            node->report.named_file = root.record.error_file[0] != '\0' && own;
        }
    }
    ct_console_flush(node->console);
    ct_arena_deinit(&arena);
}

/* Who started this ctrun may want to know, as a launcher of launchers does. */
static void leave_error_file(const struct node *node)
{
    const char *path = ct_env_find(node->job->env, "TORCHELASTIC_ERROR_FILE");
    struct ct_wire_failure root = root_of(node).record;

    if (path == NULL || path[0] == '\0')
        return;
    if (node->report.result.cause.rank < 0) /* no worker's end, but what the text says */
        root.status = node->core.status;
    failures_write(&root, path);
}

/* Where Kubernetes reads why a pod ended: the report without the lines of output, cut. */
static void leave_termination_message(const struct node *node)
{
    enum { ROOM = 4096 };
    const char *path = ct_env_find(node->job->env, "CTRUN_TERMINATION_MESSAGE");
    const struct ct_summary summary = {.cause = node->report.result.cause,
                                       .node = node->report.cause_node};
    struct ct_buf text;

    if (path == NULL || path[0] == '\0')
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        ct_log_event(&node->log, CT_LOG_WARN, "termination_message",
                     "CTRUN_TERMINATION_MESSAGE=%s cannot be written: %s", path, strerror(errno));
        return;
    }
    ct_buf_init(&text, 0);
    if (node->report.error.code != 0)
        (void)ct_buf_printf(&text, "ctrun: error: %s\n", node->report.error.text);
    else
        ct_summary_failed(node->job->cfg.launch.rdzv_id, &summary, node->report.result.restarts,
                          (uint32_t)node->job->cfg.launch.max_restarts, node->core.status, &text);
    (void)ct_fs_write_all(fd, text.data, text.size < ROOM ? text.size : ROOM);
    ct_buf_deinit(&text);
    (void)close(fd);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* What a training that was stopped can go on from, as the trainer would find it; "" for programs
 * that keep no checkpoints of ours. */
static void print_checkpoint(const struct node *node, char *to, size_t size)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct ct_ckpt_state state;

    run_checkpoints(&node->job->cfg, node->training.run_folder, dir);

    to[0] = '\0';
    if (!node->job->program.native || node->training.run_folder[0] == '\0' || dir[0] == '\0')
        return;
    if (ct_ckpt_latest(dir, path, NULL) == 0 && ct_ckpt_open(path, &state, NULL) == 0)
        (void)snprintf(to, size, "the newest checkpoint is that of step %llu, %s",
                       (unsigned long long)state.step, path);
    else
        (void)snprintf(to, size, "there is no whole checkpoint in %s", dir);
}

/* A worker that was to end in order has not. */
static void report_unstopped(struct node *node)
{
    struct ct_summary summary = {.cause = node->report.unstopped, .node = -1};
    struct ct_buf *lines = ct_console_lines(node->console, CT_CONSOLE_ERR);
    char checkpoint[PATH_MAX + 64];

    summary.cause.error_file = ""; /* nothing keeps it for this report */
    print_checkpoint(node, checkpoint, sizeof checkpoint);
    if (node->log.json)
        ct_summary_record_stopped(ct_clock_wall_ns(&ct_clock_system), &summary,
                                  node->core.unstopped - 1, checkpoint, node->core.status, lines);
    else
        ct_summary_stopped(node->job->cfg.launch.rdzv_id, &summary, node->core.unstopped - 1,
                           checkpoint, node->core.status, lines);
    ct_console_flush(node->console);
}

/* What this node knows of the job that it has left. */
static const char *after_release(const struct node *node)
{
    return node->core.was_alone ? "this node left, no other node was working"
                                : "this node left, the job continues";
}

static void report_stop(struct node *node)
{
    const char *why = node->core.requeue ? " to be queued again" : "";
    char name[32], killed[64] = "";

    if (node->core.stopped_by == SIGPIPE)
        return; /* whoever read this has gone */
    (void)ct_signal_name(node->core.stopped_by, name, sizeof name);
    if (node->core.killed > 0 && !node->core.forced)
        (void)snprintf(killed, sizeof killed, ", %u of them killed after launch.grace",
                       node->core.killed);
    if (node->core.stopped_count == 0)
        ct_log_event(&node->log, CT_LOG_INFO, "stopped", "stopped by %s%s; no worker was running",
                     name, why);
    else
        ct_log_event(&node->log, CT_LOG_INFO, "stopped",
                     "stopped by %s%s; %u worker%s ended within %.1f s%s%s%s", name, why,
                     node->core.stopped_count, node->core.stopped_count == 1 ? "" : "s",
                     (double)(node->core.gone_ms - node->core.stopped_at_ms) / 1000, killed,
                     node->core.released ? "; " : "",
                     node->core.released ? after_release(node) : "");
}

static void report_losses(const struct ct_output_losses *losses, const struct ct_log *log)
{
    if (losses->count == 0)
        return;
    ct_log_event(log, CT_LOG_WARN, "logs_lost", "%u log file%s incomplete: %s%s", losses->count,
                 losses->count == 1 ? " is" : "s are", losses->first,
                 losses->count == 1 ? "" : "; the others likewise");
}

void show_staying(struct node *node)
{
    char why[256];

    (void)ct_rdzv_server_duty(node->host.server, why, sizeof why);
    ct_log_event(&node->log, CT_LOG_INFO, "stays",
                 "this node stays as the rendezvous of the job, which goes on%s%s",
                 why[0] != '\0' ? ": " : "", why);
}

void show_still_needed(struct node *node, int signal)
{
    size_t links = ct_rdzv_server_links(node->host.server);
    char name[32];

    ct_log_event(
        &node->log, CT_LOG_WARN, "still_needed",
        "%s: the rendezvous of a job with %zu other node%s is here; once more ends it, and "
        "the job goes on %s",
        ct_signal_name(signal, name, sizeof name), links, links == 1 ? "" : "s",
        node->host.replicated ? "with another node's" : "without status, drain and checkpoints");
}

static enum ct_run_how how_it_ended(const struct node *node)
{
    const struct ct_rdzv_result *result = &node->report.result;
    bool requested =
        node->core.stopped_by != 0 || result->code == CT_ECLOSED || result->code == CT_EREQUEUE;

    if (node->core.unstopped > 0 || (!requested && node->core.status != 0))
        return CT_RUN_FAILED;
    return requested ? CT_RUN_INTERRUPTED : CT_RUN_FINISHED;
}

/* How to go on with a training that is not over. */
static void report_resume(struct node *node)
{
    char dir[PATH_MAX], path[PATH_MAX];
    const char *title = ct_run_title(node->training.run_folder);
    struct ct_ckpt_state state;

    run_checkpoints(&node->job->cfg, node->training.run_folder, dir);
    if (dir[0] != '\0' && ct_ckpt_latest(dir, path, NULL) == 0 &&
        ct_ckpt_open(path, &state, NULL) == 0)
        ct_log_event(&node->log, CT_LOG_INFO, "resume",
                     "to continue from step %llu: ctrun resume %s", (unsigned long long)state.step,
                     title);
    else if (node->training.progress.step > 0)
        ct_log_event(&node->log, CT_LOG_INFO, "resume", "%s cannot be resumed: %s", title,
                     dir[0] != '\0' ? "it has no checkpoint yet"
                                    : "it keeps no checkpoints (checkpoint.dir)");
}

/* The record of the training's run is kept where rank 0 was. */
static void close_run(struct node *node)
{
    const char *cause =
        node->report.error.code != 0 ? node->report.error.text : node->report.result.cause.text;
    struct ct_run_record end = {.how = how_it_ended(node),
                                .step = node->training.progress.step,
                                .status = (uint64_t)node->core.status};
    struct ct_error err = {0};

    if (node->training.run_folder[0] == '\0' || !node->report.first_node || node->core.released)
        return;
    if (end.how == CT_RUN_FAILED)
        (void)snprintf(end.cause, sizeof end.cause, "%.*s", (int)strcspn(cause, "\n"), cause);
    if (ct_run_record_end(node->training.run_folder, &end,
                          ct_clock_wall_ns(&ct_clock_system) / 1000000000u, &err) != 0)
        ct_log_event(&node->log, CT_LOG_WARN, "run", "how the run ended is not kept: %s", err.text);
    if (end.how != CT_RUN_FINISHED && !node->core.requeue && node->job->program.native)
        report_resume(node);
}

void show_end(struct node *node)
{
    ct_console_live(node->console, "");
    all_lines_flush(node->all_lines);
    if (node->core.stopped_by != 0)
        report_stop(node);
    else if (node->report.error.code != 0)
        ct_log_event(&node->log, CT_LOG_ERROR, "failed", "%s", node->report.error.text);
    else if (node->core.released)
        ct_log_event(&node->log, CT_LOG_INFO, "released", "%s", after_release(node));
    else if (node->report.result.code == CT_ECLOSED || node->report.result.code == CT_EREQUEUE)
        /* by its user, from another node */
        ct_log_event(&node->log, CT_LOG_INFO, "stopped", "%s", node->report.result.cause.text);
    else if (node->report.result.code != 0) {
        report_failure(node);
        leave_error_file(node);
    } else if (node->job->cfg.launch.nnodes.max > 1 && !node->report.first_node)
        ct_log_event(&node->log, CT_LOG_INFO, "complete", "the job is complete");
    if (node->core.unstopped > 0)
        report_unstopped(node);
    if (node->report.error.code != 0 ||
        (node->core.stopped_by == 0 && !node->core.released && how_it_ended(node) == CT_RUN_FAILED))
        leave_termination_message(node);
    report_losses(ct_log_files_losses(ct_workers_files(node->workers)), &node->log);
    close_run(node);
}
