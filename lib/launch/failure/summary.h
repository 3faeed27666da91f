/* ctrun's report at the end of a failed job: the first failure, its kind, its last lines, and the
 * restarts.
 *
 *   ctrun: job "digits" failed: rank 3 (node 1, host b, local rank 1, pid 4711) was killed by
 *          signal 9 (SIGKILL)
 *     | the last lines of its log
 *     hint: often the out-of-memory killer; check dmesg
 *   ctrun: 2 of 2 restarts were used; exit status 137
 *
 * Each fact is reported once: lines that the console has are not quoted ("see above"), and there is
 * no last line when the first one has the exit status and no restart was allowed.
 *
 * Pure: text from facts. */
#ifndef CT_LAUNCH_SUMMARY_H
#define CT_LAUNCH_SUMMARY_H

#include "base/bytes.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The failure that a report is about, and the facts beside it. */
struct ct_summary {
    struct ct_wire_failure cause; /* its error file is one that stays; its text what is quoted */
    int32_t node;                 /* its node's place in the round, -1: unknown */
    const char *also; /* "ranks 0 and 2": who failed for the same reason; NULL or "": nobody */
    bool seen;        /* the text stands on the same console, further up: it is not repeated */
};

/* Append the rank and its end as a sentence without a full stop: "rank 3 (...) exited with status
 * 1"; `node` as above. The text is not part of it, unless rank is -1: then it is the sentence. */
void ct_failure_print(const struct ct_wire_failure *failure, int32_t node, struct ct_buf *to);

/* Append the whole report of a failed job, a few lines. */
void ct_summary_failed(const char *run_id, const struct ct_summary *summary, uint32_t restarts,
                       uint32_t max_restarts, int exit_status, struct ct_buf *to);

/* Append the report of a job that was stopped when a worker did not end as ordered; `others` counts
 * further ones. `checkpoint` is a sentence without a full stop about the state to resume from; ""
 * if unknown. */
void ct_summary_stopped(const char *run_id, const struct ct_summary *summary, uint32_t others,
                        const char *checkpoint, int exit_status, struct ct_buf *to);

/* The same two as records of the JSON log, written at `wall_ns`. */
void ct_summary_record(uint64_t wall_ns, const struct ct_summary *summary, uint32_t restarts,
                       int exit_status, struct ct_buf *to);
void ct_summary_record_stopped(uint64_t wall_ns, const struct ct_summary *summary, uint32_t others,
                               const char *checkpoint, int exit_status, struct ct_buf *to);

/* Return "SIGKILL" for 9; "signal 99" for one without a name, written to `room`. */
const char *ct_signal_name(int signal, char *room, size_t size);

/* Return a hint about the usual cause of such an end, or NULL. */
const char *ct_failure_hint(const struct ct_wire_failure *failure);

#endif
