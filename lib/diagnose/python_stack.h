/* Where a Python program is: read from stacks as py-spy and Python's faulthandler print them.
 *
 *     Process 4711: python3 -u train.py               (py-spy dump --full-filenames --subprocesses)
 *     Thread 4711 (idle): "MainThread"
 *         all_reduce (/usr/lib/.../torch/distributed/distributed_c10d.py:1320)     the call
 *         step (/home/me/train.py:31)                                              the place
 *         <module> (/home/me/train.py:50)
 *
 *     Current thread 0x00007f10b35a1740 (most recent call first):                  (faulthandler)
 *       File "/home/me/train.py", line 31 in step
 *
 * The place is the innermost frame of the user's own code: not of the standard library, not of an
 * installed package. What of torch.distributed the main thread is in, called from there, is the
 * call: the name by which the user knows it (all_reduce, barrier, backward of DDP).
 *
 * The text is a stranger's: whatever it is, the place is well-formed, its strings short and
 * printable. Pure. */
#ifndef CT_DIAGNOSE_PYTHON_STACK_H
#define CT_DIAGNOSE_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_PLACE_FILE = 256, CT_PLACE_NAME = 64 };

struct ct_python_place {
    bool known;
    char file[CT_PLACE_FILE]; /* of a longer path, its end */
    uint32_t line;
    char function[CT_PLACE_NAME];
    char call[CT_PLACE_NAME]; /* of torch.distributed; "": none */
};

/* Find the place of process `pid`; false: the text has no frame of it. */
bool ct_python_place_find(const char *text, int pid, struct ct_python_place *ret_place);

/* Find the place of the first of its descendants that runs code of the user; its pid, or 0: none
 * does. What a child has on its stack from before its birth does not count. */
int ct_python_child_find(const char *text, int pid, struct ct_python_place *ret_place);

/* Return whether two places are the same line and call. */
bool ct_python_place_equal(const struct ct_python_place *a, const struct ct_python_place *b);

#endif
