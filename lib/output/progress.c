/* See progress.h. */
#include "output/progress.h"

#include "base/assert.h"
#include "base/number/scale.h"

#include <math.h>
#include <stdio.h>

bool ct_progress_due(struct ct_progress_pace *pace, const struct ct_progress *progress,
                     uint64_t now_ms)
{
    uint64_t age_ms = now_ms - pace->last_ms;
    bool last = progress->steps > 0 && progress->step >= progress->steps;
    bool due = !pace->any || last;

    if (pace->live)
        due = due || age_ms >= CT_PROGRESS_LIVE_MS;
    else if (pace->every > 0)
        due = due || (progress->step % pace->every == 0 && age_ms >= CT_PROGRESS_LINE_MS);
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

/* ---- lines ---------------------------------------------------------------------------------- */

/* The parts of a line in the order in which they stand, and the order in which they are chosen. */
enum part { EVALUATING, STEP, BAR, LOSS, SPEED, ELAPSED, LEFT, EPOCH, RATE, PARTS };
static const enum part by_worth[] = {EVALUATING, STEP,    LOSS,  LEFT, SPEED,
                                     BAR,        ELAPSED, EPOCH, RATE};
static const enum part plain[] = {EPOCH, STEP, LOSS, SPEED, ELAPSED, LEFT, RATE};
_Static_assert(CT_COUNT(by_worth) == PARTS, "all parts have a worth");

enum { PART_MAX = 64, BAR_LEAST = 6, BAR_MOST = 24 };

static void print_epoch(const struct ct_progress *p, struct ct_buf *to)
{
    if (p->epochs > 0)
        (void)ct_buf_printf(to, "epoch %u/%u", CT_MIN(p->epoch + 1, p->epochs), p->epochs);
    else
        (void)ct_buf_printf(to, "epoch %u", p->epoch + 1);
}

static void print_step(const struct ct_progress *p, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "step %llu", (unsigned long long)p->step);
    if (p->steps > 0)
        (void)ct_buf_printf(to, "/%llu", (unsigned long long)p->steps);
}

/* A loss that has diverged is not told to four decimals. */
static void print_loss(double loss, struct ct_buf *to)
{
    (void)ct_buf_printf(to, fabs(loss) < 1e5 ? "%.4f" : "%.4g", loss);
}

static void print_span(double seconds, const char *word, struct ct_buf *to)
{
    char text[CT_SCALE_SIZE];

    if (seconds >= 0)
        (void)ct_buf_printf(to, "%s%s", ct_scale_clock(seconds, text), word);
}

/* Nothing where it is not known; the bar is drawn elsewhere. */
static void print_part(const struct ct_progress *p, enum part part, struct ct_buf *to)
{
    switch (part) {
    case EVALUATING:
        if (p->evaluating >= 0)
            (void)ct_buf_printf(to, "evaluating %.0f %%", 100 * p->evaluating);
        break;
    case STEP:
        print_step(p, to);
        break;
    case LOSS:
        (void)ct_buf_puts(to, "loss ");
        print_loss(p->loss, to);
        break;
    case SPEED:
        if (p->samples_per_s > 0) {
            ct_progress_print_rate(p->samples_per_s, to);
            (void)ct_buf_puts(to, " samples/s");
        }
        break;
    case ELAPSED:
        print_span(p->elapsed_s, " elapsed", to);
        break;
    case LEFT:
        print_span(p->eta_s, " left", to);
        break;
    case EPOCH:
        print_epoch(p, to);
        break;
    case RATE:
        if (!isnan(p->learning_rate))
            (void)ct_buf_printf(to, "lr %.3g", p->learning_rate);
        break;
    case BAR:
    case PARTS:
        break;
    }
}

void ct_progress_print(const struct ct_progress *progress, struct ct_buf *to)
{
    struct ct_buf part;
    bool first = true;

    ct_buf_init(&part, PART_MAX - 1);
    for (size_t i = 0; i < CT_COUNT(plain); i++) {
        ct_buf_clear(&part);
        print_part(progress, plain[i], &part);
        if (part.size == 0)
            continue; /* not known */
        (void)ct_buf_printf(to, "%s%s", first ? "" : "  ", ct_buf_str(&part));
        first = false;
    }
    ct_buf_deinit(&part);
}

static void draw_bar(const struct ct_progress *p, size_t inner, bool coloured, struct ct_buf *to)
{
    size_t done = (size_t)((double)p->step / (double)p->steps * (double)inner);

    (void)ct_buf_puts(to, coloured ? "[\x1b[36m" : "[");
    for (size_t i = 0; i < inner; i++)
        (void)ct_buf_puts(to, i < done ? "=" : i == done ? ">" : " ");
    (void)ct_buf_puts(to, coloured ? "\x1b[0m]" : "]");
}

void ct_progress_draw(const struct ct_progress *p, size_t columns, bool coloured, struct ct_buf *to)
{
    char text[PARTS][PART_MAX];
    size_t width[PARTS] = {0}, used = 0, shown = 0;
    struct ct_buf part;

    ct_buf_init(&part, PART_MAX - 1);
    for (size_t i = 0; i < PARTS; i++) {
        enum part which = by_worth[i];
        ct_buf_clear(&part);
        print_part(p, which, &part);
        (void)snprintf(text[which], PART_MAX, "%s", ct_buf_str(&part));
        size_t needed = which != BAR ? part.size : p->steps > 0 ? BAR_LEAST + 2 : 0;
        size_t gap = used > 0 ? 2 : 0;
        if (needed == 0 || used + gap + needed >= columns)
            continue;
        width[which] = needed;
        used += gap + needed;
    }
    ct_buf_deinit(&part);
    for (size_t i = 0; i < PARTS; i++) {
        if (width[i] == 0)
            continue;
        (void)ct_buf_puts(to, shown++ > 0 ? "  " : "");
        if (i == BAR)
            draw_bar(p, CT_MIN(BAR_LEAST + (columns - 1 - used), (size_t)BAR_MOST), coloured, to);
        else
            (void)ct_buf_puts(to, text[i]);
    }
}

void ct_progress_print_eval(const struct ct_progress_eval *eval, bool coloured, struct ct_buf *to)
{
    bool best = eval->best_step == eval->step;

    (void)ct_buf_printf(to, "eval  step %llu  loss ", (unsigned long long)eval->step);
    print_loss(eval->loss, to);
    if (eval->perplexity >= 0) /* what language models are compared by; both would wrap */
        (void)ct_buf_printf(to, "  perplexity %.4g", eval->perplexity);
    else if (eval->accuracy >= 0)
        (void)ct_buf_printf(to, "  accuracy %.2f %%", 100 * eval->accuracy);
    (void)ct_buf_puts(to, coloured && best ? "  \x1b[32mbest " : "  best ");
    print_loss(eval->best, to);
    (void)ct_buf_printf(to, " at step %llu%s", (unsigned long long)eval->best_step,
                        coloured && best ? "\x1b[0m" : "");
}
