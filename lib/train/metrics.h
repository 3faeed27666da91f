/* Metrics: one record an event, to metrics.jsonl and to TensorBoard event files.
 *
 *   {"v":1,"kind":"train","step":40,"epoch":1,"time":1700000000.25,"loss":0.31,...}
 *   {"v":1,"kind":"eval","step":45,...,"accuracy":0.97,"correct":349,"rows":360}
 *
 * `step` counts completed steps. metric.def lists the keys. A resumed run truncates metrics.jsonl
 * after the step it resumes from, and has TensorBoard do the same, so no step appears twice. One
 * thread at a time. */
#ifndef CT_TRAIN_METRICS_H
#define CT_TRAIN_METRICS_H

#include "base/clock.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_METRICS_VERSION 1

enum ct_metric {
#define CT_METRIC(name, key, tag, unit) CT_METRIC_##name,
#include "train/metric.def"
#undef CT_METRIC
    CT_METRIC_COUNT
};

struct ct_metric_record {
    const char *kind; /* "train" or "eval" */
    uint64_t step;
    uint64_t epoch;
    bool has[CT_METRIC_COUNT];
    double value[CT_METRIC_COUNT];
};

/* Put a value into a record. */
static inline void ct_metric_put(struct ct_metric_record *record, enum ct_metric metric,
                                 double value)
{
    record->has[metric] = true;
    record->value[metric] = value;
}

struct ct_metrics;

struct ct_metrics_options {
    const char *dir; /* made when missing; gets metrics.jsonl and events.out.tfevents.* */
    bool jsonl;
    bool tensorboard;
    uint64_t resumed_step; /* records of a later step are dropped; 0: start anew */
    const struct ct_clock *clock;
};

/* Open the files. CT_ECANTCREAT or CT_EIO. */
int ct_metrics_new(struct ct_metrics **ret, const struct ct_metrics_options *options,
                   struct ct_error *err);

/* Write one record to every open file. CT_EIO. CT_EFENCED: another process has written to
 * metrics.jsonl since (the rank 0 of a later round, while this one was cut off); the record is not
 * written. */
int ct_metrics_write(struct ct_metrics *metrics, const struct ct_metric_record *record,
                     struct ct_error *err);

/* Write what the model generated after `step` as {"kind":"sample",...,"prompt":"","text":""} to
 * metrics.jsonl. Errors as above. */
int ct_metrics_write_sample(struct ct_metrics *metrics, const struct ct_metric_record *record,
                            const char *prompt, const char *text, struct ct_error *err);

/* Return the path of metrics.jsonl, and of TensorBoard's event file; "" if it is not written. */
const char *ct_metrics_path(const struct ct_metrics *metrics);
const char *ct_metrics_events_path(const struct ct_metrics *metrics);

/* Close everything. NULL is ignored. */
void ct_metrics_free(struct ct_metrics *metrics);

#endif
