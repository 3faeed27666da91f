/* See hooks_uv.h. */
#include "hook/hooks_uv.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "hook/hook_queue.h"
#include "launch/spawn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RECORD_BYTES = 16 << 10,
    VARIABLES = 5,
    VARIABLE_BYTES = 192,
    WORDS_BYTES = 512, /* of what a process says, the last are kept */
    READ_TIMES = 64,   /* at its end, that are left in its pipe */
};

static const char prefix[] = "CTRUN_EVENT"; /* of all variables below */

struct ct_hooks {
    struct ct_hooks_options options;
    struct ct_hook_queue queue;
    uv_timer_t timer;
    uv_signal_t sigchld; /* when it reaps */
    size_t handles;      /* that are open */
    int null_fd;
    size_t dropped; /* since the queue was empty last */
    bool failing;   /* that was said, and nothing has been taken since */
    bool finishing, closing;
    void (*finished)(void *context);
    void *context;
};

/* An event on its way. */
struct hook {
    struct ct_hook_entry entry; /* the first field: the queue hands it back */
    struct ct_hooks *hooks;
    pid_t pid; /* 0: no process of it runs */
    uv_pipe_t words;
    bool reads; /* `words` is open */
    bool taken; /* as its last process has ended */
    bool left;  /* it is out of the queue, and goes when `words` is closed */
    char why[160];
    char said[WORDS_BYTES];
    size_t said_size;
    char job[160], kind[32];
    uint64_t number;
    char variables[VARIABLES][VARIABLE_BYTES];
    char record[];
};

static void pump(struct ct_hooks *hooks);

/* ---- what the user is told ------------------------------------------------------------------ */

/* The last line that its process has said, without what could drive a terminal. */
static void put_last_line(const struct hook *hook, struct ct_buf *to)
{
    char text[WORDS_BYTES + 1];
    size_t size = hook->said_size;

    while (size > 0 && (hook->said[size - 1] == '\n' || hook->said[size - 1] == '\r'))
        size--;
    memcpy(text, hook->said, size);
    text[size] = '\0';
    const char *line = strrchr(text, '\n');
    line = line != NULL ? line + 1 : text;
    if (line[0] != '\0') {
        (void)ct_buf_puts(to, ": ");
        ct_buf_put_clean(to, line, "");
    }
}

static void tell_failure(const struct hook *hook, bool again)
{
    const struct ct_hooks *hooks = hook->hooks;
    struct ct_buf last;

    ct_buf_init(&last, 0);
    put_last_line(hook, &last);
    ct_log_event(hooks->options.log, CT_LOG_WARN, "hook",
                 "%s did not take event %" PRIu64 " (%s) of job %s%s: %s%s",
                 hooks->options.target->name, hook->number, hook->kind, hook->job,
                 again ? "; it is tried again" : ", which is given up", hook->why,
                 ct_buf_str(&last));
    ct_buf_deinit(&last);
}

static void tell_dropped(struct ct_hooks *hooks)
{
    if (hooks->dropped > 1)
        ct_log_event(hooks->options.log, CT_LOG_WARN, "hook",
                     "%zu events were dropped while others waited for %s", hooks->dropped,
                     hooks->options.target->name);
    hooks->dropped = 0;
}

static void note_dropped(struct ct_hooks *hooks, uint64_t number, const char *kind, const char *job)
{
    if (hooks->dropped++ == 0)
        ct_log_event(hooks->options.log, CT_LOG_WARN, "hook",
                     "event %" PRIu64 " (%s) of job %s is dropped: too many wait for %s already",
                     number, kind, job, hooks->options.target->name);
}

/* ---- the end of all ------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_hooks *hooks = handle->data;
    void (*finished)(void *context) = hooks->finished;
    void *context = hooks->context;

    if (--hooks->handles > 0)
        return;
    if (hooks->null_fd >= 0)
        (void)close(hooks->null_fd);
    free(hooks);
    if (finished != NULL)
        finished(context);
}

static void close_all(struct ct_hooks *hooks)
{
    if (hooks->closing)
        return;
    hooks->closing = true;
    tell_dropped(hooks);
    uv_close((uv_handle_t *)&hooks->timer, on_handle_closed);
    if (hooks->options.reaps)
        uv_close((uv_handle_t *)&hooks->sigchld, on_handle_closed);
}

/* ---- the end of a try ----------------------------------------------------------------------- */

