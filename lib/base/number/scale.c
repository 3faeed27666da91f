/* See scale.h. */
#include "base/number/scale.h"

#include <stdbool.h>
#include <stdio.h>

/* The largest step of `factor` that keeps the amount at 1 or above. */
static int step_of(double *amount, double factor, int most)
{
    int step = 0;

    while (*amount >= factor && step < most) {
        *amount /= factor;
        step++;
    }
    return step;
}

const char *ct_scale_bytes(double bytes, char text[CT_SCALE_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int step = step_of(&bytes, 1024, 5);

    (void)snprintf(text, CT_SCALE_SIZE, step == 0 ? "%.0f %s" : "%.2f %s", bytes, units[step]);
    return text;
}

const char *ct_scale_unit(double amount, const char *unit, char text[CT_SCALE_SIZE])
{
    static const char *const prefixes[] = {"", "K", "M", "G", "T", "P", "E"};
    int step = step_of(&amount, 1000, 6);

    (void)snprintf(text, CT_SCALE_SIZE, step == 0 ? "%.0f %s%s" : "%.2f %s%s", amount,
                   prefixes[step], unit);
    return text;
}

const char *ct_scale_seconds(double seconds, char text[CT_SCALE_SIZE])
{
    if (seconds < 1e-3)
        (void)snprintf(text, CT_SCALE_SIZE, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        (void)snprintf(text, CT_SCALE_SIZE, "%.2f ms", seconds * 1e3);
    else
        (void)snprintf(text, CT_SCALE_SIZE, "%.2f s", seconds);
    return text;
}

const char *ct_scale_clock(double seconds, char text[CT_SCALE_SIZE])
{
    bool known = seconds >= 0 && seconds < 1e9;
    unsigned long s = known ? (unsigned long)(seconds + 0.5) : 0;
    int days = 0;

    if (s >= 86400)
        days = snprintf(text, CT_SCALE_SIZE, "%lud ", s / 86400);
    if (!known)
        (void)snprintf(text, CT_SCALE_SIZE, "?");
    else if (s >= 3600)
        (void)snprintf(text + days, CT_SCALE_SIZE - (size_t)days, "%lu:%02lu:%02lu", s / 3600 % 24,
                       s / 60 % 60, s % 60);
    else
        (void)snprintf(text, CT_SCALE_SIZE, "%lu:%02lu", s / 60, s % 60);
    return text;
}
