/* See wandb_uv.h. The process is one of the node's children, which the workers' side waits for. */
#include "wandb_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "job/wandb_python.h"
#include "node_state_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FINISH_MS = 20000, /* less than schedulers give a job after SIGTERM */
    LINE_BYTES = 1024,
};

struct wandb {
    struct node *node;
    char folder[PATH_MAX]; /* that is followed, or to be when the process before has ended */
    pid_t pid;             /* 0: none runs */
    int input;             /* its standard input; -1: ended */
    bool leaving;          /* its input has ended */
    bool again;            /* another is to follow `folder` */
    bool broken;           /* it has failed, and that was told: none is started any more */
    bool killed;
    uv_pipe_t words;
    bool reads; /* `words` is open */
    char line[LINE_BYTES];
    size_t line_size;
    uv_timer_t timer; /* of the end */
    bool finishing;
    void (*finished)(struct node *node);
};

int wandb_new(struct node *node, struct wandb **ret_wandb, struct ct_error *err)
{
    *ret_wandb = NULL;
    if (node->job->wandb_python == NULL)
        return 0;
    struct wandb *wandb = calloc(1, sizeof *wandb);
    if (wandb == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    wandb->node = node;
    wandb->input = -1;
    (void)uv_timer_init(&node->loop, &wandb->timer);
    wandb->timer.data = wandb;
    *ret_wandb = wandb;
    return 0;
}

/* ---- what it says --------------------------------------------------------------------------- */

static void tell_line(struct wandb *wandb)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    wandb->line[wandb->line_size] = '\0';
    if (wandb->line_size > 2 && wandb->line[1] == ' ') {
        ct_buf_put_clean(&text, wandb->line + 2, "");
        ct_log_event(&wandb->node->log, wandb->line[0] == 'W' ? CT_LOG_WARN : CT_LOG_INFO, "wandb",
                     "wandb: %s", ct_buf_str(&text));
    }
    ct_buf_deinit(&text);
    wandb->line_size = 0;
}

/* Whole lines; what is longer than a line may be is cut. */
static void take_words(struct wandb *wandb, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] == '\n')
            tell_line(wandb);
        else if (wandb->line_size < LINE_BYTES - 1)
            wandb->line[wandb->line_size++] = data[i];
}

static void on_words(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf)
{
    if (size > 0)
        take_words(stream->data, buf->base, (size_t)size);
    else if (size < 0)
        (void)uv_read_stop(stream);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char chunk[LINE_BYTES]; /* of one loop, and used up before the next call */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(chunk, sizeof chunk);
}

/* What it said last may not have been read yet. */
static void read_rest(struct wandb *wandb)
{
    char chunk[LINE_BYTES];
    ssize_t size;
    int fd;

    if (uv_fileno((uv_handle_t *)&wandb->words, &fd) != 0)
        return;
    for (int i = 0; i < 16 && (size = read(fd, chunk, sizeof chunk)) > 0; i++)
        take_words(wandb, chunk, (size_t)size);
}

/* ---- birth and death of the process --------------------------------------------------------- */

/* Those of them that are open. */
static void close_both(int a, int b)
{
    if (a >= 0)
        (void)close(a);
    if (b >= 0)
        (void)close(b);
}

static void start(struct wandb *wandb)
{
    struct node *node = wandb->node;
    const char *mode = node->job->cfg.log.wandb == CT_CONFIG_WANDB_ONLINE ? "online" : "offline";
    const char *const args[] = {"follow", wandb->folder, mode, NULL};
    int ends[2] = {-1, -1}, words[2] = {-1, -1};
    struct ct_error err = {0};
    int rc = 0;

    wandb->again = wandb->leaving = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
        pipe2(words, O_CLOEXEC) != 0 || fcntl(words[0], F_SETFL, O_NONBLOCK) != 0)
        rc = ct_error_set(&err, CT_EOS, "no pipe: %s", strerror(errno));
    if (rc == 0)
        rc = wandb_spawn(node->job->wandb_python, node->job->env, args,
                         (const int[]){ends[1], words[1], words[1]}, &wandb->pid, &err);
    close_both(ends[1], words[1]);
    if (rc != 0) {
        ct_log_event(&node->log, CT_LOG_WARN, "wandb", "wandb: not started: %s", err.text);
        wandb->broken = true;
        close_both(ends[0], words[0]);
        return;
    }
    wandb->input = ends[0];
    wandb->line_size = 0;
    (void)uv_pipe_init(&node->loop, &wandb->words, 0);
    (void)uv_pipe_open(&wandb->words, words[0]);
    wandb->words.data = wandb;
    wandb->reads = true;
    (void)uv_read_start((uv_stream_t *)&wandb->words, on_room, on_words);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct wandb *wandb = handle->data;
    struct node *node = wandb->node;
    void (*finished)(struct node * of) = wandb->finished;

    free(wandb);
    node->wandb = NULL;
    finished(node);
}

