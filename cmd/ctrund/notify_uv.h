/* What ctrund tells the service manager that has started it: sd_notify(3)'s protocol, of which it
 * needs four words, so that it links nothing of systemd.
 *
 *      READY=1      it listens                      RELOADING=1 ... READY=1   around a SIGHUP
 *      WATCHDOG=1   its loop turns                  STOPPING=1                it ends
 *      STATUS=...   with each of them, a line for `systemctl status`
 *
 * Each is one datagram to the socket that NOTIFY_SOCKET names. None is ever waited for: what the
 * manager does not take at once is sent again by the timer that also feeds its watchdog. Without
 * NOTIFY_SOCKET all of this does nothing. On the loop's thread. */
#ifndef CT_CTRUND_NOTIFY_UV_H
#define CT_CTRUND_NOTIFY_UV_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

struct notify {
    int fd; /* -1: nobody is to be told */
    struct sockaddr_un address;
    socklen_t address_size;
    uv_timer_t timer;
    uint64_t watchdog_ms; /* between two signs of life; 0: no watchdog */
    char unsent[512];     /* what the manager has not taken yet; "": nothing */
    void (*put_status)(void *user, char *text, size_t room);
    void *user;
};

/* Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. `put_status` gives the line of STATUS.
 * CT_EUSAGE for an address that is none; then, too, the others may be called. */
int notify_init(struct notify *notify, uv_loop_t *loop,
                void (*put_status)(void *user, char *text, size_t room), void *user,
                struct ct_error *err);

/* It listens, or has read its files again; begins to feed the watchdog. */
void notify_ready(struct notify *notify);
void notify_reloading(struct notify *notify);

/* It ends; `why` is an error's sentence, or NULL. */
void notify_stopping(struct notify *notify, const char *why);

/* Close socket and timer; the loop must turn once more. */
void notify_close(struct notify *notify);

#endif
