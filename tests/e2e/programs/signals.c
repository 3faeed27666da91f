/* A worker that says each signal that it gets, one line for each, and who sent it:
 *
 *     ctrun --nproc_per_node 2 --no-python signals
 *
 * SIGTERM ends it, after half a second in which it says what else comes. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { LAST_MS = 500 };

int main(void)
{
    const int wanted[] = {SIGUSR1, SIGUSR2, SIGTERM};
    sigset_t set;

    (void)sigemptyset(&set);
    for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        (void)sigaddset(&set, wanted[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return 1;
    struct pollfd from = {.fd = signalfd(-1, &set, 0), .events = POLLIN};
    int patience_ms = -1;
    (void)printf("ready\n");
    (void)fflush(stdout);
    while (poll(&from, 1, patience_ms) > 0) {
        struct signalfd_siginfo info;

        if (read(from.fd, &info, sizeof info) != (ssize_t)sizeof info)
            return 1;
        (void)printf("got %s from %u\n", sigabbrev_np((int)info.ssi_signo), info.ssi_pid);
        (void)fflush(stdout);
        if (info.ssi_signo == SIGTERM)
            patience_ms = LAST_MS;
    }
    return 0;
}
