/* Every execution of a small program on a weakly ordered machine: a litmus test that needs no such
 * machine. The machine is ARMv8 as its axioms define it (aarch64.cat of the architecture's memory
 * model, without mixed sizes): any choice of who reads from whom is an execution unless it breaks
 *
 *     internal   each thread sees each place in one order with its own program
 *     external   what others observe, dependencies, acquire, release and fences form no cycle
 *     atomic     nobody writes between the two halves of a read-modify-write
 *
 * A program is text: threads separated by '|', their operations by ';'. Places begin with 0.
 *
 *     d=1          store, relaxed or plain (str)          r0=d         load, relaxed or plain (ldr)
 *     d=1.rel      store, release (stlr)                  r0=d.acq     load, acquire (ldapr)
 *     d=1.sc       store, sequentially consistent (stlr)  r0=d.sc      load, the same (ldar)
 *     d=r0         store of what was read before          r0=d++       add 1 (ldaxr, stlxr)
 *     fence        sequentially consistent, or release (dmb ish)
 *     fence.acq    (dmb ishld)
 *
 * An outcome is values of registers, "r0=1 r1=0"; several are separated by '/'. */
#ifndef CT_TESTS_WEAK_ORDER_H
#define CT_TESTS_WEAK_ORDER_H

#include <stdbool.h>

/* Return whether an execution of `program` ends in one of `outcomes`. A mistake in either text
 * fails an assertion. */
bool weak_order_reaches(const char *program, const char *outcomes);

/* Return the same of the program without its order number `index`: a fence is left out, another one
 * becomes relaxed; false in `*ret_there` when it has fewer orders. */
bool weak_order_reaches_without(const char *program, int index, const char *outcomes,
                                bool *ret_there);

#endif
