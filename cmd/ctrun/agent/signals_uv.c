/* See signals_uv.h. */
#include "signals_uv.h"

#include "base/signals.h"
#include "launch/summary.h"
#include "node_state_uv.h"

#include <signal.h>

enum { HOLD_MS = 200 }; /* all processes of a step get a signal within so long */

/* ---- what they do --------------------------------------------------------------------------- */

/* The first stops the job; on a node of an elastic job all but Ctrl-C take out this node, at the
 * next step boundary. The second kills what is left. While this node stays as the rendezvous of a
 * job that goes on without its workers, the first only warns. */
static void end(struct node *node, int signal)
{
    const struct ct_config *cfg = &node->job->cfg;
    bool leaves = cfg->launch.nnodes.min < cfg->launch.nnodes.max && signal != SIGINT;

    if (node_warn_stay(node, signal))
        return;
    if (node->stopped_by != 0 || node->ending)
        node_hurry(node);
    else
        node_stop(node, signal, leaves ? CT_RDZV_LEAVE_DRAIN : CT_RDZV_LEAVE_STOP);
}

/* It means something to the workers; the job goes on. */
static void pass_on(struct node *node, int signal)
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

static void act(struct node *node, int signal)
{
    node_trace(node, "> signal %d", signal);
    if (ct_signals_has(node->signals.ends, signal))
        end(node, signal);
    else if (ct_signals_has(node->signals.forwards, signal))
        pass_on(node, signal);
    else
        node_requeue(node, signal); /* Slurm may send it more than once */
}

int signals_to_send(struct node *node, int signal)
{
    bool reached = ct_signals_has(node->signals.reached, signal);

    if (!reached && node->job->slurm != NULL && ct_guard_heard(&node->guard, signal))
        reached = true;
    /* What ends the job is asked for more than once; what is passed on comes anew. */
    if (reached && !ct_signals_has(node->signals.forwards, signal))
        node->signals.reached |= 1ull << signal;
    return reached ? 0 : signal;
}

/* ---- when ----------------------------------------------------------------------------------- */

static void on_held(uv_timer_t *timer)
{
    struct node *node = timer->data;
    uint64_t held = node->signals.held;

    node->signals.held = 0;
    for (int signal = 1; signal < NODE_SIGNALS; signal++)
        if (ct_signals_has(held, signal))
            act(node, signal);
}

static void on_signal(uv_signal_t *handle, int signal)
{
    struct node *node = handle->data;

    if (node->job->slurm == NULL || node->ending) {
        act(node, signal);
        return;
    }
    node->signals.held |= 1ull << signal;
    (void)uv_timer_start(&node->signals.hold, on_held, HOLD_MS, 0);
}

bool signals_claim(struct node *node, int signal)
{
    uint64_t bit = signal > 0 && signal < NODE_SIGNALS ? 1ull << signal : 0;
    bool requeues = ct_signals_has(node->signals.requeue, signal);

    if (!requeues && (node->signals.held & node->signals.ends & bit) == 0)
        return false;
    node->signals.held &= ~bit;
    act(node, signal);
    return true;
}

void signals_watch(struct node *node)
{
    struct signals *signals = &node->signals;
    struct sigaction before;

    signals->requeue = ct_config_requeue_signals(&node->job->cfg);
    ct_config_signals(&node->job->cfg, &signals->ends, &signals->forwards);
    (void)uv_timer_init(&node->loop, &signals->hold);
    signals->hold.data = node;
    for (int signal = 1; signal < NODE_SIGNALS; signal++) {
        if (!ct_signals_has(signals->ends | signals->forwards | signals->requeue, signal))
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
    uv_close((uv_handle_t *)&signals->hold, NULL);
    /* Their closed handles have left them a deadly default. */
    for (int number = 1; number < NODE_SIGNALS; number++)
        if (ct_signals_has(signals->forwards | signals->requeue, number))
            (void)signal(number, SIG_IGN);
}
