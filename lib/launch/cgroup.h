/* A cgroup for the descendants of workers: all its processes can be ended at once, including those
 * that have left their worker's process group. It needs a cgroup2 tree in which this user may make
 * groups, and Linux 5.14; it is optional: without these, none is made.
 *
 *     MOUNT/OWN_GROUP/ctrun-PID-XXXX       below the group of ctrun, whose limits go on to count */
#ifndef CT_LAUNCH_CGROUP_H
#define CT_LAUNCH_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct ct_cgroup {
    char path[PATH_MAX]; /* "": there is none */
};

/* Return the path of this process's cgroup2 group, mount point included, from the files under
 * `root` ("" for the machine itself). False if there is none. */
bool ct_cgroup_own(const char *root, char path[PATH_MAX]);

/* Make a group in the group `own`. False when that is not allowed. */
bool ct_cgroup_make(struct ct_cgroup *group, const char *own);

/* Move a process into it; the first time may take tens of milliseconds. */
bool ct_cgroup_add(const struct ct_cgroup *group, pid_t pid);

/* Send SIGKILL to all its processes. */
void ct_cgroup_kill(const struct ct_cgroup *group);

/* Remove it; false while something is in it. */
bool ct_cgroup_remove(struct ct_cgroup *group);

#endif
