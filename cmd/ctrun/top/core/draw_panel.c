/* The selected job, above the table; see draw.h. */
#include "cmd/ctrun/top/core/draw.h"

#include "base/assert.h"
#include "base/number/scale.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BAR = 20, LINE = 1300, CURVE_WORDS = 32 };

enum top_style top_style_of_phase(const char *phase)
{
    return strcmp(phase, "RUNNING") == 0 || strcmp(phase, "CLOSED") == 0 ? TOP_GOOD : TOP_WARN;
}

static bool is_running(const struct top_job *job)
{
    return strcmp(job->phase, "RUNNING") == 0;
}

/* A pen on a row of the panel. */
struct pen {
    struct top_canvas *canvas;
    int row, column;
};

static void write(struct pen *pen, enum top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void write(struct pen *pen, enum top_style style, const char *format, ...)
{
    char text[LINE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pen->column += top_canvas_put(pen->canvas, pen->row, pen->column,
                                  pen->canvas->width - pen->column, style, text);
}

/* "[=====>      ]" */
static void draw_bar(struct pen *pen, double percent)
{
    char bar[BAR + 3] = "[";
    int done = (int)(fmin(fmax(percent, 0), 100) / 100 * BAR);

    for (int i = 0; i < BAR; i++)
        bar[1 + i] = (char)(i < done ? '=' : i == done ? '>' : ' ');
    bar[BAR + 1] = ']';
    bar[BAR + 2] = '\0';
    write(pen, TOP_GOOD, "  %s", bar);
}

/* night  running 0:12  step 457/1000  [=====>      ]  loss 2.148  643 samples/s  0:10 left */
static void draw_progress(const struct top_job *job, struct top_canvas *canvas, int row)
{
    struct pen pen = {canvas, row, 0};
    char phase[32], clock[CT_SCALE_SIZE];

    (void)snprintf(phase, sizeof phase, "%s", job->phase);
    for (char *at = phase; *at != '\0'; at++)
        *at = (char)(*at == '_' ? ' ' : tolower((unsigned char)*at));
    pen.column += top_canvas_put(canvas, row, 0, canvas->width / 3, TOP_STRONG, job->name);
    write(&pen, top_style_of_phase(job->phase), "  %s", phase);
    if (job->phase_s >= 0)
        write(&pen, TOP_PLAIN, " %s", ct_scale_clock(job->phase_s, clock));
    if (job->step < 0)
        return;
    write(&pen, TOP_PLAIN, "  step %" PRId64 "/%" PRId64, job->step, job->steps);
    if (canvas->width >= 100 && isfinite(job->percent))
        draw_bar(&pen, job->percent);
    if (isfinite(job->loss))
        write(&pen, TOP_PLAIN, "  loss %.4g", job->loss);
    if (isfinite(job->samples_per_s))
        write(&pen, TOP_PLAIN, "  %.4g samples/s", job->samples_per_s);
    if (is_running(job) && job->eta_s >= 0)
        write(&pen, TOP_PLAIN, "  %s left", ct_scale_clock(job->eta_s, clock));
}

/* loss ▇▅▃▂▁  2.3 to 0.11 */
static void draw_curve(const struct top_job *job, struct top_canvas *canvas, int row)
{
    struct pen pen = {canvas, row, 0};
    int room = CT_MIN(canvas->width - CURVE_WORDS, (int)CT_MIN(job->loss_count, (size_t)256));

    if (job->loss_count < 2) {
        write(&pen, TOP_DIM, "no losses yet");
        return;
    }
    write(&pen, TOP_PLAIN, "loss ");
    bool logarithmic =
        top_canvas_put_curve(canvas, row, pen.column, room, job->losses, job->loss_count);
    pen.column += room;
    write(&pen, TOP_PLAIN, "  %.4g to %.4g%s", job->losses[0], job->losses[job->loss_count - 1],
          logarithmic ? " (log)" : "");
}

/* What the job waits for and since when, what happened to it: the worst first. */
static void draw_sentences(const struct top_job *job, struct top_canvas *canvas, int row, int rows)
{
    char clock[CT_SCALE_SIZE];
    struct pen pens[6];

    for (int i = 0; i < 6; i++)
        pens[i] = (struct pen){canvas, row + i, 0};
    struct pen *pen = pens, *end = pens + CT_MIN(rows, 6);
    if (pen < end && job->trouble[0] != '\0')
        write(pen++, TOP_BAD, "no new round can begin: %s", job->trouble);
    if (pen < end && !is_running(job))
        write(pen++, top_style_of_phase(job->phase), "for %s: %s",
              ct_scale_clock(job->phase_s, clock), job->why);
    if (pen < end && job->store_wait[0] != '\0')
        write(pen++, TOP_WARN, "store: %s", job->store_wait);
    if (pen < end && job->restart_reason[0] != '\0')
        write(pen++, TOP_WARN, "restarted because %s", job->restart_reason);
    if (pen < end && is_running(job))
        write(pen++, TOP_PLAIN, "round %" PRId64 ": %s", job->generation,
              job->round_reason[0] != '\0' ? job->round_reason : "the first");
    if (pen < end && job->saved >= 0)
        write(pen, TOP_PLAIN, "saved: checkpoint of step %" PRId64, job->saved);
}

void top_draw_panel(const struct top_state *state, struct top_canvas *canvas,
                    const struct top_layout *layout)
{
    const struct top_job *job = top_job_of(state);

    if (job == NULL)
        return;
    draw_progress(job, canvas, layout->panel);
    if (layout->panel_rows < 3)
        return;
    draw_curve(job, canvas, layout->panel + 1);
    draw_sentences(job, canvas, layout->panel + 2, layout->panel_rows - 2);
}
