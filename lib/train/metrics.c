/* See metrics.h. */
#include "train/metrics.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/json.h"
#include "train/event_file.h"
#include "train/json_number.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *key;
    const char *tag;
} metrics_table[] = {
#define CT_METRIC(name, key, tag, unit) {key, tag},
#include "train/metric.def"
#undef CT_METRIC
};

struct ct_metrics {
    const struct ct_clock *clock;
    int jsonl; /* descriptors, -1 when not wanted */
    int events;
    off_t left_size; /* of metrics.jsonl, as this writer has left it */
    char jsonl_path[PATH_MAX];
    char events_path[PATH_MAX];
    struct ct_buf scratch;
};

static double wall_s(const struct ct_metrics *metrics)
{
    uint64_t microseconds = ct_clock_wall_ns(metrics->clock) / 1000;

    return (double)microseconds * 1e-6;
}

/* The step of a line of metrics.jsonl; false when it is no record. */
static bool line_step(const char *line, size_t size, uint64_t *ret_step)
{
    json_t *root = json_loadb(line, size, 0, NULL);
    bool known = ct_json_whole(json_object_get(root, "step"), ret_step);

    json_decref(root);
    return known;
}

/* The end of the last whole record up to `step`, looking from the end of the file: steps only grow,
 * and what is to be cut is little, however long the file has become. */
static size_t kept_of(const char *text, size_t size, uint64_t step)
{
    while (size > 0) {
        const char *before = memrchr(text, '\n', size - 1);
        size_t start = before != NULL ? (size_t)(before - text) + 1 : 0;
        uint64_t at = 0;

        if (text[size - 1] == '\n' && line_step(text + start, size - start, &at) && at <= step)
            break;
        size = start;
    }
    return size;
}

/* How many bytes of the file to keep. */
static off_t kept_bytes(int fd, uint64_t step)
{
    struct stat stat;

    if (step == 0 || fstat(fd, &stat) != 0 || stat.st_size == 0)
        return 0;
    char *text = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED)
        return 0;
    size_t kept = kept_of(text, (size_t)stat.st_size, step);
    (void)munmap(text, (size_t)stat.st_size);
    return (off_t)kept;
}

/* Its size tells whether somebody else has written to it, or cut it. */
static off_t size_of(int fd)
{
    struct stat stat;

    return fstat(fd, &stat) == 0 ? stat.st_size : -1;
}

static int open_jsonl(struct ct_metrics *metrics, const struct ct_metrics_options *options,
                      struct ct_error *err)
{
    const char *path = metrics->jsonl_path;

    metrics->jsonl = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (metrics->jsonl < 0)
        return ct_error_set(err, CT_ECANTCREAT, "%s: cannot be created: %s", path, strerror(errno));
    if (ftruncate(metrics->jsonl, kept_bytes(metrics->jsonl, options->resumed_step)) != 0)
        return ct_error_set(err, CT_EIO, "%s: cannot be cut behind step %" PRIu64 ": %s", path,
                            options->resumed_step, strerror(errno));
    metrics->left_size = size_of(metrics->jsonl);
    return 0;
}

static int flush(struct ct_metrics *metrics, int fd, const char *path, struct ct_error *err)
{
    int code = metrics->scratch.failed
                   ? CT_ENOMEM
                   : ct_fs_write_all(fd, metrics->scratch.data, metrics->scratch.size);

    ct_buf_clear(&metrics->scratch);
    if (code == 0)
        return 0;
    return ct_error_set(err, CT_EIO, "%s: cannot be written: %s", path, ct_strerror(code));
}

static int open_events(struct ct_metrics *metrics, const struct ct_metrics_options *options,
                       struct ct_error *err)
{
    const char *path = metrics->events_path;

    metrics->events = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (metrics->events < 0)
        return ct_error_set(err, CT_ECANTCREAT, "%s: cannot be created: %s", path, strerror(errno));
    (void)ct_event_version(&metrics->scratch, wall_s(metrics));
    (void)ct_event_start(&metrics->scratch, wall_s(metrics), options->resumed_step + 1);
    return flush(metrics, metrics->events, path, err);
}

/* TensorBoard takes any file with "tfevents" in its name and orders files by name: time first. */
static bool name_files(struct ct_metrics *metrics, const char *dir)
{
    char host[HOST_NAME_MAX + 1] = "localhost";
    uint64_t now = ct_clock_wall_ns(metrics->clock);

    (void)gethostname(host, sizeof host - 1);
    int a = snprintf(metrics->jsonl_path, sizeof metrics->jsonl_path, "%s/metrics.jsonl", dir);
    int b = snprintf(metrics->events_path, sizeof metrics->events_path,
                     "%s/events.out.tfevents.%010" PRIu64 ".%s.%ld.%09" PRIu64, dir,
                     now / 1000000000u, host, (long)getpid(), now % 1000000000u);
    return a < (int)sizeof metrics->jsonl_path && b < (int)sizeof metrics->events_path;
}

