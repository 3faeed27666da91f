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

/* Whether a signal has stopped the process whose pid is at `pid`: for proc_until. */
bool procfs_is_stopped(void *pid);

/* The same process lives still. */
bool procfs_lives(pid_t pid, uint64_t born);

/* What it holds or has done; 0 when it is gone. Resident memory is that of VmRSS, in which shared
 * pages count whole; `exact` reads each mapping (smaps_rollup), which takes the kernel longer. */
uint64_t procfs_resident_bytes(pid_t pid, bool exact);
uint64_t procfs_proportional_bytes(pid_t pid); /* a page that n processes map counts 1/n */
uint64_t procfs_written_bytes(pid_t pid);
long procfs_descriptors(pid_t pid);

/* Mappings whose line in /proc/PID/maps has one of these words (NULL-terminated). */
long procfs_mappings(pid_t pid, const char *const words[]);

/* The established TCP connections of the network that a process is in; zeroed: none. */
struct procfs_network {
    uint64_t *inodes; /* of their sockets, in order */
    size_t count;
};

/* Read them once for all processes there. False when there is no memory or no such process. */
bool procfs_network_read(pid_t pid, struct procfs_network *ret_network);
void procfs_network_free(struct procfs_network *network);

/* How many of them the process holds an end of; -1 when it is gone. */
long procfs_connections(pid_t pid, const struct procfs_network *network);

struct procfs_child {
    pid_t pid;
    uint64_t born;
};

/* Living children with this name (comm), in the order of their start; how many of them are in
 * `children`, `room` at most. `ret_zombies`, unless NULL: its dead children, of any name. */
int procfs_children(pid_t pid, const char *name, struct procfs_child *children, int room,
                    int *ret_zombies);

#endif
