/* The events of a job's rendezvous, as records a line; see top.h. */
#include "cmd/ctrun/top/core/top.h"

#include "base/str.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

static void copy(const json_t *event, const char *key, char *to, size_t room)
{
    const char *text = json_string_value(json_object_get(event, key));

    (void)ct_str_copy(to, room, text != NULL ? text : "");
}

/* "2026-03-01T10:00:02.125Z" as the time of day here. */
static void read_clock(const json_t *event, char to[16])
{
    struct tm parts = {0}, local;
    char utc[40];

    to[0] = '\0';
    copy(event, "time", utc, sizeof utc);
    if (strptime(utc, "%Y-%m-%dT%H:%M:%S", &parts) == NULL)
        return;
    time_t seconds = timegm(&parts);
    if (localtime_r(&seconds, &local) != NULL)
        (void)strftime(to, 16, "%H:%M:%S", &local);
}

int64_t top_add_events(struct top_state *state, const char *lines)
{
    int64_t last = 0;

    while (*lines != '\0') {
        size_t size = strcspn(lines, "\n");
        json_t *event = json_loadb(lines, size, 0, NULL);

        if (json_is_object(event)) {
            struct top_event *to = &state->events[state->event_count++ % TOP_EVENTS_KEPT];

            read_clock(event, to->clock);
            copy(event, "level", to->level, sizeof to->level);
            copy(event, "event", to->kind, sizeof to->kind);
            copy(event, "job", to->job, sizeof to->job);
            copy(event, "text", to->text, sizeof to->text);
            to->number = json_integer_value(json_object_get(event, "number"));
            to->generation = json_integer_value(json_object_get(event, "generation"));
            last = to->number;
        }
        json_decref(event);
        lines += size + (lines[size] == '\n');
    }
    return last;
}
