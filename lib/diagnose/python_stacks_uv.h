/* The Python stacks of processes and their descendants, by py-spy (python_stack.h reads them), and
 * what PyTorch's flight recorder of each holds (torch_flight.h), collected on a thread of the
 * loop's pool without stopping the loop.
 *
 *     py-spy dump --full-filenames --subprocesses --pid PID       pauses the process for a moment
 *     ... --nonblocking                                           when that fails, or it is stopped
 */
#ifndef CT_DIAGNOSE_PYTHON_STACKS_UV_H
#define CT_DIAGNOSE_PYTHON_STACKS_UV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum {
    CT_PYTHON_STACKS_MS = 8000,     /* altogether */
    CT_PYTHON_STACKS_BYTES = 65536, /* a process with its descendants */
};

struct ct_python_stack {
    pid_t pid;
    uint32_t rank;
    bool stopped; /* by a signal */
    char *text;   /* what py-spy printed; NULL: it could not */
    char *flight; /* what its flight recorder holds; NULL: nothing is known */
};

struct ct_python_stacks_request {
    const struct ct_python_stack *stacks;
    size_t count;
    const char *beside; /* a folder that may have py-spy; else it is looked for in PATH */
    const char *dumps;  /* PREFIX of the dumps of flight recorders; "": there are none */
};

/* Begin; copies all of the request. `done` is called from the loop; the stacks belong to the
 * caller, who frees them. 0, or a negative code: then `done` is not called. */
int ct_python_stacks(uv_loop_t *loop, const struct ct_python_stacks_request *request,
                     void (*done)(void *context, struct ct_python_stack *stacks, size_t count),
                     void *context);

/* Free what `done` got. NULL is ignored. */
void ct_python_stacks_free(struct ct_python_stack *stacks, size_t count);

#endif
