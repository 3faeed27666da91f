/* ctrun top: jobs, nodes and ranks in a terminal, as they change.
 *
 *     asker.c (a thread)  -- status, events -->  core/: the state, cells  -->  screen.c (ncurses)
 *                         <-- orders ---------             ^---- keys ---------------'
 *
 * The first answer is waited for before the terminal is taken: what is wrong is said as `ctrun
 * status` says it. Later on, a rendezvous that is gone is asked until it is there again. */
#include "cmd/ctrun/cli/commands.h"
#include "cmd/ctrun/operators/asking.h"
#include "cmd/ctrun/top/asker.h"
#include "cmd/ctrun/top/screen.h"

#include "base/assert.h"
#include "base/str.h"
#include "rendezvous/service/admin.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 1000 };

static const char who[] = "ctrun top";

struct session {
    struct admin_request request;
    struct top_state state;
    struct top_snapshot *snapshot; /* that is shown */
    struct top_asker *asker;
    int wake_fd;
    char lost_since[16]; /* "": answers come */
};

static volatile sig_atomic_t signal_got;

static void on_signal(int number)
{
    signal_got = number;
}

/* ---- news ------------------------------------------------------------------------------------ */

static void read_clock(char to[16])
{
    time_t now = time(NULL);
    struct tm local;

    if (localtime_r(&now, &local) == NULL || strftime(to, 16, "%H:%M:%S", &local) == 0)
        to[0] = '\0';
}

/* No answer: since when, and why. */
static void note_loss(struct session *session, const struct ct_error *err)
{
    struct top_state *state = &session->state;

    state->lost[0] = '\0';
    if (err->code == 0) {
        session->lost_since[0] = '\0';
        return;
    }
    if (session->lost_since[0] == '\0')
        read_clock(session->lost_since);
    (void)snprintf(state->lost, sizeof state->lost, "out of date since %s, trying again: %s",
                   session->lost_since, err->text);
}

static void note_answer(struct session *session, const struct top_news *news)
{
    const struct ct_error *refusal = &news->refusal;

    if (news->was_asked && news->error.code == 0)
        (void)ct_str_copy(session->state.no_events, sizeof session->state.no_events,
                          news->no_events.text);
    if (news->was_ordered)
        top_answer(&session->state, refusal->code != 0,
                   refusal->code != 0 ? refusal->text : news->answer);
}

static void read_news(struct session *session)
{
    struct top_news news;
    uint64_t count;

    (void)!read(session->wake_fd, &count, sizeof count);
    top_asker_take(session->asker, &news);
    if (news.was_asked)
        note_loss(session, &news.error);
    (void)top_add_events(&session->state, ct_buf_str(&news.events));
    note_answer(session, &news);
    if (news.snapshot != NULL) {
        top_refresh(&session->state, news.snapshot);
        top_snapshot_free(session->snapshot);
        session->snapshot = news.snapshot;
        news.snapshot = NULL;
    } else if (news.events.size > 0) {
        top_refresh(&session->state, session->snapshot);
    }
    top_news_deinit(&news);
}

/* ---- the terminal's turn --------------------------------------------------------------------- */

/* False: to be ended. */
static bool read_keys(struct session *session)
{
    for (int key; (key = top_screen_key()) != 0;) {
        enum top_effect effect = top_press(&session->state, key);

        if (effect == TOP_QUIT)
            return false;
        if (effect == TOP_GIVE_ORDER)
            top_asker_order(session->asker, &session->state.order);
    }
    return true;
}

/* Show, then wait for a key, news, a signal or the clock. */
static int watch(struct session *session)
{
    struct top_state *state = &session->state;
    struct pollfd waits[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = session->wake_fd, .events = POLLIN}};
    int height, width, rc = 0;

    while (rc == 0 && signal_got == 0) {
        top_screen_size(&height, &width);
        top_resize(state, height, width);
        read_clock(state->clock);
        rc = top_screen_show(state);
        int count = poll(waits, CT_COUNT(waits), TICK_MS);
        if (count > 0 && (waits[0].revents & (POLLHUP | POLLERR)) != 0)
            break; /* the terminal is gone */
        if (count > 0 && (waits[1].revents & POLLIN) != 0)
            read_news(session);
        if (!read_keys(session))
            break;
    }
    return rc;
}

