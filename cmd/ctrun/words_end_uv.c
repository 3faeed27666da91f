/* What the user is told when the job has ended. */
#include "node_state_uv.h"

#include "launch/env.h"
#include "launch/summary.h"
#include "round.h"
#include "train/checkpoint.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

void words_keep_cause(struct node *node)
{
    const struct ct_rdzv_failure *cause = &node->result.cause;

    node->cause_node = -1;
    node->first_node = node->round != NULL && node->round->self == 0;
    if (node->round != NULL && cause->generation == node->round->generation)
        node->cause_node = round_node_of(node->round, cause->rank);
}

/* ---- a failed job -----------------------------------------------------------------------------
 */

/* The root cause, with all that this node knows of it. */
static struct ct_failure root_of(const struct node *node)
{
    const struct ct_rdzv_failure *cause = &node->result.cause;
    const struct ct_failure *own = failures_of(&node->failures, cause->generation, cause->rank);
    struct ct_failure root = {
        .host = cause->host,
        .rank = (uint32_t)cause->rank,
        .local_rank = (uint32_t)cause->local_rank,
        .pid = cause->pid,
        .end = {.status = cause->status, .signal = cause->signal},
        .time_ms = cause->time_ms > 0 ? (int64_t)cause->time_ms
                                      : (int64_t)(ct_clock_wall_ns(&ct_clock_system) / 1000000),
        .path = cause->error_file,
        .text = cause->text,
    };

    return own != NULL && own->pid == cause->pid ? *own : root;
}

/* torchrun's table: where a worker failed, and on the first node. */
static void print_table(const struct node *node, const struct ct_failure *root, struct ct_buf *to)
{
    const struct ct_config_command *command = &node->job->cfg.command;
    const struct failures *known = &node->failures;
    struct ct_failure list[FAILURES_MAX + 1] = {*root};
    size_t count = 1;

    if (known->generation == node->result.cause.generation)
        for (size_t i = 0; i < known->count; i++)
            if (known->list[i].rank != root->rank)
                list[count++] = known->list[i];
    if (root->path[0] == '\0')
        list[0].text = ""; /* its last lines have just been quoted */
    ct_report_print(command->program != NULL ? command->program : command->file, list, count, 0,
                    to);
}

static bool wants_table(const struct node *node)
{
    const struct job *job = node->job;
    bool has_part = node->first_node || node->has_part;

    return node->result.cause.rank >= 0 && node->result.cause.pid > 0 && has_part &&
           (job->as_torchrun || !job->program.native);
}

static void tell_failure(struct node *node)
{
    const struct ct_rdzv_failure *cause = &node->result.cause;
    const struct ct_failure root = root_of(node);
    struct ct_arena arena;
    struct ct_casualty casualty = {
        .rank = cause->rank,
        .local_rank = cause->local_rank,
        .node = node->cause_node,
        .pid = cause->pid,
        .status = cause->status,
        .signal = cause->signal,
        .code = cause->code,
        .host = cause->host,
        .text = root.text,
    };

    ct_arena_init(&arena, CT_ERROR_FILE_BYTES);
    if (wants_table(node) && root.path[0] != '\0') /* which shows all of it */
        casualty.text = ct_report_error_file(&root, &arena).message;
    if (node->log.json) {
        struct ct_buf who;
        ct_buf_init(&who, 0);
        ct_casualty_print(&casualty, &who);
        ct_log_event(&node->log, CT_LOG_ERROR, "job_failed", "%s", ct_buf_str(&who));
        ct_buf_deinit(&who);
    } else {
        struct ct_buf *lines = ct_console_lines(node->console, CT_CONSOLE_ERR);
        ct_summary_failed(node->job->cfg.launch.rdzv_id, &casualty, node->result.restarts,
                          (uint32_t)node->job->cfg.launch.max_restarts, node->status, lines);
        if (wants_table(node)) {
            print_table(node, &root, lines);
            node->named_file = root.path[0] != '\0' &&
                               failures_of(&node->failures, cause->generation, cause->rank) != NULL;
        }
        ct_console_flush(node->console);
    }
    ct_arena_deinit(&arena);
}

