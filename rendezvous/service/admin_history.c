/* The course of a job, as members of its JSON object: for the page and for `ctrun top`. */
#include "rendezvous/service/admin.h"

#include "rendezvous/service/service_state.h"

#include <math.h>

/* Numbers as people read them: six digits. */
static void put_number(struct ct_buf *out, double value)
{
    if (isfinite(value))
        (void)ct_buf_printf(out, "%.6g", value);
    else
        (void)ct_buf_puts(out, "null");
}

enum column { SECONDS, LOSS, LEARNING_RATE, SAMPLES, COLUMNS };

static double value_of(const struct ct_history *history, size_t i, enum column column)
{
    const struct ct_history_point *point = &history->points[i];

    switch (column) {
    case SECONDS:
        return (double)(point->ms - history->begun_ms) / 1e3;
    case LOSS:
        return point->loss;
    case LEARNING_RATE:
        return point->learning_rate;
    default:
        return point->samples_per_s;
    }
}

/* "curve":{"s":[...],"loss":[...],...}: seconds since the job began, and values then. */
static void put_curve(const struct ct_history *history, struct ct_buf *out)
{
    static const char *const names[COLUMNS] = {"s", "loss", "learning_rate", "samples_per_s"};

    (void)ct_buf_puts(out, "\"curve\":{");
    for (enum column column = 0; column < COLUMNS; column++) {
        (void)ct_buf_printf(out, "%s\"%s\":[", column > 0 ? "," : "", names[column]);
        for (size_t i = 0; i < history->point_count; i++) {
            if (i > 0)
                (void)ct_buf_puts(out, ",");
            put_number(out, value_of(history, i, column));
        }
        (void)ct_buf_puts(out, "]");
    }
    (void)ct_buf_puts(out, "}");
}

static void put_time(const struct ct_history *history, uint64_t now_ms, struct ct_buf *out)
{
    double seconds[CT_TIME_USES];

    ct_goodput_read(&history->goodput, now_ms, seconds);
    (void)ct_buf_puts(out, "\"time\":[");
    for (enum ct_time_use use = 0; use < CT_TIME_USES; use++) {
        (void)ct_buf_printf(out, "%s[\"%s\",", use > 0 ? "," : "", ct_time_use_label(use));
        put_number(out, seconds[use]);
        (void)ct_buf_printf(out, ",\"%s\"]", ct_time_use_help(use));
    }
    (void)ct_buf_puts(out, "]");
}

/* When rounds began that are still in the events, but for the first. */
static void put_rounds(const struct ct_history *history, struct ct_buf *out)
{
    const struct ct_history_event *event;
    const char *separator = "";

    (void)ct_buf_puts(out, "\"rounds\":[");
    for (uint64_t after = 0; (event = ct_history_next(history, after)) != NULL;) {
        after = event->number;
        if (event->kind != CT_ANNOUNCE_ROUND_RUNS || event->generation < 2)
            continue;
        (void)ct_buf_puts(out, separator);
        put_number(out, (double)(event->ms - history->begun_ms) / 1e3);
        separator = ",";
    }
    (void)ct_buf_puts(out, "]");
}

void ct_admin_add_history(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    out->size--; /* what follows is in the same object */
    (void)ct_buf_puts(out, ",");
    put_curve(job->history, out);
    (void)ct_buf_puts(out, ",");
    put_time(job->history, now_ms, out);
    (void)ct_buf_puts(out, ",");
    put_rounds(job->history, out);
    (void)ct_buf_puts(out, "}");
}
