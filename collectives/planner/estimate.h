/* The cost of a step for a rank on given machines: its plan's measure (collectives/plan/measure.h),
 * and the time of its ops by the device's figures.
 *
 * Time. The list is simulated once, with its queues and their waits: an op takes as long as its
 * arithmetic or its memory traffic, whichever is longer; a collective as long as its slowest link.
 * Work of a communication queue that overlaps with compute costs nothing. Of a pipeline the first
 * and the last stage are estimated, which differ from the others: the larger one's memory, the
 * slower one's time, and the time that the pipeline takes to fill and drain.
 *
 * Lists that are too long are not built: a step grows by equal amounts with each block of a gpt and
 * each micro-batch, so two short plans per dimension give the long one. Work and traffic are then
 * those of the whole plan, memory within a hundredth of it: the gaps between values are not the
 * same. */
#ifndef CT_PLANNER_ESTIMATE_H
#define CT_PLANNER_ESTIMATE_H

#include "collectives/plan/measure.h"
#include "collectives/planner/project.h"

/* Numbers only, so that estimates can be added and scaled. */
struct ct_estimate {
    double memory[CT_MEMORY_KIND_COUNT]; /* bytes a rank */
    struct {
        double calls, bytes, sent;
    } comm[CT_AXIS_COUNT]; /* a rank and step: measure.h's struct ct_axis_traffic */
    double parameters;
    double flop;      /* a rank and step */
    double compute_s; /* of its ops alone */
    double comm_s;    /* of its collectives alone */
    double bubble; /* share of the step in which a stage waits for others: (p - 1) / (A + p - 1) */
    double step_s; /* of all, overlapped as the plan has it */
    double ops;    /* of the list */
    double built;  /* 1: of the whole plan; 0: extrapolated from shorter ones */
};

/* Return the bytes a rank, of all kinds. */
double ct_estimate_memory(const struct ct_estimate *estimate);

/* The longest list that is built; longer ones are extrapolated. */
enum { CT_ESTIMATE_SEARCH_OPS = 1500, CT_ESTIMATE_WHOLE_OPS = 24000 };

/* Estimate a layout. 0, or the error of building a plan. */
int ct_estimate(const struct ct_project *project, const struct ct_layout *layout, int most_ops,
                struct ct_estimate *ret, struct ct_error *err);

#endif
