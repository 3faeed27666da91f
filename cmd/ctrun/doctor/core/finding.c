/* See finding.h. */
#include "cmd/ctrun/doctor/core/finding.h"

#include <stdarg.h>
#include <stdio.h>

#define WRITE(to, format)                                  \
    do {                                                   \
        va_list args;                                      \
        va_start(args, format);                            \
        (void)vsnprintf((to), sizeof(to), (format), args); \
        va_end(args);                                      \
    } while (0)

void finding_ok(struct doctor_finding *to, const char *format, ...)
{
    to->level = DOCTOR_OK;
    WRITE(to->text, format);
}

void finding_warn(struct doctor_finding *to, const char *format, ...)
{
    to->level = DOCTOR_WARNING;
    WRITE(to->text, format);
}

void finding_fail(struct doctor_finding *to, int code, const char *format, ...)
{
    to->level = DOCTOR_PROBLEM;
    to->code = code;
    WRITE(to->text, format);
}

void finding_remedy(struct doctor_finding *to, const char *format, ...)
{
    WRITE(to->remedy, format);
}

int doctor_status(const struct doctor_finding *findings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (findings[i].level == DOCTOR_PROBLEM)
            return ct_exit_status(findings[i].code);
    return 0;
}
