/* See step_tail.h. */
#include "cluster/step_tail.h"

#include "base/assert.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 65536 };

void step_tail_init(struct step_tail *tail, const char *path)
{
    *tail = (struct step_tail){.fd = -1};
    (void)snprintf(tail->path, sizeof tail->path, "%s", path);
    ct_buf_init(&tail->text, 0);
}

void step_tail_deinit(struct step_tail *tail)
{
    if (tail->fd >= 0)
        (void)close(tail->fd);
    ct_buf_deinit(&tail->text);
    tail->fd = -1;
}

/* A whole line about a training step. */
static bool parse(const char *line, uint64_t *ret_step, double *ret_wall_s)
{
    static const char head[] = "\"kind\":\"train\",\"step\":", clock[] = "\"time\":";
    const char *step = strstr(line, head), *time = strstr(line, clock);

    if (step == NULL || time == NULL)
        return false;
    *ret_step = strtoull(step + strlen(head), NULL, 10);
    *ret_wall_s = strtod(time + strlen(clock), NULL);
    return true;
}

/* Where the writer has cut the file it may have written on since: what is known is left out. */
static void follow_cut(struct step_tail *tail)
{
    struct stat stat;

    if (fstat(tail->fd, &stat) != 0 || stat.st_size >= tail->at)
        return;
    tail->at = CT_MAX(stat.st_size - CHUNK, (off_t)0);
    tail->taken = 0;
    ct_buf_clear(&tail->text);
}

static bool read_more(struct step_tail *tail)
{
    if (tail->fd < 0)
        tail->fd = open(tail->path, O_RDONLY | O_CLOEXEC);
    if (tail->fd < 0)
        return false;
    follow_cut(tail);
    ct_buf_consume(&tail->text, tail->taken);
    tail->taken = 0;
    char *room = ct_buf_reserve(&tail->text, CHUNK);
    ssize_t got = room == NULL ? -1 : pread(tail->fd, room, CHUNK, tail->at);
    if (got <= 0)
        return false;
    tail->text.size += (size_t)got;
    tail->at += got;
    return true;
}

/* The next line of the text, without its end; NULL: there is no whole one. */
static const char *next_line(struct step_tail *tail)
{
    char *line = tail->text.data + tail->taken;
    char *end =
        tail->text.size > tail->taken ? memchr(line, '\n', tail->text.size - tail->taken) : NULL;

    if (end == NULL)
        return NULL;
    *end = '\0';
    tail->taken += (size_t)(end - line) + 1;
    return line;
}

bool step_tail_next(struct step_tail *tail, uint64_t *ret_step, double *ret_wall_s)
{
    do {
        for (const char *line; (line = next_line(tail)) != NULL;) {
            uint64_t step;
            double wall_s;
            if (!parse(line, &step, &wall_s) || wall_s <= tail->wall_s)
                continue;
            tail->wall_s = *ret_wall_s = wall_s;
            *ret_step = step;
            return true;
        }
    } while (read_more(tail));
    return false;
}
