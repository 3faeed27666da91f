/* See record.h. */
#include "base/log/record.h"

#include "base/json.h"

#include <inttypes.h>
#include <time.h>

void ct_record_begin(struct ct_buf *to, uint64_t wall_ns, const char *kind)
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm utc = {0};
    char stamp[40];

    (void)gmtime_r(&seconds, &utc);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)ct_buf_printf(to, "{\"time\":\"%s.%03uZ\",\"kind\":\"%s\"", stamp,
                        (unsigned)(wall_ns / 1000000u % 1000u), kind);
}

static void put_key(struct ct_buf *to, const char *key)
{
    (void)ct_buf_printf(to, ",\"%s\":", key);
}

void ct_record_string(struct ct_buf *to, const char *key, const char *text)
{
    put_key(to, key);
    ct_json_string(to, text);
}

static void put_bytes(struct ct_buf *to, const char *key, const char *data, size_t size)
{
    put_key(to, key);
    ct_json_bytes(to, data, size);
}

void ct_record_whole(struct ct_buf *to, const char *key, int64_t value)
{
    put_key(to, key);
    (void)ct_buf_printf(to, "%" PRId64, value);
}

void ct_record_number(struct ct_buf *to, const char *key, double value)
{
    put_key(to, key);
    ct_json_number(to, value);
}

void ct_record_step(struct ct_buf *to, const struct ct_record_step *step)
{
    if (step->steps == 0)
        return;
    ct_record_whole(to, "epoch", (int64_t)step->epoch);
    ct_record_whole(to, "epochs", (int64_t)step->epochs);
    ct_record_whole(to, "step", (int64_t)step->step);
    ct_record_whole(to, "steps", (int64_t)step->steps);
    ct_record_number(to, "loss", step->loss);
    ct_record_number(to, "lr", step->lr);
    ct_record_number(to, "samples_per_s", step->samples_per_s);
    if (step->elapsed_s >= 0)
        ct_record_number(to, "elapsed_s", step->elapsed_s);
    if (step->eta_s >= 0)
        ct_record_number(to, "eta_s", step->eta_s);
}

void ct_record_eval(struct ct_buf *to, const struct ct_record_eval *eval)
{
    ct_record_whole(to, "step", (int64_t)eval->step);
    ct_record_number(to, "loss", eval->loss);
    if (eval->perplexity >= 0)
        ct_record_number(to, "perplexity", eval->perplexity);
    if (eval->accuracy >= 0)
        ct_record_number(to, "accuracy", eval->accuracy);
    ct_record_number(to, "best", eval->best);
    ct_record_whole(to, "best_step", (int64_t)eval->best_step);
}

void ct_record_end(struct ct_buf *to)
{
    (void)ct_buf_puts(to, "}\n");
}

void ct_record_line(struct ct_buf *to, uint64_t wall_ns, const struct ct_record_line *line)
{
    ct_record_begin(to, wall_ns, "output");
    ct_record_whole(to, "node", line->node);
    ct_record_whole(to, "rank", line->rank);
    if (line->host != NULL)
        ct_record_string(to, "host", line->host);
    ct_record_string(to, "stream", line->stream);
    put_bytes(to, "text", line->text, line->size);
    ct_record_end(to);
}
