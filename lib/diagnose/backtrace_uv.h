/* The stacks of a hanging process, from the kernel and a debugger, collected without stopping the
 * loop: state and wait channel of each thread, its current system call, and gdb's backtrace when
 * gdb is installed and permitted.
 *
 *   /proc/PID/task/TID/{status,wchan,syscall,stack}     as far as they are readable
 *   gdb --batch -p PID -ex "thread apply all bt"        at most CT_DIAGNOSE_MS, then it is given up
 *
 * At most CT_DIAGNOSE_BYTES a process. Work is done on a thread of the loop's pool. */
#ifndef CT_DIAGNOSE_BACKTRACE_UV_H
#define CT_DIAGNOSE_BACKTRACE_UV_H

#include <sys/types.h>
#include <uv.h>

enum {
    CT_DIAGNOSE_MS = 10000,    /* altogether */
    CT_DIAGNOSE_BYTES = 65536, /* a process */
    CT_DIAGNOSE_PROCESSES = 2,
};

struct ct_diagnose {
    pid_t pids[CT_DIAGNOSE_PROCESSES]; /* 0: none */
    const char *titles[CT_DIAGNOSE_PROCESSES];
    const char *file;    /* what was found is written to it */
    const char *preface; /* and before it, this; NULL: nothing */
};

/* Start; copies `what`. `done` is called from the loop; `failure` is NULL or the reason why the
 * file could not be written. 0, or a negative code: then `done` is not called. */
int ct_diagnose(uv_loop_t *loop, const struct ct_diagnose *what,
                void (*done)(void *context, const char *failure), void *context);

/* Describe the state of a process for a sentence: "stopped", "running", "sleeping in
 * futex_do_wait"; at most `room` bytes. Reads /proc, never blocks. */
void ct_diagnose_state(pid_t pid, char *text, size_t room);

#endif
