/* See signals_uv.h. */
#include "signals_uv.h"

#include "base/signals.h"
#include "launch/failure/summary.h"
#include "node_state_uv.h"

#include <signal.h>

_Static_assert(AGENT_SIGINT == SIGINT && AGENT_SIGPIPE == SIGPIPE && AGENT_SIGTERM == SIGTERM,
               "the core's numbers are the system's");

int signals_to_send(struct node *node, int signal)
{
    struct signals *signals = &node->signals;
    bool reached = ct_signals_has(signals->reached, signal);

    if (!reached && node->job->slurm != NULL && ct_guard_received(&node->guard, signal))
        reached = true;
    /* What ends the job is asked for more than once; what is passed on comes anew. */
    if (reached && !ct_signals_has(signals->forwards, signal))
        signals->reached |= 1ull << signal;
    return reached ? 0 : signal;
}

static void forward(struct node *node, int signal)
{
    char name[32];

    (void)ct_signal_name(signal, name, sizeof name);
    if (node->job->program.native) /* it would die of it */
        ct_log_event(&node->log, CT_LOG_INFO, "signal", "%s is not passed on: ctworker knows none",
                     name);
    else if (signals_to_send(node, signal) != 0 && ct_workers_signal(node->workers, signal) == 0)
        ct_log_event(&node->log, CT_LOG_INFO, "signal",
                     "%s reached nobody: no worker runs here now", name);
}

void signals_forward(struct node *node, uint64_t set)
{
    for (int signal = 1; signal < NODE_SIGNALS; signal++)
        if (ct_signals_has(set, signal))
            forward(node, signal);
}

static void on_signal(uv_signal_t *handle, int signal)
{
    struct node *node = handle->data;

    node_feed(node, &(struct agent_event){.kind = AGENT_ON_SIGNAL, .signal = signal});
    if (node->core.forced) {
        wandb_hurry(node->wandb);
        job_events_hurry(node->events);
    }
}

void signals_watch(struct node *node)
{
    struct signals *signals = &node->signals;
    const struct agent_settings *settings = &node->core.settings;
    uint64_t all = settings->ends | settings->forwards | settings->requeues;
    struct sigaction before;

    signals->forwards = settings->forwards;
    signals->ignored_late = settings->forwards | settings->requeues;
    for (int signal = 1; signal < NODE_SIGNALS; signal++) {
        if (!ct_signals_has(all, signal))
            continue;
        uv_signal_t *handle = &signals->handles[signals->count++];
        (void)uv_signal_init(&node->loop, handle);
        handle->data = node;
        /* nohup, a shell's background */
        if (sigaction(signal, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
            (void)uv_signal_start(handle, on_signal, signal);
    }
}

void signals_close(struct node *node)
{
    struct signals *signals = &node->signals;

    for (int i = 0; i < signals->count; i++)
        uv_close((uv_handle_t *)&signals->handles[i], NULL);
    /* Their closed handles have left them a deadly default. */
    for (int number = 1; number < NODE_SIGNALS; number++)
        if (ct_signals_has(signals->ignored_late, number))
            (void)signal(number, SIG_IGN);
}