/* Its process has ended, or could not be started, and all it said is read. */
static void conclude(struct hook *hook)
{
    struct ct_hooks *hooks = hook->hooks;
    enum ct_hook_fate fate =
        ct_hook_ended(&hooks->queue, uv_now(hooks->options.loop), &hook->entry, hook->taken);

    if (fate == CT_HOOK_TAKEN)
        hooks->failing = false;
    else if (fate == CT_HOOK_GIVEN_UP || !hooks->failing)
        tell_failure(hook, fate == CT_HOOK_AGAIN);
    if (fate == CT_HOOK_AGAIN)
        hooks->failing = true;
    else
        free(hook);
    if (hooks->queue.count == 0)
        tell_dropped(hooks);
}

static void on_words_closed(uv_handle_t *handle)
{
    struct hook *hook = handle->data;
    struct ct_hooks *hooks = hook->hooks;

    hook->reads = false;
    if (hook->left)
        free(hook);
    else
        conclude(hook);
    if (!hooks->closing)
        pump(hooks);
    on_handle_closed((uv_handle_t *)&hooks->timer); /* one handle less; its data is `hooks` */
}

/* Keep the last bytes. */
static void keep_words(struct hook *hook, const char *data, size_t size)
{
    size_t added = CT_MIN(size, sizeof hook->said);
    size_t kept = CT_MIN(hook->said_size, sizeof hook->said - added);

    memmove(hook->said, hook->said + hook->said_size - kept, kept);
    memcpy(hook->said + kept, data + size - added, added);
    hook->said_size = kept + added;
}

static void on_words(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf)
{
    if (size > 0)
        keep_words(stream->data, buf->base, (size_t)size);
    else if (size < 0)
        (void)uv_read_stop(stream);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char chunk[4096]; /* of one loop, and used up before the next call */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(chunk, sizeof chunk);
}

/* What its process wrote last may not have been read yet. A child of it may hold the pipe for
 * ever. */
static void read_rest(struct hook *hook)
{
    char chunk[4096];
    ssize_t size = 1;
    int fd;

    if (uv_fileno((uv_handle_t *)&hook->words, &fd) != 0)
        return;
    for (int i = 0; i < READ_TIMES && (size = read(fd, chunk, sizeof chunk)) > 0; i++)
        keep_words(hook, chunk, (size_t)size);
}

void ct_hooks_reaped(struct ct_hooks *hooks, pid_t pid, int status)
{
    for (struct ct_hook_entry *entry = hooks->queue.first; entry != NULL; entry = entry->next) {
        struct hook *hook = (struct hook *)entry;

        if (hook->pid != pid || pid <= 0)
            continue;
        hook->pid = 0;
        hook->taken = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (entry->state == CT_HOOK_KILLED)
            (void)snprintf(hook->why, sizeof hook->why, "it took longer than %g s, and was ended",
                           (double)hooks->options.timeout_ms / 1000);
        else if (WIFSIGNALED(status))
            (void)snprintf(hook->why, sizeof hook->why, "it was ended by signal %d",
                           WTERMSIG(status));
        else
            (void)snprintf(hook->why, sizeof hook->why, "it exited with status %d",
                           WEXITSTATUS(status));
        read_rest(hook);
        uv_close((uv_handle_t *)&hook->words, on_words_closed);
        return;
    }
}

static void on_sigchld(uv_signal_t *handle, int number)
{
    struct ct_hooks *hooks = handle->data;
    int status;

    (void)number;
    for (struct ct_hook_entry *entry = hooks->queue.first, *next; entry != NULL; entry = next) {
        pid_t pid = ((struct hook *)entry)->pid;

        next = entry->next;
        if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid)
            ct_hooks_reaped(hooks, pid, status);
    }
}

/* ---- a try ---------------------------------------------------------------------------------- */

