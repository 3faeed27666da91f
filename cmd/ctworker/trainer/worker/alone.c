/* See alone.h. */
#include "alone.h"

#include "base/log/record.h"
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>

int ct_alone_decimals(double rate)
{
    return rate < 10 ? 3 : rate < 100 ? 1 : 0;
}

/* ---- records -------------------------------------------------------------------------------- */

static void begin(const struct ct_worker *worker, const char *kind, struct ct_buf *record)
{
    ct_buf_init(record, 0);
    ct_record_begin(record, ct_clock_wall_ns(worker->clock), kind);
    ct_record_whole(record, "node", worker->me->node_rank);
    ct_record_whole(record, "rank", worker->me->rank);
}

static void end(struct ct_buf *record)
{
    ct_record_end(record);
    (void)fputs(ct_buf_str(record), stdout);
    (void)fflush(stdout);
    ct_buf_deinit(record);
}

static void put_step(const struct ct_worker *worker, const struct ct_progress *p, double eta_s,
                     struct ct_buf *record)
{
    const struct ct_record_step step = {
        .epoch = p->epoch + 1,
        .epochs = p->epochs,
        .step = p->step,
        .steps = p->steps,
        .loss = p->loss,
        .lr = p->learning_rate,
        .samples_per_s = p->samples_per_s,
        .elapsed_s = (double)(ct_clock_mono_ns(worker->clock) - worker->report.started_ns) * 1e-9,
        .eta_s = eta_s,
    };

    ct_record_step(record, &step);
}

/* ---- both ----------------------------------------------------------------------------------- */

void ct_alone_progress(struct ct_worker *worker, const struct ct_progress *p)
{
    struct ct_buf record;

    worker->report.shown = *p;
    if (worker->log->json) {
        begin(worker, "progress", &record);
        put_step(worker, p, p->eta_s, &record);
        end(&record);
        return;
    }
    (void)printf("epoch %" PRIu64 "/%" PRIu64 "  step %" PRIu64 "/%" PRIu64
                 "  loss %.4f  %.*f samples/s  %.0f s left\n",
                 p->epoch + 1, p->epochs, p->step, p->steps, p->loss,
                 ct_alone_decimals(p->samples_per_s), p->samples_per_s, p->eta_s);
    (void)fflush(stdout);
}

void ct_alone_evaluation(const struct ct_worker *worker, const struct ct_job_evaluation *e)
{
    const struct ct_record_eval eval = {
        .step = e->step,
        .loss = e->loss,
        .perplexity = e->perplexity,
        .accuracy = e->accuracy,
        .best = e->best,
        .best_step = e->best_step,
    };
    struct ct_buf record;

    if (worker->log->json) {
        begin(worker, "eval", &record);
        ct_record_eval(&record, &eval);
        end(&record);
        return;
    }
    (void)printf("eval  step %" PRIu64 "  loss %.4f  accuracy %.2f %%  best %.4f at step %" PRIu64
                 "\n",
                 e->step, e->loss, 100 * e->accuracy, e->best, e->best_step);
    (void)fflush(stdout);
}

void ct_alone_summary(const struct ct_worker *worker, const char *text)
{
    struct ct_buf record;

    if (!worker->log->json) {
        (void)fputs(text, stdout);
        return;
    }
    begin(worker, "summary", &record);
    put_step(worker, &worker->report.shown, -1, &record);
    ct_record_string(&record, "text", text);
    end(&record);
}
