/* A project's plan and the layouts that fit, as text for people and as one JSON object. */
#ifndef CT_COLL_PLANNER_PLAN_REPORT_H
#define CT_COLL_PLANNER_PLAN_REPORT_H

#include "base/bytes.h"
#include "collectives/planner/advice.h"

struct ct_report_of {
    const struct ct_project *project;
    const struct ct_estimate *estimate; /* of the configuration's own layout */
    const struct ct_advice *advice;     /* NULL: not requested */
};

/* Append the report as text; as one JSON object. */
void ct_planner_print(const struct ct_report_of *report, struct ct_buf *buf);
void ct_planner_json(const struct ct_report_of *report, struct ct_buf *buf);

#endif
