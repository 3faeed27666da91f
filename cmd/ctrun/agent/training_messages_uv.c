/* What the user sees of a training: rank 0's progress, evaluations and summary.
 *
 *   terminal     one live line below all others; evaluations stay above it
 *   file, pipe   lines with the time, at the steps that log.every names
 *   JSON         records
 *
 * A log level above info leaves the summary alone. */
#include "node_state_uv.h"

#include "base/assert.h"
#include "base/log/record.h"

#include <string.h>

/* ---- records -------------------------------------------------------------------------------- */

/* All that speaks of the training is rank 0's. */
static struct ct_buf *begin_record(struct node *node, const char *kind)
{
    struct ct_buf *lines = ct_console_lines(node->console, CT_CONSOLE_OUT);

    ct_record_begin(lines, ct_clock_wall_ns(&ct_clock_system), kind);
    ct_record_whole(lines, "node", node->place);
    ct_record_whole(lines, "rank", 0);
    return lines;
}

static void end_record(struct node *node, struct ct_buf *lines)
{
    ct_record_end(lines);
    ct_console_flush(node->console);
}

static void put_step(const struct ct_progress *p, double eta_s, struct ct_buf *to)
{
    const struct ct_record_step step = {
        .epoch = CT_MIN(p->epoch + 1, CT_MAX(p->epochs, 1u)),
        .epochs = p->epochs,
        .step = p->step,
        .steps = p->steps,
        .loss = p->loss,
        .lr = p->learning_rate,
        .samples_per_s = p->samples_per_s,
        .elapsed_s = p->elapsed_s,
        .eta_s = eta_s,
    };

    ct_record_step(to, &step);
}

static void put_eval(const struct ct_progress_eval *e, struct ct_buf *to)
{
    const struct ct_record_eval eval = {
        .step = e->step,
        .loss = e->loss,
        .perplexity = e->perplexity,
        .accuracy = e->accuracy,
        .best = e->best,
        .best_step = e->best_step,
    };

    ct_record_eval(to, &eval);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Whole lines, to standard output. */
static void put_lines(struct node *node, const char *text)
{
    struct ct_buf *lines = ct_console_lines(node->console, CT_CONSOLE_OUT);
    size_t length = strlen(text);

    (void)ct_buf_append(lines, text, length);
    if (length == 0 || text[length - 1] != '\n')
        (void)ct_buf_puts(lines, "\n");
    ct_console_flush(node->console);
}

/* One that tells how far the training is: with the time, unless a person watches. */
static void put_event(struct node *node, const char *text)
{
    struct ct_log stamp = node->log;
    struct ct_buf line;

    stamp.stamped = !ct_console_is_terminal(node->console, CT_CONSOLE_OUT);
    ct_buf_init(&line, 0);
    ct_log_stamp(&stamp, &line);
    (void)ct_buf_puts(&line, text);
    put_lines(node, ct_buf_str(&line));
    ct_buf_deinit(&line);
}

/* As wide as the terminal, less what it writes itself when Ctrl-C is pressed: "^C". */
static void draw(struct node *node)
{
    enum { CTRL_C = 2 };
    size_t columns = ct_console_columns(node->console);
    struct ct_buf line;

    ct_buf_init(&line, 0);
    ct_progress_draw(&node->training.progress, columns > CTRL_C ? columns - CTRL_C : 0,
                     ct_console_is_coloured(node->console, CT_CONSOLE_OUT), &line);
    ct_console_live(node->console, ct_buf_str(&line));
    ct_buf_deinit(&line);
}

static void show(struct node *node)
{
    struct ct_buf line;

    if (node->training.pace.live) {
        draw(node);
        return;
    }
    if (node->log.json) {
        struct ct_buf *record = begin_record(node, "progress");
        put_step(&node->training.progress, node->training.progress.eta_s, record);
        end_record(node, record);
        return;
    }
    ct_buf_init(&line, 0);
    ct_progress_print(&node->training.progress, &line);
    put_event(node, ct_buf_str(&line));
    ct_buf_deinit(&line);
}

/* ---- what rank 0 says ----------------------------------------------------------------------- */

static bool is_quiet(const struct node *node)
{
    return node->log.level > CT_LOG_INFO;
}

static void open_pace(struct node *node)
{
    const struct ct_config_interval *every = &node->job->cfg.log.every;

    node->training.pace.live = !node->log.json && ct_console_is_live(node->console);
    node->training.pace.every =
        node->job->program.native && every->unit == CT_CONFIG_STEPS ? (uint64_t)every->count : 0;
}

void show_progress(struct node *node, const struct ct_msg_progress *message)
{
    uint64_t now_ms = uv_now(&node->loop);

    node->training.progress = (struct ct_progress){
        .epoch = message->epoch,
        .epochs = message->epochs,
        .step = message->step,
        .steps = message->steps,
        .loss = message->loss,
        .samples_per_s = message->samples_per_s,
        .learning_rate = message->learning_rate,
        .elapsed_s = message->elapsed_s,
        .eta_s = message->eta_s,
        .evaluating = -1,
    };
    open_pace(node);
    if (!is_quiet(node) && ct_progress_due(&node->training.pace, &node->training.progress, now_ms))
        show(node);
}

/* Between its begin and its end an evaluation moves the live line alone. */
static void show_evaluating(struct node *node, double done)
{
    node->training.progress.evaluating = done;
    node->training.progress.eta_s = -1;
    node->training.progress.elapsed_s = (double)(uv_now(&node->loop) - node->started_ms) / 1000;
    open_pace(node);
    if (node->training.pace.live && node->training.progress.steps > 0)
        draw(node);
}

void show_evaluation(struct node *node, const struct ct_msg_evaluation *message)
{
    const struct ct_progress_eval eval = {
        .step = message->step,
        .loss = message->loss,
        .accuracy = message->accuracy,
        .perplexity = message->perplexity,
        .best = message->best,
        .best_step = message->best_step,
    };
    struct ct_buf line;

    if (is_quiet(node))
        return;
    if (message->done < 1) {
        show_evaluating(node, message->done);
        return;
    }
    node->training.progress.evaluating = -1;
    node->training.progress.step = CT_MAX(node->training.progress.step, message->step);
    if (node->log.json) {
        struct ct_buf *record = begin_record(node, "eval");
        put_eval(&eval, record);
        end_record(node, record);
        return;
    }
    ct_buf_init(&line, 0);
    ct_progress_print_eval(&eval, ct_console_is_coloured(node->console, CT_CONSOLE_OUT), &line);
    put_event(node, ct_buf_str(&line));
    ct_buf_deinit(&line);
}

void show_summary(struct node *node, const char *text)
{
    ct_console_live(node->console, "");
    if (node->log.json) {
        struct ct_buf *record = begin_record(node, "summary");
        put_step(&node->training.progress, -1, record);
        ct_record_string(record, "text", text);
        end_record(node, record);
        return;
    }
    put_lines(node, text);
}
