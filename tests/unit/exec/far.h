/* A device as GPUs are, of memory and threads of this process: to hold the executor to the rules of
 * tensor/device.h where there is no GPU.
 *
 *     alloc      the address that it gives faults when the host follows it
 *     run        returns at once; a thread of the queue runs the op later, on a CPU device
 *     mark       a count that the thread reaches
 *     record     keeps ops, replay runs them
 *
 * So what forgets to copy ends by SIGSEGV, and what forgets to wait computes with what is there:
 * before each op the thread lets others run. */
#ifndef CT_TESTS_EXEC_FAR_H
#define CT_TESTS_EXEC_FAR_H

#include "tensor/device.h"

/* Never fails: aborts the test. Freed by ct_device_free. `on_host`: the host may follow addresses,
 * but finds there what has been run so far. */
struct ct_device *far_new(bool on_host);

/* The next op of this kind that a queue of `device` runs breaks it. */
void far_break_at(struct ct_device *device, enum ct_op_kind op);

/* Lists that were replayed, over all queues of `device`. */
int far_replayed(struct ct_device *device);

#endif
