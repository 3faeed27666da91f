/* The training as its metrics show it: the newest step, and how long there was none. See soak.h. */
#include "soak.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 65536 };

/* A pause that ends at `wall_s` belongs to the last fault that was done before. */
static void note_pause(struct soak *soak, double wall_s)
{
    struct steps *steps = &soak->steps;
    double pause_s = wall_s - steps->last_wall_s;

    if (steps->last_wall_s == 0)
        return;
    if (pause_s > steps->longest_s) {
        steps->longest_s = pause_s;
        steps->longest_at_s = soak_now_s(soak);
    }
    if (wall_s > soak->faults.last_wall_s && pause_s > (double)steps->worst)
        steps->worst = (float)pause_s;
}

static void take_line(struct soak *soak, const char *line)
{
    struct steps *steps = &soak->steps;
    const char *step = strstr(line, "\"kind\":\"train\",\"step\":");
    const char *time = strstr(line, "\"time\":");

    if (step == NULL || time == NULL)
        return;
    uint64_t number = strtoull(step + strlen("\"kind\":\"train\",\"step\":"), NULL, 10);
    double wall_s = strtod(time + strlen("\"time\":"), NULL);
    if (number <= steps->last)
        return; /* the writer cut its file and repeats what was in flight */
    note_pause(soak, wall_s);
    steps->last = number;
    steps->last_wall_s = wall_s;
    steps->seen_s = soak_now_s(soak);
}

static void take_lines(struct soak *soak)
{
    struct ct_buf *text = &soak->steps.text;
    char *line = text->data;
    size_t taken = 0;

    for (char *end; (end = memchr(line, '\n', text->size - taken)) != NULL; line = end + 1) {
        *end = '\0';
        taken += (size_t)(end - line) + 1;
        take_line(soak, line);
    }
    ct_buf_consume(text, taken);
}

static bool open_metrics(struct soak *soak)
{
    char path[SOAK_PATH + 32];

    (void)snprintf(path, sizeof path, "%s/log/metrics.jsonl", soak->run);
    soak->steps.fd = open(path, O_RDONLY | O_CLOEXEC);
    return soak->steps.fd >= 0;
}

void steps_watch(struct soak *soak)
{
    struct steps *steps = &soak->steps;
    struct stat stat;

    if (steps->fd < 0 && !open_metrics(soak))
        return;
    if (fstat(steps->fd, &stat) == 0 && stat.st_size < steps->at) {
        steps->at = stat.st_size;
        ct_buf_clear(&steps->text);
    }
    for (;;) {
        char *room = ct_buf_reserve(&steps->text, CHUNK);
        ssize_t got = room == NULL ? -1 : pread(steps->fd, room, CHUNK, steps->at);
        if (got <= 0)
            return;
        steps->text.size += (size_t)got;
        steps->at += got;
        take_lines(soak);
    }
}

void steps_flush(struct soak *soak)
{
    struct steps *steps = &soak->steps;
    struct pauses *pauses = &steps->pauses[soak->faults.last];

    if (soak->faults.last_wall_s == 0)
        return;
    if (pauses->count == pauses->room) {
        uint32_t room = pauses->room * 2 + 64;
        float *grown = realloc(pauses->seconds, room * sizeof *grown);
        if (grown == NULL)
            return;
        pauses->seconds = grown;
        pauses->room = room;
    }
    pauses->seconds[pauses->count++] = steps->worst;
    steps->worst = 0;
}

void steps_mark(struct soak *soak, enum fault_kind kind, double wall_s)
{
    steps_flush(soak);
    soak->faults.last = kind;
    soak->faults.last_wall_s = wall_s;
    soak->steps.pauses[kind].faults++;
}
