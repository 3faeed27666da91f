/* See guard_uv.h. */
#include "guard_uv.h"

#include "launch/failure/summary.h"
#include "node_state_uv.h"

static void warn(const struct node *node, const char *what)
{
    ct_log_event(
        &node->log, CT_LOG_WARN, "no_guard",
        "%s: if this ctrun is killed by SIGKILL, its workers still end, but what they have "
        "started lives on, and its temporary files stay; the job goes on%s",
        what,
        node->job->slurm != NULL
            ? ", and a signal that Slurm sends to all processes reaches workers twice"
            : "");
}

/* It never says anything: there is something to read when its end is closed. */
static void on_end(uv_poll_t *poll, int status, int events)
{
    struct node *node = poll->data;
    char what[160], name[32] = "";

    (void)status;
    (void)events;
    (void)uv_poll_stop(poll);
    const struct ct_exit end = ct_guard_bury(&node->guard);
    if (end.signal != 0)
        (void)ct_signal_name(end.signal, name, sizeof name);
    (void)snprintf(what, sizeof what, "ctrun-guard, the process beside the workers, has ended%s%s",
                   end.signal != 0 ? " by " : "", name);
    warn(node, what);
}

void guard_watch(struct node *node)
{
    if (node->guard.link < 0 ||
        uv_poll_init(&node->loop, &node->guard_end, node->guard.link) != 0) {
        warn(node, "ctrun-guard, the process beside the workers, could not be started");
        return;
    }
    node->guard_is_watched = true;
    node->guard_end.data = node;
    (void)uv_poll_start(&node->guard_end, UV_READABLE | UV_DISCONNECT, on_end);
}

void guard_close(struct node *node)
{
    if (node->guard_is_watched)
        uv_close((uv_handle_t *)&node->guard_end, NULL);
}