/* Who started this ctrun may want to know, as a launcher of launchers does. */
static void leave_error_file(const struct node *node)
{
    const char *path = ct_env_find(node->job->env, "TORCHELASTIC_ERROR_FILE");
    struct ct_failure root = root_of(node);

    if (path == NULL || path[0] == '\0')
        return;
    if (node->result.cause.rank < 0) /* no worker's end, but what the text says */
        root.end = (struct ct_exit){.status = node->status};
    failures_write(&root, path);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

/* What a training that was stopped can go on from, as the trainer would find it; "" for programs
 * that keep no checkpoints of ours. */
static void print_checkpoint(const struct node *node, char *to, size_t size)
{
    const char *dir = node->job->cfg.checkpoint.dir;
    char path[PATH_MAX];
    struct ct_ckpt_state state;

    to[0] = '\0';
    if (!node->job->program.native || dir[0] == '\0')
        return;
    if (ct_ckpt_latest(dir, path, NULL) == 0 && ct_ckpt_open(path, &state, NULL) == 0)
        (void)snprintf(to, size, "the newest checkpoint is that of step %llu, %s",
                       (unsigned long long)state.step, path);
    else
        (void)snprintf(to, size, "there is no whole checkpoint in %s", dir);
}

/* A worker that was to end in order has not. */
static void tell_unstopped(struct node *node)
{
    const struct ct_rdzv_failure *first = &node->unstopped_first;
    const struct ct_casualty casualty = {
        .rank = first->rank,
        .local_rank = first->local_rank,
        .node = -1,
        .pid = first->pid,
        .status = first->status,
        .signal = first->signal,
        .code = first->code,
        .host = first->host,
        .text = first->text,
    };
    char checkpoint[PATH_MAX + 64];
    struct ct_buf who;

    print_checkpoint(node, checkpoint, sizeof checkpoint);
    if (!node->log.json) {
        ct_summary_stopped(node->job->cfg.launch.rdzv_id, &casualty, node->unstopped - 1,
                           checkpoint, node->status,
                           ct_console_lines(node->console, CT_CONSOLE_ERR));
        ct_console_flush(node->console);
        return;
    }
    ct_buf_init(&who, 0);
    ct_casualty_print(&casualty, &who);
    ct_log_event(&node->log, CT_LOG_ERROR, "stop_failed", "%s while it was stopped; %s",
                 ct_buf_str(&who), checkpoint);
    ct_buf_deinit(&who);
}

static void tell_stop(struct node *node)
{
    const char *why = node->requeue ? " to be queued again" : "";
    char name[32], killed[64] = "";

    (void)ct_signal_name(node->stopped_by, name, sizeof name);
    if (node->killed > 0 && !node->hurry)
        (void)snprintf(killed, sizeof killed, ", %u of them killed after launch.grace",
                       node->killed);
    if (node->stopped_count == 0)
        ct_log_event(&node->log, CT_LOG_INFO, "stopped", "stopped by %s%s; no worker was running",
                     name, why);
    else
        ct_log_event(&node->log, CT_LOG_INFO, "stopped",
                     "stopped by %s%s; %u worker%s ended within %.1f s%s%s", name, why,
                     node->stopped_count, node->stopped_count == 1 ? "" : "s",
                     (double)(uv_now(&node->loop) - node->stopped_at_ms) / 1000, killed,
                     node->released ? "; the job goes on without this node" : "");
}

void words_closing(struct node *node)
{
    ct_console_live(node->console, "");
    if (node->stopped_by != 0)
        tell_stop(node);
    else if (node->error.code != 0)
        ct_log_event(&node->log, CT_LOG_ERROR, "failed", "%s", node->error.text);
    else if (node->released)
        ct_log_event(&node->log, CT_LOG_INFO, "released", "the job goes on without this node");
    else if (node->result.code == CT_ECLOSED || node->result.code == CT_EREQUEUE)
        /* by its user, from another node */
        ct_log_event(&node->log, CT_LOG_INFO, "stopped", "%s", node->result.cause.text);
    else if (node->result.code != 0) {
        tell_failure(node);
        leave_error_file(node);
    }
    if (node->unstopped > 0)
        tell_unstopped(node);
}
