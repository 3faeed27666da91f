/* Fibers: threads that switch only at explicit calls, in a few nanoseconds. */
#ifndef CT_TESTS_HOSTCUDA_FIBER_H
#define CT_TESTS_HOSTCUDA_FIBER_H

struct fiber;

/* Fiber `index` (0 .. 1023) will run body(argument) when it is resumed; what it ran before is over.
 * Its stack is kept for the next one of that index. */
struct fiber *fiber_start(int index, void (*body)(void *argument), void *argument);

/* Run the fiber until it yields or its body returns. From outside of fibers. */
void fiber_resume(struct fiber *fiber);

/* Switch back to the resumer of this fiber. */
void fiber_yield(void);

#endif
