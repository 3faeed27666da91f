/* A worker's exit, and its consequences. */
#ifndef CT_LAUNCH_EXIT_H
#define CT_LAUNCH_EXIT_H

#include <stdbool.h>
#include <stdint.h>

struct ct_exit {
    int32_t status; /* when signal is 0 */
    int32_t signal; /* that ended it, or 0 */
};

/* From what waitpid(2) gave. */
struct ct_exit ct_exit_of(int wait_status);

static inline bool ct_exit_ok(struct ct_exit end)
{
    return end.status == 0 && end.signal == 0;
}

/* What a shell would see: the status, or 128 + signal. */
int ct_exit_shell_status(struct ct_exit end);

/* Which of several failures seen in one batch is the likelier cause: the higher one. A signal comes
 * before a status; ends that only echo another's (revoked or timed out, SIGTERM, SIGPIPE) come
 * last. */
int ct_exit_blame(struct ct_exit end);

/* Would a restart end in the same way? True for the statuses with which a native worker reports
 * wrong usage or configuration, bad or missing input, output that cannot be created, a wrong key.
 */
bool ct_exit_is_final(struct ct_exit end, bool native);

/* Is this the end of a worker that did what it was told: to stop, by `signal`? True for status 0,
 * that signal or SIGTERM, which agents send to native workers, and their 128 + n; for what a worker
 * whose peers have gone before it ends with (SIGPIPE; of a native one the errors CT_EREVOKED and
 * CT_ECLOSED, `code` being what it announced, 0 for nothing); and for any status of a script after
 * SIGINT, which Python makes an exception of, for whoever catches it. Else it has failed. */
bool ct_exit_is_stop(struct ct_exit end, int code, int signal, bool native);

#endif
