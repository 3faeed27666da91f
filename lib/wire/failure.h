/* A failure: the record `failure` of wire.def, from the place where a worker's end is known over
 * the round to the final report.
 *
 *   workers_end_uv.c fills it --> FAILURE --> the job's root cause, and others --> CLOSE
 *          |                                                                        |
 *          `--> the node's list of failures --------> final report, error file <----'
 *
 * Its strings are views: of a worker's output, a frame, an arena. A failure that outlives these is
 * kept (ct_failure_keep) with room for its strings beside it; such a pair is not copied by
 * assignment. */
#ifndef CT_WIRE_FAILURE_H
#define CT_WIRE_FAILURE_H

#include "wire/wire.h"

enum { CT_FAILURE_END = 40 /* see ct_failure_end */ };

/* With terminator: a longer host name is cut, a longer path is left out. */
enum { CT_FAILURE_HOST_BYTES = 128, CT_FAILURE_PATH_BYTES = 512, CT_FAILURE_TEXT_BYTES = 2048 };

/* Bytes for the strings of a failure, its text having at most `text_bytes` with terminator. */
#define CT_FAILURE_ROOM(text_bytes) (CT_FAILURE_HOST_BYTES + CT_FAILURE_PATH_BYTES + (text_bytes))

/* Is the job to end, whatever the budget of restarts? */
enum ct_failure_fatal {
    CT_FAILURE_MINOR = 0,
    CT_FAILURE_FINAL = 1,    /* the end says so: a wrong configuration, for example */
    CT_FAILURE_REPEATED = 2, /* it was the same, time and again (CT_EREPEATED) */
};

/* No failure: rank and local rank -1, empty strings. */
extern const struct ct_wire_failure ct_failure_none;

/* Copy a failure; its strings lie in `room`, of CT_FAILURE_ROOM(text_bytes) bytes, from now on, the
 * text cut to its last lines. NULL strings become "". `failure` may not lie in that room. */
void ct_failure_keep(struct ct_wire_failure *kept, const struct ct_wire_failure *failure,
                     char *room, size_t room_bytes);

/* Write how a worker ended to `to`, of CT_FAILURE_END bytes: "hung", "was ended by SIGKILL",
 * "exited with status 3". Returns it. */
const char *ct_failure_end(const struct ct_wire_failure *failure, char *to);

#endif