static void close_last(struct wandb *wandb)
{
    uv_close((uv_handle_t *)&wandb->timer, on_timer_closed);
}

static void on_words_closed(uv_handle_t *handle)
{
    struct wandb *wandb = handle->data;

    wandb->reads = false;
    if (wandb->finishing)
        close_last(wandb);
    else if (wandb->again && !wandb->broken)
        start(wandb);
}

/* End its input, with the job's exit status when there is one. */
static void end_input(struct wandb *wandb, const char *words)
{
    wandb->leaving = true;
    if (wandb->input < 0)
        return;
    (void)send(wandb->input, words, strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(wandb->input);
    wandb->input = -1;
}

void wandb_reaped(struct wandb *wandb, pid_t pid, int status)
{
    if (wandb == NULL || wandb->pid != pid || pid <= 0)
        return;
    wandb->pid = 0;
    end_input(wandb, "");
    read_rest(wandb);
    if (wandb->killed) {
        ct_log_event(&wandb->node->log, CT_LOG_WARN, "wandb",
                     "wandb: it was not done in time, and was ended; what it has is in %s/wandb",
                     wandb->folder);
    } else if (WIFSIGNALED(status)) {
        ct_log_event(&wandb->node->log, CT_LOG_WARN, "wandb",
                     "wandb: its process was ended by signal %d; nothing more is handed over, "
                     "metrics.jsonl has all of it",
                     WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != WANDB_TOLD) {
        ct_log_event(&wandb->node->log, CT_LOG_WARN, "wandb",
                     "wandb: its process exited with status %d (%s/wandb/ctrun.log); nothing more "
                     "is handed over, metrics.jsonl has all of it",
                     WEXITSTATUS(status), wandb->folder);
    }
    wandb->broken = wandb->killed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    uv_close((uv_handle_t *)&wandb->words, on_words_closed);
}

/* ---- the job's course ----------------------------------------------------------------------- */

void wandb_follow(struct wandb *wandb, const char *folder)
{
    if (wandb == NULL || wandb->broken || wandb->finishing || folder[0] == '\0')
        return;
    bool same = strcmp(wandb->folder, folder) == 0;
    if (wandb->pid != 0 && same && !wandb->leaving)
        return;
    (void)ct_str_copy(wandb->folder, sizeof wandb->folder, folder);
    if (wandb->pid == 0 && !wandb->reads) {
        start(wandb);
        return;
    }
    end_input(wandb, "");
    wandb->again = true;
}

void wandb_leave(struct wandb *wandb)
{
    if (wandb == NULL)
        return;
    wandb->again = false;
    if (wandb->pid != 0)
        end_input(wandb, "");
}

static void on_late(uv_timer_t *timer)
{
    struct wandb *wandb = timer->data;

    wandb->killed = true;
    if (wandb->pid > 0)
        (void)kill(-wandb->pid, SIGKILL);
}

void wandb_finish(struct wandb *wandb, void (*finished)(struct node *node), struct node *node)
{
    char end[32];

    if (wandb == NULL) {
        finished(node);
        return;
    }
    wandb->finished = finished;
    wandb->finishing = true;
    if (wandb->pid == 0) {
        if (!wandb->reads) /* else it closes, and then the rest */
            close_last(wandb);
        return;
    }
    (void)snprintf(end, sizeof end, "end %d\n", node->core.status);
    end_input(wandb, end);
    show_waiting(node, "waiting for wandb to take the last records");
    (void)uv_timer_start(&wandb->timer, on_late, node->core.forced ? 0 : FINISH_MS, 0);
}

void wandb_hurry(struct wandb *wandb)
{
    if (wandb != NULL && wandb->finishing && wandb->pid != 0)
        on_late(&wandb->timer);
}
