/* Progress of a training job as text: when a line is due, and what it says.
 *
 * On a terminal one live line is drawn over and over; elsewhere a plain line is written every
 * CT_PROGRESS_PLAIN_MS, and when an epoch ends if the last line is CT_PROGRESS_EPOCH_MS old.
 *
 *   epoch 3/20  step 140/1000  loss 0.3124  52.1k samples/s  0:12 left  lr 0.001
 *
 * Pure: numbers and time in, text out. */
#ifndef CT_LAUNCH_PROGRESS_H
#define CT_LAUNCH_PROGRESS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_PROGRESS_LIVE_MS = 100,
    CT_PROGRESS_PLAIN_MS = 5000,
    CT_PROGRESS_EPOCH_MS = 1000,
};

struct ct_progress {
    uint32_t epoch, epochs; /* epoch from 0; epochs 0: unknown */
    uint64_t step, steps;   /* completed; steps 0: unknown */
    double loss;
    double samples_per_s; /* 0: unknown */
    double learning_rate;
    double eta_s; /* negative: unknown */
};

struct ct_progress_pace {
    bool live;
    bool any;         /* a line was due before */
    uint64_t last_ms; /* when */
    uint32_t epoch;   /* its epoch */
};

/* Is a line due? Remembers that it was. The first report and the last step are always due. */
bool ct_progress_due(struct ct_progress_pace *pace, const struct ct_progress *progress,
                     uint64_t now_ms);

/* Append the line, without prefix and newline; what matters most comes first, as a narrow terminal
 * shows only the beginning. */
void ct_progress_print(const struct ct_progress *progress, struct ct_buf *to);

/* "0:07", "12:34", "1:02:03", "3d 4:05:06". */
void ct_progress_print_time(double seconds, struct ct_buf *to);

/* Three digits and a unit of thousands: "0.12", "52.1k", "3.40M". */
void ct_progress_print_rate(double rate, struct ct_buf *to);

#endif
