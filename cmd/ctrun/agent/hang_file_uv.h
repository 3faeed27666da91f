/* LOG_DIR/hang-rank-0003.g7.txt: the threads of a rank that hangs, and of another one for
 * comparison, as the kernel and gdb see them (diagnose/backtrace_uv.h). */
#ifndef CT_CTRUN_AGENT_HANG_FILE_UV_H
#define CT_CTRUN_AGENT_HANG_FILE_UV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct node;

struct hang_file {
    uint32_t rank, other_rank;
    pid_t pid, other_pid; /* other_pid 0: there is no other */
    uint64_t generation;
    const char *preface; /* comes first; NULL: nothing */
};

/* Write it; `done` comes later, once. False: the job keeps no files, and it does not come. */
bool hang_file_write(struct node *node, const struct hang_file *hang,
                     void (*done)(void *context, const char *failure), void *context);

/* Log why it could not be written whole, if `failure`, as `done` got it, is a reason. */
void hang_file_report(const struct node *node, const char *failure);

#endif