int ct_metrics_new(struct ct_metrics **ret, const struct ct_metrics_options *options,
                   struct ct_error *err)
{
    int code = ct_fs_make_dirs(options->dir, err);

    if (code != 0)
        return code;
    struct ct_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return ct_error_set(err, CT_ENOMEM, "metrics: out of memory");
    metrics->clock = options->clock;
    metrics->jsonl = -1;
    metrics->events = -1;
    if (!name_files(metrics, options->dir))
        code = ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", options->dir);
    if (code == 0 && options->jsonl)
        code = open_jsonl(metrics, options, err);
    if (code == 0 && options->tensorboard)
        code = open_events(metrics, options, err);
    if (code != 0)
        ct_metrics_free(metrics);
    else
        *ret = metrics;
    return code;
}

static void begin_record(struct ct_buf *buf, const struct ct_metric_record *record, double time)
{
    (void)ct_buf_printf(buf, "{\"v\":%d,\"kind\":", CT_METRICS_VERSION);
    ct_json_string(buf, record->kind);
    (void)ct_buf_printf(buf, ",\"step\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"time\":", record->step,
                        record->epoch);
    ct_json_number(buf, time);
}

static void print_record(struct ct_buf *buf, const struct ct_metric_record *record, double time)
{
    begin_record(buf, record, time);
    for (size_t i = 0; i < CT_METRIC_COUNT; i++) {
        if (!record->has[i])
            continue;
        (void)ct_buf_printf(buf, ",\"%s\":", metrics_table[i].key);
        ct_json_number(buf, record->value[i]);
    }
    (void)ct_buf_puts(buf, "}\n");
}

/* The record's values as scalars "train/loss", ... */
static void frame_record(struct ct_buf *buf, const struct ct_metric_record *record, double time)
{
    struct ct_event_scalar scalars[CT_METRIC_COUNT];
    char tags[CT_METRIC_COUNT][64];
    size_t count = 0;

    for (size_t i = 0; i < CT_METRIC_COUNT; i++) {
        if (!record->has[i] || metrics_table[i].tag == NULL)
            continue;
        (void)snprintf(tags[count], sizeof tags[count], "%s/%s", record->kind,
                       metrics_table[i].tag);
        scalars[count] =
            (struct ct_event_scalar){.tag = tags[count], .value = (float)record->value[i]};
        count++;
    }
    (void)ct_event_scalars(buf, time, record->step, scalars, count);
}

/* Write what is in `scratch` to metrics.jsonl, unless somebody else writes there now. */
static int write_line(struct ct_metrics *metrics, struct ct_error *err)
{
    if (size_of(metrics->jsonl) != metrics->left_size) {
        ct_buf_clear(&metrics->scratch);
        return ct_error_set(err, CT_EFENCED, "%s: another process writes it now",
                            metrics->jsonl_path);
    }
    int code = flush(metrics, metrics->jsonl, metrics->jsonl_path, err);
    metrics->left_size = size_of(metrics->jsonl);
    return code;
}

int ct_metrics_write(struct ct_metrics *metrics, const struct ct_metric_record *record,
                     struct ct_error *err)
{
    double time = wall_s(metrics);
    int code = 0;

    if (metrics->jsonl >= 0) {
        print_record(&metrics->scratch, record, time);
        code = write_line(metrics, err);
    }
    if (code == 0 && metrics->events >= 0) {
        frame_record(&metrics->scratch, record, time);
        code = flush(metrics, metrics->events, metrics->events_path, err);
    }
    return code;
}

int ct_metrics_write_sample(struct ct_metrics *metrics, const struct ct_metric_record *record,
                            const char *prompt, const char *text, struct ct_error *err)
{
    struct ct_buf *buf = &metrics->scratch;

    if (metrics->jsonl < 0)
        return 0;
    begin_record(buf, record, wall_s(metrics));
    (void)ct_buf_puts(buf, ",\"prompt\":");
    ct_json_string(buf, prompt);
    (void)ct_buf_puts(buf, ",\"text\":");
    ct_json_string(buf, text);
    (void)ct_buf_puts(buf, "}\n");
    return write_line(metrics, err);
}

const char *ct_metrics_path(const struct ct_metrics *metrics)
{
    return metrics->jsonl >= 0 ? metrics->jsonl_path : "";
}

const char *ct_metrics_events_path(const struct ct_metrics *metrics)
{
    return metrics->events >= 0 ? metrics->events_path : "";
}

void ct_metrics_free(struct ct_metrics *metrics)
{
    if (metrics == NULL)
        return;
    if (metrics->jsonl >= 0)
        (void)close(metrics->jsonl);
    if (metrics->events >= 0)
        (void)close(metrics->events);
    ct_buf_deinit(&metrics->scratch);
    free(metrics);
}
