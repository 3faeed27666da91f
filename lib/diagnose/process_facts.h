/* What the kernel says of a process and its descendants, from /proc, without a wait: files that it
 * may take long to answer (cmdline, maps) are not read. Linux only. */
#ifndef CT_DIAGNOSE_PROCESS_FACTS_H
#define CT_DIAGNOSE_PROCESS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ct_process_facts {
    char state; /* 'R', 'S', 'D', 'T', 't', 'Z' */
    pid_t parent;
    uint64_t cpu_ms;   /* its own threads', and that of children it has waited for */
    uint64_t io_bytes; /* read and written by system calls; 0 when the kernel does not say */
};

/* Read them; false: there is no such process. */
bool ct_process_facts(pid_t pid, struct ct_process_facts *ret_facts);

/* What the descendants of one process do. */
struct ct_process_family {
    pid_t root;
    uint64_t cpu_ms, io_bytes;
    uint64_t digest; /* of their pids */
    bool waiting;    /* one of them waits for a disk */
};

/* Fill in the families of `count` roots, in one look at all processes. */
void ct_process_families(struct ct_process_family *families, size_t count);

/* Return whether the program of the process is an interpreter of Python. */
bool ct_process_is_python(pid_t pid);

#endif
