/* Writing a finding (doctor.h): a level with its sentence, then the remedy. */
#ifndef CT_CTRUN_DOCTOR_FINDING_H
#define CT_CTRUN_DOCTOR_FINDING_H

#include "cmd/ctrun/doctor/core/doctor.h"

void finding_ok(struct doctor_finding *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void finding_warn(struct doctor_finding *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A problem with its code. */
void finding_fail(struct doctor_finding *to, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void finding_remedy(struct doctor_finding *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
