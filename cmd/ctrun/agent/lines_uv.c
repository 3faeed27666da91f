/* See lines_uv.h. */
#include "lines_uv.h"

#include "base/assert.h"
#include "node_state_uv.h"
#include "output/line_feed.h"

#include <stdlib.h>

enum {
    ASKERS = 8,
    LINES_MS = 20,
    SILENT_MS = 60 * 1000,    /* until one who does not ask again is forgotten */
    MESSAGE_BYTES = 64 << 10, /* of lines in one message, but for a long line */
};

struct line_asker {
    uint64_t number; /* his connection's, 0: free */
    uint64_t heard_ms;
    bool caught_up;  /* he has been told so */
    uint64_t behind; /* as he has been told */
    struct ct_line_feed feed;
};

struct lines {
    struct node *node;
    uv_timer_t timer;
    struct line_asker askers[ASKERS];
    struct ct_fed_line fed[CT_WIRE_LINES_COUNT];
    struct ct_wire_line records[CT_WIRE_LINES_COUNT];
};

_Static_assert(MESSAGE_BYTES + CT_WIRE_LINE_BYTES + CT_WIRE_LINES_COUNT * 32 + 1024 < CT_WIRE_LINES,
               "a message holds what is taken for it");

/* ---- sending -------------------------------------------------------------------------------- */

/* Send his next lines; false when there are none for now. `tells`: then he learns at least how many
 * wait for him. */
static bool send_some(struct lines *lines, struct line_asker *asker, bool tells)
{
    const struct ct_recent *recent = ct_workers_recent(lines->node->workers);
    struct ct_msg_lines message = {.asker = asker->number, .lines = {.data = lines->records}};
    bool caught_up;
    uint32_t count = ct_line_feed_take(&asker->feed, recent, lines->fed, CT_WIRE_LINES_COUNT,
                                       MESSAGE_BYTES, &caught_up);

    message.behind = ct_recent_behind(recent, &asker->feed.cursor);
    bool is_new = (caught_up && !asker->caught_up) || (tells && message.behind > asker->behind);
    if (count == 0 && !is_new)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct ct_recent_line *line = &lines->fed[i].line;

        lines->records[i] = (struct ct_wire_line){
            .number = line->number,
            .rank = line->rank,
            .stream = line->stream,
            .more = lines->fed[i].more,
            .text = {(const unsigned char *)line->text, line->size},
        };
    }
    message.lines.count = count;
    message.sent = asker->feed.sent;
    message.missed = asker->feed.cursor.missed;
    message.caught_up = asker->caught_up = caught_up;
    asker->behind = message.behind;
    ct_agent_lines(lines->node->agent, &message);
    return count > 0;
}

static void send_all(struct lines *lines, bool tells)
{
    for (size_t i = 0; i < ASKERS; i++)
        while (lines->askers[i].number != 0 && ct_agent_takes_lines(lines->node->agent) &&
               send_some(lines, &lines->askers[i], tells))
            ;
}

void lines_flush(struct lines *lines)
{
    if (lines != NULL && lines->node->agent != NULL)
        send_all(lines, true);
}

static void on_timer(uv_timer_t *timer)
{
    struct lines *lines = timer->data;
    uint64_t now_ms = uv_now(timer->loop);
    bool any = false;

    for (size_t i = 0; i < ASKERS; i++) {
        if (now_ms - lines->askers[i].heard_ms >= SILENT_MS)
            lines->askers[i].number = 0;
        any = any || lines->askers[i].number != 0;
    }
    if (!any)
        (void)uv_timer_stop(timer);
    if (lines->node->agent != NULL)
        send_all(lines, false);
}

/* ---- questions ------------------------------------------------------------------------------ */

/* His place, or a free one; NULL: all are taken. */
static struct line_asker *place_of(struct lines *lines, uint64_t number)
{
    struct line_asker *free_place = NULL;

    for (size_t i = 0; i < ASKERS; i++) {
        if (lines->askers[i].number == number)
            return &lines->askers[i];
        if (lines->askers[i].number == 0)
            free_place = &lines->askers[i];
    }
    return free_place;
}

static void refuse(const struct lines *lines, uint64_t number)
{
    if (ct_agent_takes_lines(lines->node->agent))
        ct_agent_lines(lines->node->agent,
                       &(struct ct_msg_lines){.asker = number, .code = CT_ELIMIT});
}

void lines_query(struct lines *lines, const struct ct_msg_lines_query *query)
{
    struct node *node = lines->node;
    struct line_asker *asker = place_of(lines, query->asker);

    if (node->agent == NULL || node->workers == NULL || query->asker == 0)
        return;
    if (asker == NULL) {
        refuse(lines, query->asker);
        return;
    }
    if (asker->number == 0)
        *asker = (struct line_asker){
            .number = query->asker,
            .feed = ct_line_feed_begin(ct_workers_recent(node->workers), query->tail, query->rank),
        };
    asker->heard_ms = uv_now(&node->loop);
    ct_line_feed_grant(&asker->feed, query->received, query->window);
    if (!uv_is_active((const uv_handle_t *)&lines->timer))
        (void)uv_timer_start(&lines->timer, on_timer, 0, LINES_MS);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct lines *lines_new(struct node *node)
{
    struct lines *lines = calloc(1, sizeof *lines);

    if (lines == NULL)
        return NULL;
    lines->node = node;
    (void)uv_timer_init(&node->loop, &lines->timer);
    lines->timer.data = lines;
    return lines;
}

void lines_close(struct lines *lines)
{
    if (lines != NULL)
        uv_close((uv_handle_t *)&lines->timer, NULL);
}

void lines_free(struct lines *lines)
{
    free(lines);
}
