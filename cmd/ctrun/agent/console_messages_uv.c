/* What the user is told while the job runs. */
#include "node_state_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "job/round.h"
#include "launch/failure/summary.h"
#include "net/endpoint.h"

#include <string.h>

enum { WAIT_MS = 1000 };

static void on_notice(uv_timer_t *timer)
{
    struct node *node = timer->data;

    node->waiting.waiting_shown_ms = uv_now(&node->loop);
    ct_log_event(&node->log, CT_LOG_INFO, "waiting", "%s", node->waiting.text);
}

void show_waiting(struct node *node, const char *text)
{
    uint64_t now_ms = uv_now(&node->loop);

    if (text == NULL || text[0] == '\0') {
        node->waiting.text[0] = '\0';
        (void)uv_timer_stop(&node->waiting.timer);
        return;
    }
    if (strcmp(node->waiting.text, text) == 0)
        return;
    if (node->waiting.text[0] == '\0')
        node->waiting.since_ms = now_ms;
    (void)ct_str_copy(node->waiting.text, sizeof node->waiting.text, text);
    uint64_t due_ms = CT_MAX(node->waiting.since_ms, node->waiting.waiting_shown_ms) + WAIT_MS;
    (void)uv_timer_start(&node->waiting.timer, on_notice, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

/* Keep what happened, for the words about the restart. */
void show_failure(struct node *node, const struct ct_worker_failure *failure)
{
    if (node->report.generation == node->round->generation)
        return; /* the first of a round is its cause */
    node->report.generation = node->round->generation;
    ct_buf_clear(&node->report.who);
    ct_failure_print(&failure->record, (int32_t)node->round->self, &node->report.who);
    if (failure->record.error_file[0] != '\0')
        (void)ct_buf_printf(&node->report.who, " (%.*s)", (int)strcspn(failure->sentence, "\n"),
                            failure->sentence);
}

void show_casualty(struct node *node, const struct ct_worker_failure *failure)
{
    const struct job *job = node->job;
    uint64_t generation = node->core.running;

    if (generation == 0)
        return;
    failures_add(&node->report.failures, generation, failure);
    if (!job->folder.stays || failure->stopped || failure->record.error_file[0] != '\0')
        return;
    /* Readers of error files find one for each failure. */
    const struct ct_worker_failure *kept =
        failures_of(&node->report.failures, generation, failure->record.rank);
    if (kept != NULL && kept->own_path[0] != '\0')
        failures_write(&kept->record, kept->own_path);
}

static const char *of_this_node(const struct node *node)
{
    return node->round->node_count > 1 ? " of this node" : "";
}

/* Is another node of the round where the rendezvous was? */
static bool was_hosted_in_round(const struct node *node, const char *endpoint)
{
    const struct ct_round *round = node->round;
    struct ct_endpoint at;

    if (!node->host.replicated || round == NULL || round->nodes == NULL ||
        ct_endpoint_parse(endpoint, -1, &at, NULL) != 0)
        return false;
    for (uint32_t i = 0; i < round->node_count; i++)
        if (i != round->self && (strcmp(round->nodes[i].address, at.host) == 0 ||
                                 strcmp(round->nodes[i].host, at.host) == 0))
            return true;
    return false;
}

void show_unlinked(struct node *node, const char *why)
{
    const char *endpoint = ct_agent_endpoint(node->agent);

    ct_log_event(
        &node->log, CT_LOG_WARN, "rdzv_link",
        "the rendezvous at %s is gone, the workers go on %s: %s", endpoint,
        was_hosted_in_round(node, endpoint) ? "as long as the node there does" : "meanwhile", why);
}

/* With a key people expect that nothing goes in clear: one line, of node 0, where something
 * does. */
static void show_clear_data(const struct node *node)
{
    const struct ct_config *cfg = &node->job->cfg;
    bool native = node->job->program.native;

    if (!key_option_given(cfg) || node->round->node_count < 2 || node->round->self != 0 ||
        (native && cfg->parallel.encrypt))
        return;
    ct_log_event(&node->log, CT_LOG_INFO, "clear_data", "%s",
                 native ? "the workers' data goes between nodes in clear, the key protects the "
                          "rendezvous: --parallel.encrypt true has it encrypted, at about 2 GB/s a "
                          "core"
                        : "the key protects the rendezvous and PyTorch's store; what the processes "
                          "send each other themselves (NCCL, Gloo) goes in clear");
}

void show_joined(struct node *node)
{
    const struct ct_round *round = node->round;

    if (node->job->cfg.launch.nnodes.max > 1)
        ct_log_event(&node->log, CT_LOG_INFO, "joined",
                     "joined the job at %s as node %u of %u (%u ranks)", node->host.endpoint,
                     round->self, round->node_count, round->world);
    show_clear_data(node);
}

void show_restart(struct node *node, uint32_t survivors)
{
    const struct ct_round *round = node->round;
    const char *who = node->reason == CT_RDZV_REASON_LOST ? "another node was lost"
                                                          : "a worker of another node failed";
    uint32_t slots = node->job->slots;

    if (node->report.generation != 0 && node->report.generation + 1 == round->generation)
        who = ct_buf_str(&node->report.who);
    ct_console_live(node->console, "");
    if (survivors == 0 || round->lineage == 0)
        ct_log_event(&node->log, CT_LOG_WARN, "restart", "%s; restart %u of %u follows", who,
                     round->restarts, round->max_restarts);
    else
        ct_log_event(&node->log, CT_LOG_WARN, "restart",
                     "%s; %u of %u workers%s continue from step %llu%s (restart %u of %u)", who,
                     survivors, slots, of_this_node(node), (unsigned long long)round->base_step,
                     survivors == slots       ? ""
                     : slots - survivors == 1 ? ", the other is started again"
                                              : ", the others are started again",
                     round->restarts, round->max_restarts);
}

void show_regroup(struct node *node, uint32_t survivors)
{
    const struct ct_round *round = node->round;
    const char *s = survivors == 1 ? "s" : "";
    char from[64];

    if (round->lineage > 0)
        (void)snprintf(from, sizeof from, "continue%s from step %llu", s,
                       (unsigned long long)round->base_step);
    else /* nobody holds the state */
        (void)snprintf(from, sizeof from, "live%s on", s);
    ct_console_live(node->console, "");
    ct_log_event(&node->log, CT_LOG_INFO, "regroup",
                 "%u node%s, %u ranks from now on; %u worker%s%s %s", round->node_count,
                 round->node_count == 1 ? "" : "s", round->world, survivors,
                 survivors == 1 ? "" : "s", of_this_node(node), from);
}
