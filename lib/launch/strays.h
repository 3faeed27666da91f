/* Strays: descendants of workers that have left their process groups, and cgroups where there are
 * any. They are known by a mark in the environment that they inherited, and by their parents.
 *
 *      agent (dead or alive) or, once it is dead, the reaper of its children: the guard's parent
 *        |- a stray             has the mark
 *        |    '- its child      has it too
 *        '- anybody's service   has it not
 *             '- a job that a worker queued there: has the mark, and is no stray
 *
 * Processes that cleared their environment, or run as another user, are not found. */
#ifndef CT_LAUNCH_STRAYS_H
#define CT_LAUNCH_STRAYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CT_MARK_BYTES = 16,
    CT_MARK_TEXT = 2 * CT_MARK_BYTES + 1,
};

/* Generate a mark, as text; "" without random bytes. */
void ct_strays_mark(char mark[CT_MARK_TEXT]);

/* Return the parent of a process, 0 if there is no such process. */
pid_t ct_strays_parent(pid_t pid);

/* Return whether `agent`, a living subreaper whose workers have ended, may have strays: not when
 * this process is its only child. */
bool ct_strays_possible(pid_t agent);

/* Send SIGKILL to the strays of `agent`, of which this process is or was a child, until a scan of
 * all processes finds none, for at most `limit_ms`. An empty mark matches no process. Never to this
 * process itself. Neither allocates nor logs. */
void ct_strays_end(const char *mark, pid_t agent, uint64_t limit_ms);

#endif
