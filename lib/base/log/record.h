/* Records of the JSON log: one object per line.
 *
 *   {"time":"2026-03-01T10:00:02.125Z","kind":"output","node":0,"rank":1,"stream":"stdout",...}
 *
 *   kind       who             fields beside time and kind
 *   log        every program   level, program, event, message; node and rank where they are known
 *   output     a worker        node, rank, stream, text (bytes that are not UTF-8 are U+FFFD)
 *   progress   the training    node, rank, epoch, epochs, step, steps, loss, lr, ...
 *   eval       the training    node, rank, step, loss, accuracy, best, best_step
 *   summary    the training    node, rank, step, loss, ..., text
 *   failure    the job         level, event (job_failed, stop_failed), message, node, rank, host,
 *                              pid, status or signal, text, error_file, also, hint, restarts,
 *                              exit_status
 *   audit      ctrund         deed, verdict, text, peer, ... (server_audit.c)
 *   event      a rendezvous   number, job, generation, event, level, text (service_events.c)
 *
 * All lines that are printed with log.format json are made here. Pure: appends to a buffer. */
#ifndef CT_BASE_RECORD_H
#define CT_BASE_RECORD_H

#include "base/bytes.h"

#include <stdint.h>

/* Begin a record of `kind` (no text that needs escapes); `wall_ns` is the time since 1970. */
void ct_record_begin(struct ct_buf *to, uint64_t wall_ns, const char *kind);

/* Append a field; a key is a literal that needs no escapes. */
void ct_record_string(struct ct_buf *to, const char *key, const char *text);
void ct_record_whole(struct ct_buf *to, const char *key, int64_t value);
void ct_record_number(struct ct_buf *to, const char *key, double value);

/* How far a training is: the fields of progress and summary; none before its steps are known. */
struct ct_record_step {
    uint64_t epoch, epochs; /* epoch from 1 */
    uint64_t step, steps;
    double loss, lr, samples_per_s;
    double elapsed_s, eta_s; /* negative: not known */
};
void ct_record_step(struct ct_buf *to, const struct ct_record_step *step);

/* An evaluation; a negative perplexity or accuracy is none. */
struct ct_record_eval {
    uint64_t step;
    double loss, perplexity, accuracy;
    double best;
    uint64_t best_step;
};
void ct_record_eval(struct ct_buf *to, const struct ct_record_eval *eval);

/* A worker's line, a whole record; `host` NULL: not told. */
struct ct_record_line {
    int64_t node, rank;
    const char *host, *stream; /* "stdout", "stderr" */
    const char *text;
    size_t size;
};
void ct_record_line(struct ct_buf *to, uint64_t wall_ns, const struct ct_record_line *line);

/* End it, with its newline. */
void ct_record_end(struct ct_buf *to);

#endif