/* Until the first answer has come: 0, or its error. */
static int wait_for_first(struct session *session, struct ct_error *err)
{
    struct pollfd wait = {.fd = session->wake_fd, .events = POLLIN};

    while (session->snapshot == NULL) {
        if (poll(&wait, 1, -1) < 0 && errno != EINTR)
            return ct_error_set(err, CT_EOS, "cannot wait: %s", strerror(errno));
        struct top_news news;
        top_asker_take(session->asker, &news);
        session->snapshot = news.snapshot;
        news.snapshot = NULL;
        (void)top_add_events(&session->state, ct_buf_str(&news.events));
        note_answer(session, &news);
        if (news.was_asked && news.error.code != 0)
            *err = news.error;
        top_news_deinit(&news);
        if (err->code != 0)
            return err->code;
    }
    top_refresh(&session->state, session->snapshot);
    return 0;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};

    for (size_t i = 0; i < CT_COUNT(signals); i++)
        (void)sigaction(signals[i], &action, NULL);
}

/* The exit status. Ctrl-C is a way to quit, as q is. */
static int show(struct session *session, struct ct_error *err)
{
    int rc = top_screen_open(err);

    if (rc != 0)
        return ct_command_fail(who, rc, err->text);
    catch_signals();
    rc = watch(session);
    top_screen_close();
    if (rc != 0)
        return ct_command_fail(who, rc, "out of memory");
    return signal_got == 0 || signal_got == SIGINT ? 0 : 128 + signal_got;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int begin(struct session *session, struct ct_error *err)
{
    int rc = top_init(&session->state);

    if (rc != 0)
        return ct_error_set(err, rc, "out of memory");
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->wake_fd < 0)
        return ct_error_set(err, CT_EOS, "no descriptor is left: %s", strerror(errno));
    rc = top_asker_start(&session->asker, &session->request, session->wake_fd, err);
    return rc == 0 ? wait_for_first(session, err) : rc;
}

/* What the asker still uses stays as it is. */
static void end(struct session *session)
{
    if (session->asker != NULL && !top_asker_stop(session->asker))
        return;
    if (session->wake_fd >= 0)
        (void)close(session->wake_fd);
    top_snapshot_free(session->snapshot);
    top_deinit(&session->state);
    ct_config_deinit(&session->request.cfg);
}

static int run(int count, char **rest)
{
    static struct session session = {.wake_fd = -1}; /* outlives this, for the asker's sake */
    struct ct_error err = {0};

    session.request.ask = (struct ct_message){.type = CT_MSG_ADMIN,
                                              .admin = {.host = "", .reason = "", .author = ""}};
    int status = asking_load(who, &session.request, count, rest);
    if (status == 0) {
        int rc = top_screen_check(&err);
        if (rc == 0)
            rc = begin(&session, &err);
        status = rc == 0 ? show(&session, &err) : ct_command_fail(who, rc, err.text);
    }
    end(&session);
    return status;
}

int ct_cmd_top(int argc, char **argv)
{
    const char *id = NULL;
    const struct ct_option options[] = {{"job", CT_OPTION_TEXT, &id}};
    char **rest = calloc((size_t)argc + 2, sizeof *rest);
    struct ct_cli_options cli = {
        .command = "top", .options = options, .option_count = CT_COUNT(options), .rest = rest};
    struct ct_error err = {0};
    static struct ct_buf job; /* as the session */

    if (rest == NULL)
        return ct_command_fail(who, CT_ENOMEM, "out of memory");
    ct_buf_init(&job, 0);
    int rc = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);
    asking_put_job(&cli, id, &job);
    int status = rc != 0 ? ct_command_fail(who, rc, err.text) : run(cli.rest_count, rest);
    free(rest);
    return status;
}
