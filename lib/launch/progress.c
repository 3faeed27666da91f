/* See progress.h. */
#include "launch/progress.h"

#include "base/assert.h"

#include <math.h>

bool ct_progress_due(struct ct_progress_pace *pace, const struct ct_progress *progress,
                     uint64_t now_ms)
{
    uint64_t age_ms = now_ms - pace->last_ms;
    bool last = progress->steps > 0 && progress->step >= progress->steps;
    bool due = !pace->any || last;

    if (pace->live)
        due = due || age_ms >= CT_PROGRESS_LIVE_MS;
    else
        due = due || age_ms >= CT_PROGRESS_PLAIN_MS ||
              (progress->epoch != pace->epoch && age_ms >= CT_PROGRESS_EPOCH_MS);
    if (due) {
        pace->any = true;
        pace->last_ms = now_ms;
        pace->epoch = progress->epoch;
    }
    return due;
}

void ct_progress_print_time(double seconds, struct ct_buf *to)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        (void)ct_buf_puts(to, "?");
        return;
    }
    unsigned long s = (unsigned long)(seconds + 0.5);
    unsigned long days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60;

    if (days > 0)
        (void)ct_buf_printf(to, "%lud ", days);
    if (s >= 3600)
        (void)ct_buf_printf(to, "%lu:%02lu:%02lu", hours, minutes, s % 60);
    else
        (void)ct_buf_printf(to, "%lu:%02lu", minutes, s % 60);
}

void ct_progress_print_rate(double rate, struct ct_buf *to)
{
    static const char units[] = {'k', 'M', 'G', 'T'};
    size_t unit = 0;

    if (!isfinite(rate) || fabs(rate) < 999.5) {
        (void)ct_buf_printf(to, "%.3g", rate);
        return;
    }
    for (rate /= 1000; fabs(rate) >= 999.5 && unit + 1 < sizeof units; unit++)
        rate /= 1000;
    int decimals = fabs(rate) < 9.995 ? 2 : fabs(rate) < 99.95 ? 1 : 0;
    (void)ct_buf_printf(to, "%.*f%c", decimals, rate, units[unit]);
}

void ct_progress_print(const struct ct_progress *p, struct ct_buf *to)
{
    if (p->epochs > 0)
        (void)ct_buf_printf(to, "epoch %u/%u", CT_MIN(p->epoch + 1, p->epochs), p->epochs);
    else
        (void)ct_buf_printf(to, "epoch %u", p->epoch + 1);
    (void)ct_buf_printf(to, "  step %llu", (unsigned long long)p->step);
    if (p->steps > 0)
        (void)ct_buf_printf(to, "/%llu", (unsigned long long)p->steps);
    (void)ct_buf_printf(to, "  loss %.4f  ", p->loss);
    if (p->samples_per_s > 0) {
        ct_progress_print_rate(p->samples_per_s, to);
        (void)ct_buf_puts(to, " samples/s  ");
    }
    if (p->eta_s >= 0) {
        ct_progress_print_time(p->eta_s, to);
        (void)ct_buf_puts(to, " left  ");
    }
    (void)ct_buf_printf(to, "lr %.3g", p->learning_rate);
}
