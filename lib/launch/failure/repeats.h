/* Failures that repeat: a job whose attempts all end at the same place, and get no further, is not
 * started again for ever.
 *
 *     attempt    failed at                  ran     repeats
 *        1       train.py:31 (ValueError)   40 s    0
 *        2       train.py:31 (ValueError)   41 s    1
 *        3       train.py:31 (ValueError)   39 s    2
 *        4       train.py:31 (ValueError)   40 s    3: with a limit of 3, the job ends with 93
 *
 * The place of a failure is, first that is known: file and line of the user's code in the last
 * Python traceback of its text (of its error file, or the last lines of its log), with the name of
 * the exception; file and line of the sentence on a hang; its last line without its numbers, with
 * rank and exit status or signal. A rank that shows nothing but its status is a place, too. One
 * that was ended by a signal from outside (SIGKILL, SIGTERM, SIGINT, SIGHUP) is none: others may
 * have killed it anywhere, as the kernel does for want of memory.
 *
 * Attempts got further, and the count begins anew, when a native worker has completed a later step
 * than at the failure before, when one ran for more than CT_REPEATS_LONG_MS, or for more than twice
 * as long as the longest of those that are counted, and CT_REPEATS_SLACK_MS. Pure. */
#ifndef CT_LAUNCH_REPEATS_H
#define CT_LAUNCH_REPEATS_H

#include "base/bytes.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

enum { CT_REPEATS_LONG_MS = 10 * 60 * 1000, CT_REPEATS_SLACK_MS = 10 * 1000 };

struct ct_repeats {
    uint64_t place;      /* of the last failure; 0: none */
    uint32_t count;      /* failures there, one after the other */
    uint64_t longest_ms; /* the attempts of these */
    uint64_t step;       /* the highest that was completed at a failure */
};

/* Append the failure's place in words, "/home/me/train.py:31 (ValueError)". Returns its number; 0:
 * it has none. */
uint64_t ct_repeats_place(const struct ct_wire_failure *failure, struct ct_buf *to);

/* Count a failure at `place` (0: unknown, as no other) of an attempt that ran for `ran_ms`, with
 * `step` steps completed. True: there were more than `limit` (0: any number) repetitions. */
bool ct_repeats_note(struct ct_repeats *repeats, uint64_t place, uint64_t ran_ms, uint64_t step,
                     uint32_t limit);

#endif
