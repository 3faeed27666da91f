/* Starting a worker's process, with Linux system calls.
 *
 *   agent                        child (shares the agent's memory until it executes)
 *   clone(VM, VFORK) ------->    own process group; SIGKILL when the agent dies (and a look whether
 *      :  asleep                 it died already); descriptors; CPUs; signals as after boot; execve
 *   <------------------------    executed, or the reason why not
 *
 * Nothing of the agent leaks: descriptors 0 to 5 are given, all others close at execve; blocked and
 * ignored signals are reset. The agent must call from one thread that lives as long as the workers,
 * as the parent-death signal belongs to the thread. */
#ifndef CT_LAUNCH_SPAWN_H
#define CT_LAUNCH_SPAWN_H

#include "base/error.h"
#include "hardware/affinity.h"

#include <sys/resource.h>
#include <sys/types.h>

enum { CT_SPAWN_FDS = 6 }; /* stdin, stdout, stderr, CT_CONTROL_FD, CT_PAGE_FD, CT_RECORD_FD */

struct ct_spawn {
    const char *path; /* executed as it is, no search in PATH */
    char *const *argv;
    char *const *envp;
    int fds[CT_SPAWN_FDS];      /* what becomes descriptor 0, 1, ...; -1: closed */
    const struct ct_cpus *cpus; /* NULL: those of the agent */
    const struct rlimit *files; /* how many descriptors it may have; NULL: as many as the agent */
};

/* Start the process; returns its pid, which is also its process group. CT_ENOINPUT when the file is
 * no program (the sentence says why), CT_EOS when the system refuses another process. */
int ct_spawn(const struct ct_spawn *spawn, pid_t *ret_pid, struct ct_error *err);

#endif