/* A file in memory with what the process is to read: it never waits for who writes. */
static int make_input(const struct hook *hook)
{
    const struct ct_hooks *hooks = hook->hooks;
    const struct ct_hook_target *target = hooks->options.target;
    int fd = memfd_create("event", MFD_CLOEXEC);
    struct ct_buf text;

    ct_buf_init(&text, 0);
    if (target->url != NULL) /* less than a try has: its own sentence says what took so long */
        ct_hook_put_curl(target, hook->record, hooks->options.timeout_ms * 9 / 10, &text);
    else
        (void)ct_buf_printf(&text, "%s\n", hook->record);
    if (fd >= 0 && (text.failed || ct_fs_write_all(fd, text.data, text.size) != 0 ||
                    lseek(fd, 0, SEEK_SET) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    ct_buf_deinit(&text);
    return fd;
}

/* The environment with the event's variables in place of any of such names. NULL without memory;
 * free(3) frees it. */
static char **make_environment(struct hook *hook)
{
    char *const *from = hook->hooks->options.env;
    size_t count = 0, used = 0;

    while (from[count] != NULL)
        count++;
    char **list = calloc(count + VARIABLES + 1, sizeof *list);
    for (size_t i = 0; i < count && list != NULL; i++)
        if (!ct_starts_with(from[i], prefix))
            list[used++] = from[i];
    for (size_t i = 0; i < VARIABLES && list != NULL; i++)
        list[used++] = hook->variables[i];
    return list;
}

static int spawn(struct hook *hook, int input, int error_fd, struct ct_error *err)
{
    static char curl[] = "curl", bare[] = "-q", config[] = "--config", dash[] = "-";
    static char *const for_curl[] = {curl, bare, config, dash, NULL};
    const struct ct_hooks *hooks = hook->hooks;
    const struct ct_hook_target *target = hooks->options.target;
    char *path = strdup(target->path), *const alone[] = {path, NULL};
    char **env = make_environment(hook);
    const struct ct_spawn how = {.path = target->path,
                                 .argv = target->url != NULL ? for_curl : alone,
                                 .envp = env,
                                 .fds = {input, hooks->null_fd, error_fd, -1, -1, -1}};
    int rc = path != NULL && env != NULL ? ct_spawn(&how, &hook->pid, err)
                                         : ct_error_set(err, CT_ENOMEM, "out of memory");

    free(path);
    free(env);
    return rc;
}

static void start(struct hook *hook)
{
    struct ct_hooks *hooks = hook->hooks;
    struct ct_error err = {0};
    int ends[2] = {-1, -1}, input = make_input(hook);

    hook->taken = false;
    hook->said_size = 0;
    int rc = input >= 0 && pipe2(ends, O_CLOEXEC) == 0
                 ? spawn(hook, input, ends[1], &err)
                 : ct_error_set(&err, CT_EOS, "no descriptors for its input and its messages");
    if (input >= 0)
        (void)close(input);
    if (ends[1] >= 0)
        (void)close(ends[1]);
    if (rc != 0) {
        if (ends[0] >= 0)
            (void)close(ends[0]);
        (void)ct_str_copy(hook->why, sizeof hook->why, err.text);
        conclude(hook);
        return;
    }
    (void)uv_pipe_init(hooks->options.loop, &hook->words, 0);
    hook->words.data = hook;
    hook->reads = true;
    hooks->handles++;
    if (uv_pipe_open(&hook->words, ends[0]) != 0) /* which makes it non-blocking */
        (void)close(ends[0]);
    else
        (void)uv_read_start((uv_stream_t *)&hook->words, on_room, on_words);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    pump(timer->data);
}

/* Its time is over: what runs is ended and not waited for. */
static void drop_rest(struct ct_hooks *hooks, uint64_t now_ms)
{
    struct ct_hook_entry *entry;
    size_t count = 0;

    while ((entry = ct_hook_drop(&hooks->queue, now_ms)) != NULL) {
        struct hook *hook = (struct hook *)entry;

        count += !(hook->reads && hook->pid == 0 && hook->taken);
        if (hook->pid > 0)
            (void)kill(-hook->pid, SIGKILL);
        hook->left = true;
        if (!hook->reads)
            free(hook);
        else if (!uv_is_closing((uv_handle_t *)&hook->words))
            uv_close((uv_handle_t *)&hook->words, on_words_closed);
    }
    if (count > 0)
        ct_log_event(hooks->options.log, CT_LOG_WARN, "hook",
                     "%zu event%s not taken by %s in time, and given up", count,
                     count == 1 ? " was" : "s were", hooks->options.target->name);
}

/* Do what is due, and come again when more is. */
static void pump(struct ct_hooks *hooks)
{
    uint64_t now_ms = uv_now(hooks->options.loop);

    drop_rest(hooks, now_ms);
    for (;;) {
        struct ct_hook_task task = ct_hook_next(&hooks->queue, now_ms);
        struct hook *hook = (struct hook *)task.entry;

        if (task.act == CT_HOOK_NOTHING)
            break;
        if (task.act == CT_HOOK_START)
            start(hook);
        else if (hook->pid > 0)
            (void)kill(-hook->pid, SIGKILL);
    }
    uint64_t due_ms = ct_hook_deadline(&hooks->queue);
    if (hooks->finishing && hooks->queue.count == 0)
        close_all(hooks);
    else if (due_ms == UINT64_MAX)
        (void)uv_timer_stop(&hooks->timer);
    else
        (void)uv_timer_start(&hooks->timer, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

/* ---- what others call ----------------------------------------------------------------------- */

int ct_hooks_new(const struct ct_hooks_options *options, struct ct_hooks **ret_hooks,
                 struct ct_error *err)
{
    struct ct_hooks *hooks = calloc(1, sizeof *hooks);

    if (hooks == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the hook");
    hooks->options = *options;
    hooks->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ct_hook_queue_init(&hooks->queue, options->timeout_ms);
    (void)uv_timer_init(options->loop, &hooks->timer);
    hooks->timer.data = hooks;
    hooks->handles = 1;
    if (options->reaps) {
        (void)uv_signal_init(options->loop, &hooks->sigchld);
        hooks->sigchld.data = hooks;
        (void)uv_signal_start(&hooks->sigchld, on_sigchld, SIGCHLD);
        uv_unref((uv_handle_t *)&hooks->sigchld);
        hooks->handles = 2;
    }
    *ret_hooks = hooks;
    return 0;
}

static void set_variables(struct hook *hook, const struct ct_hook_event *event)
{
    char(*to)[VARIABLE_BYTES] = hook->variables;

    (void)snprintf(to[0], VARIABLE_BYTES, "%s=%s", prefix, event->kind);
    (void)snprintf(to[1], VARIABLE_BYTES, "%s_JOB=%s", prefix, event->job);
    (void)snprintf(to[2], VARIABLE_BYTES, "%s_LEVEL=%s", prefix, event->level);
    (void)snprintf(to[3], VARIABLE_BYTES, "%s_NUMBER=%" PRIu64, prefix, event->number);
    (void)snprintf(to[4], VARIABLE_BYTES, "%s_GENERATION=%" PRIu64, prefix, event->generation);
}

void ct_hooks_put(struct ct_hooks *hooks, const struct ct_hook_event *event)
{
    const char *end = memchr(event->record, '\n', event->size);
    size_t size = end != NULL ? (size_t)(end - event->record) : event->size;
    struct hook *hook = NULL;

    if (hooks->finishing)
        return;
    if (size < RECORD_BYTES)
        hook = calloc(1, sizeof *hook + size + 1);
    if (hook == NULL) {
        note_dropped(hooks, event->number, event->kind, event->job);
        return;
    }
    hook->hooks = hooks;
    hook->number = event->number;
    memcpy(hook->record, event->record, size);
    (void)ct_str_copy(hook->job, sizeof hook->job, event->job);
    (void)ct_str_copy(hook->kind, sizeof hook->kind, event->kind);
    set_variables(hook, event);
    struct ct_hook_entry *gone = ct_hook_put(&hooks->queue, uv_now(hooks->options.loop),
                                             &hook->entry, ct_hash_str(event->job));
    if (gone != NULL) {
        const struct hook *oldest = (const struct hook *)gone;

        note_dropped(hooks, oldest->number, oldest->kind, oldest->job);
        free(gone);
    }
    pump(hooks);
}

size_t ct_hooks_left(const struct ct_hooks *hooks)
{
    return hooks->queue.count;
}

void ct_hooks_finish(struct ct_hooks *hooks, uint64_t patience_ms, void (*finished)(void *context),
                     void *context)
{
    if (!hooks->finishing) {
        hooks->finished = finished;
        hooks->context = context;
    }
    hooks->finishing = true;
    ct_hook_finish(&hooks->queue, uv_now(hooks->options.loop) + patience_ms);
    if (!hooks->closing)
        pump(hooks);
}
