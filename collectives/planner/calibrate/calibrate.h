/* Measuring what things cost on this machine, for costs.h: `ctrun plan --calibrate`.
 *
 *     job of R ranks     rank 0 alone        single figures                value
 *     on one machine     as many ranks as    reference models, op by op,   op
 *                        fill the machine    with 1, 4, ... threads each
 *                        more than that      one of the models             crowd
 *                        2, 4, ... ranks     calls over shm                call shm
 *                        2 ranks             calls over tcp, loopback      call tcp
 *
 * The reference models (references.def) are made-up ones of many shapes, run by the executor as a
 * training runs them, one after the other, so that an op finds its operands where a step leaves
 * them: in the caches or not. Ranks that measure at once do so step by step, and share caches and
 * memory as those of a training do. Of each op the median of its times counts, and the mean of two
 * passes, since the machine may be busy. */
#ifndef CT_PLANNER_CALIBRATE_H
#define CT_PLANNER_CALIBRATE_H

#include "collectives/planner/costs.h"
#include "ctrun.h"

#include <stdio.h>

enum { CT_CALIBRATE_WAIT_MS = 120 * 1000 }; /* for a rank that is away */

/* A model that is measured. */
struct ct_reference {
    const char *name;
    int64_t rows; /* a step */
    enum ct_dtype compute;
    int64_t least, most; /* perceptron: widths of layers, powers of four times `least`; images:
                            channels */
    int64_t layers, heads, width, sequence, vocabulary; /* gpt: width > 0 */
    int64_t pixels;                                     /* images: rows and columns; 0: none */
    bool modern; /* gpt: rotary, rmsnorm, swiglu; others: with batch norm or tanh */
};

/* Return the number of reference models, and one of them. */
int ct_reference_count(void);
const struct ct_reference *ct_reference_at(int number);

/* Time the ops of a reference model's steps for `budget_s` seconds, and at least six steps, on so
 * many threads of each rank of `group`; append them to `costs`, unless that is NULL; *ret_step_s:
 * the median of the time that this rank's thread runs in a step. Collective. 0, or an error with
 * its sentence. */
int ct_reference_measure(const struct ct_reference *reference, int threads, double budget_s,
                         struct ct_group *group, struct ct_costs *costs, double *ret_step_s,
                         struct ct_error *err);

/* Measure the seconds of a step of the smallest reference model beside its ops, whose times include
 * `clock_s`. 0, or an error with its sentence. */
int ct_reference_beside(double clock_s, double *ret_s, struct ct_error *err);

/* Time calls among ranks of the job, collective; appended at rank 0 alone. */
int ct_calls_measure(struct ct_job *job, struct ct_costs *costs, struct ct_error *err);

/* Measure all of it and write the calibration (costs_file.c) to `path`, or where the environment
 * says; rank 0 reports to `to`. Collective. 0, or an error with its sentence. */
int ct_calibrate(struct ct_job *job, const char *path, FILE *to, struct ct_error *err);

#endif
