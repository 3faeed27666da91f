/* A worker's exit, and its consequences. */
#ifndef CT_LAUNCH_EXIT_H
#define CT_LAUNCH_EXIT_H

#include <stdbool.h>
#include <stdint.h>

struct ct_exit {
    int32_t status; /* when signal is 0 */
    int32_t signal; /* that ended it, or 0 */
};

/* Convert a status of waitpid(2). */
struct ct_exit ct_exit_of(int wait_status);

static inline bool ct_exit_ok(struct ct_exit end)
{
    return end.status == 0 && end.signal == 0;
}

/* Return the exit status that a shell shows: the status, or 128 + signal. */
int ct_exit_shell_status(struct ct_exit end);

/* Rank failures that were noticed together: the highest is the likeliest cause. A signal ranks
 * above a status; secondary failures (revoked or timed out, SIGTERM, SIGPIPE) rank last. */
int ct_exit_blame(struct ct_exit end);

/* Return whether a restart would end in the same way: true for a native worker's statuses of wrong
 * usage or configuration, bad or missing input, output that cannot be created, a wrong key. */
bool ct_exit_is_final(struct ct_exit end, bool native);

/* Return whether a worker ended as ordered, after `signal`. True for status 0, that signal or
 * SIGTERM, which agents send to native workers, and their 128 + n; for the end of a worker whose
 * peers have gone before it (SIGPIPE; of a native one CT_EREVOKED and CT_ECLOSED, `code` being the
 * error that it announced, 0 for none); and for any status of a script after SIGINT, which Python
 * raises as an exception. Otherwise it has failed. */
bool ct_exit_is_stop(struct ct_exit end, int code, int signal, bool native);

#endif
