/* See notify_uv.h. */
#include "notify_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 50 };

/* ---- sending -------------------------------------------------------------------------------- */

static bool send_words(const struct notify *notify, const char *words)
{
    ssize_t sent = sendto(notify->fd, words, strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT,
                          (const struct sockaddr *)&notify->address, notify->address_size);

    return sent >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
}

static void on_turn(uv_timer_t *timer);

static void wait_ms(struct notify *notify, uint64_t ms)
{
    (void)uv_timer_start(&notify->timer, on_turn, ms, 0);
    uv_unref((uv_handle_t *)&notify->timer);
}

/* Send the words with a status behind them; what was not taken before was of an older state. */
static void tell(struct notify *notify, const char *words, const char *why)
{
    char status[256] = "";

    if (notify->fd < 0)
        return;
    if (why == NULL)
        notify->put_status(notify->user, status, sizeof status);
    else
        (void)ct_str_copy(status, sizeof status, why);
    status[strcspn(status, "\n")] = '\0';
    (void)snprintf(notify->unsent, sizeof notify->unsent, "%s\nSTATUS=%s\n", words, status);
    if (send_words(notify, notify->unsent))
        notify->unsent[0] = '\0';
    else
        wait_ms(notify, AGAIN_MS);
}

/* The loop turns: what was not taken goes out again, or a sign of life. */
static void on_turn(uv_timer_t *timer)
{
    struct notify *notify = timer->data;

    if (notify->unsent[0] == '\0') {
        tell(notify, "WATCHDOG=1", NULL);
    } else if (send_words(notify, notify->unsent)) {
        notify->unsent[0] = '\0';
    }
    if (notify->unsent[0] != '\0')
        wait_ms(notify, AGAIN_MS);
    else if (notify->watchdog_ms > 0)
        wait_ms(notify, notify->watchdog_ms);
}

void notify_ready(struct notify *notify)
{
    if (notify->fd >= 0 && notify->watchdog_ms > 0)
        wait_ms(notify, notify->watchdog_ms);
    tell(notify, "READY=1", NULL);
}

void notify_reloading(struct notify *notify)
{
    char words[64];

    (void)snprintf(words, sizeof words, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                   ct_clock_mono_ns(&ct_clock_system) / 1000);
    tell(notify, words, NULL);
}

void notify_stopping(struct notify *notify, const char *why)
{
    tell(notify, "STOPPING=1", why);
}

/* ---- the environment ------------------------------------------------------------------------ */

/* "/run/systemd/notify", or "@name" in the abstract namespace. */
static int read_address(struct notify *notify, const char *text, struct ct_error *err)
{
    size_t length = strlen(text);

    if ((text[0] != '/' && text[0] != '@') || length < 2 ||
        length >= sizeof notify->address.sun_path)
        return ct_error_set(err, CT_EUSAGE,
                            "NOTIFY_SOCKET=%.100s is no address of a local socket (/PATH or "
                            "@NAME): unset it, or give one of at most %zu characters",
                            text, sizeof notify->address.sun_path - 1);
    notify->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(notify->address.sun_path, text, length);
    if (text[0] == '@')
        notify->address.sun_path[0] = '\0';
    notify->address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return 0;
}

/* A third of what the manager allows, so that one turn may come late; 0 when the watchdog is not
 * for this process. */
static uint64_t read_watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t value = 0, process = 0;

    if (usec == NULL || ct_parse_u64(usec, &value) != 0 || value == 0)
        return 0;
    if (pid != NULL && (ct_parse_u64(pid, &process) != 0 || process != (uint64_t)getpid()))
        return 0;
    return CT_MAX(value / 3000, 1);
}

int notify_init(struct notify *notify, uv_loop_t *loop,
                void (*put_status)(void *user, char *text, size_t room), void *user,
                struct ct_error *err)
{
    const char *address = getenv("NOTIFY_SOCKET");
    int rc = 0;

    *notify = (struct notify){.fd = -1, .put_status = put_status, .user = user};
    (void)uv_timer_init(loop, &notify->timer);
    notify->timer.data = notify;
    if (address == NULL || address[0] == '\0')
        return 0;
    rc = read_address(notify, address, err);
    if (rc == 0)
        notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (rc == 0 && notify->fd < 0)
        rc = ct_error_set(err, CT_EOS, "no socket for the service manager: %s", strerror(errno));
    notify->watchdog_ms = read_watchdog_ms();
    return rc;
}

void notify_close(struct notify *notify)
{
    if (notify->fd >= 0)
        (void)close(notify->fd);
    notify->fd = -1;
    uv_close((uv_handle_t *)&notify->timer, NULL);
}
