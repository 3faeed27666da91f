/* Progress of a training job as text: when a line is due, and its content.
 *
 * On a terminal one live line is redrawn in place, fitted to its width; elsewhere a plain line is
 * written at the steps that log.every names, at most one each CT_PROGRESS_LINE_MS; of a program
 * whose steps have no such interval, every CT_PROGRESS_PLAIN_MS and when an epoch ends.
 *
 *   step 140/1000  [==>         ]  loss 0.3124  52.1k samples/s  0:02 elapsed  0:12 left
 *   epoch 3/20  step 140/1000  loss 0.3124  52.1k samples/s  0:02 elapsed  0:12 left  lr 0.001
 *   eval  step 100  loss 2.5650  accuracy 26.90 %  best 2.5650 at step 100
 *
 * Pure: numbers and time in, text out. */
#ifndef CT_OUTPUT_PROGRESS_H
#define CT_OUTPUT_PROGRESS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_PROGRESS_LIVE_MS = 100,
    CT_PROGRESS_LINE_MS = 1000,
    CT_PROGRESS_PLAIN_MS = 5000,
    CT_PROGRESS_EPOCH_MS = 1000,
};

struct ct_progress {
    uint32_t epoch, epochs; /* epoch from 0; epochs 0: unknown */
    uint64_t step, steps;   /* completed; steps 0: unknown */
    double loss;
    double samples_per_s; /* 0: unknown */
    double learning_rate;
    double elapsed_s;
    double eta_s;      /* negative: unknown */
    double evaluating; /* how much of an evaluation is done, 0 to 1; negative: none is made */
};

/* An evaluation that is complete. */
struct ct_progress_eval {
    uint64_t step;
    double loss;
    double accuracy;   /* 0 to 1; negative: there is none */
    double perplexity; /* negative likewise */
    double best;       /* the lowest loss so far */
    uint64_t best_step;
};

struct ct_progress_pace {
    bool live;
    uint64_t every;   /* plain lines come at multiples of so many steps; 0: by time */
    bool any;         /* a line was due before */
    uint64_t last_ms; /* when */
    uint32_t epoch;   /* its epoch */
};

/* Return whether a line is due, and record it as printed. The first report and the last step are
 * always due. */
bool ct_progress_due(struct ct_progress_pace *pace, const struct ct_progress *progress,
                     uint64_t now_ms);

/* Append a plain line, without prefix and newline. */
void ct_progress_print(const struct ct_progress *progress, struct ct_buf *to);

/* Append the live line for a terminal of `columns`: less important fields are left out first, and a
 * bar fills the rest. It is never wider than columns - 1; 0 columns: nothing. */
void ct_progress_draw(const struct ct_progress *progress, size_t columns, bool coloured,
                      struct ct_buf *to);

/* Append the result of an evaluation, without newline: a perplexity, or else an accuracy; in colour
 * when it is the best so far. */
void ct_progress_print_eval(const struct ct_progress_eval *eval, bool coloured, struct ct_buf *to);

/* Append a rate with three digits and a unit of thousands: "0.12", "52.1k", "3.40M". */
void ct_progress_print_rate(double rate, struct ct_buf *to);

#endif
