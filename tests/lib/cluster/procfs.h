/* What /proc shows of a process that is not ours to ask: whether it lives, what it holds, what it
 * has used, and its children. */
#ifndef TESTS_CLUSTER_PROCFS_H
#define TESTS_CLUSTER_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct procfs_stat {
    char state;    /* 'Z' for a zombie */
    pid_t parent;  /* 0: none here */
    uint64_t born; /* its start time: a pid and this name a process for ever */
    double cpu_s;  /* user and system time */
};

/* False when it is gone. */
bool procfs_stat(pid_t pid, struct procfs_stat *ret_stat);

/* Neither a zombie nor about to vanish. */
bool procfs_is_alive(const struct procfs_stat *stat);

/* The same process lives still. */
bool procfs_lives(pid_t pid, uint64_t born);

/* What it holds or has done; 0 when it is gone. Resident memory is that of VmRSS, in which shared
 * pages count whole; `exact` reads each mapping (smaps_rollup), which takes the kernel longer. */
uint64_t procfs_resident_bytes(pid_t pid, bool exact);
uint64_t procfs_written_bytes(pid_t pid);
long procfs_descriptors(pid_t pid);

/* Mappings whose line in /proc/PID/maps has one of these words (NULL-terminated). */
long procfs_mappings(pid_t pid, const char *const words[]);

struct procfs_child {
    pid_t pid;
    uint64_t born;
};

/* Living children with this name (comm), in the order of their start; how many of them are in
 * `children`, `room` at most. `ret_zombies`, unless NULL: its dead children, of any name. */
int procfs_children(pid_t pid, const char *name, struct procfs_child *children, int room,
                    int *ret_zombies);

#endif
