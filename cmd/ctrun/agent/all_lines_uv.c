/* See all_lines_uv.h. */
#include "all_lines_uv.h"

#include "base/assert.h"
#include "base/log/record.h"
#include "node_state_uv.h"
#include "output/fair.h"
#include "output/fold.h"
#include "output/prefix.h"
#include "rendezvous/client/line_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOWS_BYTES = 1 << 20,
    LOOK_MS = 50, /* between two looks for lines that have waited for their equals */
    FOLDED_RANKS_MAX = 1 << 20,
};

/* Lines of one stream on their way. */
struct stream {
    struct all_lines *all;
    enum ct_console_stream stream;
    struct ct_fold *fold; /* NULL: lines are not folded */
};

struct all_lines {
    struct node *node;
    uv_timer_t timer;
    struct ct_line_reader *reader; /* NULL: they are not shown */
    struct stream streams[CT_CONSOLE_STREAMS];
    struct ct_node_runs runs; /* of the round, by which a rank's node is found; `arena` has them */
    struct ct_arena arena;
    uint64_t generation; /* of that round */
};

enum { ARENA_BYTES = 16 << 20 };

/* ---- out ------------------------------------------------------------------------------------ */

static void put_folded(void *context, const struct ct_folded *line)
{
    struct stream *stream = context;
    struct ct_buf *to = ct_console_lines(stream->all->node->console, stream->stream);

    if (line->count > 1)
        (void)ct_buf_printf(to, "[%s] x%u: ", line->ranks, line->count);
    else
        (void)ct_buf_printf(
            to, "[%u:%u] ",
            (unsigned)CT_MAX(0, ct_node_runs_node_of(stream->all->runs, line->rank)), line->rank);
    (void)ct_buf_append(to, line->text, line->size);
    (void)ct_buf_puts(to, "\n");
}

static void put_record(struct ct_buf *to, const struct ct_read_line *line)
{
    ct_record_line(
        to, ct_clock_wall_ns(&ct_clock_system),
        &(struct ct_record_line){.node = line->node,
                                 .rank = line->rank,
                                 .stream = line->stream == CT_CONSOLE_OUT ? "stdout" : "stderr",
                                 .text = line->text,
                                 .size = line->size});
}

static void on_line(void *context, const struct ct_read_line *line)
{
    struct all_lines *all = context;
    struct stream *stream =
        &all->streams[line->stream == CT_CONSOLE_OUT ? CT_CONSOLE_OUT : CT_CONSOLE_ERR];

    if (all->node->log.json)
        put_record(ct_console_lines(all->node->console, stream->stream), line);
    else if (stream->fold != NULL)
        ct_fold_add(stream->fold, uv_now(all->timer.loop), line->rank, line->text, line->size);
    else
        put_folded(stream,
                   &(struct ct_folded){
                       .count = 1, .rank = line->rank, .text = line->text, .size = line->size});
}

static void flush(struct all_lines *all, bool everything)
{
    for (size_t i = 0; i < CT_CONSOLE_STREAMS; i++)
        if (all->streams[i].fold != NULL)
            ct_fold_flush(all->streams[i].fold, uv_now(all->timer.loop), everything);
    ct_console_flush(all->node->console);
}

static void on_missed(void *context, const char *host, uint64_t count)
{
    struct all_lines *all = context;

    flush(all, true);
    ct_log_event(&all->node->log, CT_LOG_WARN, "lines_missed",
                 "%" PRIu64 " lines of host %s came faster than they could be shown: they are in "
                 "its log folder alone",
                 count, host);
}

static void on_absent(void *context, const char *host, const char *why)
{
    const struct all_lines *all = context;

    ct_log_event(&all->node->log, CT_LOG_DEBUG, "lines_absent", "no lines of host %s: it %s", host,
                 why);
}

/* ---- asking --------------------------------------------------------------------------------- */

static bool has_room(const struct all_lines *all)
{
    return ct_console_queued(all->node->console, CT_CONSOLE_OUT) < CT_FAIR_HIGH &&
           ct_console_queued(all->node->console, CT_CONSOLE_ERR) < CT_FAIR_HIGH;
}

static void ask(struct all_lines *all)
{
    struct ct_message query;

    while (all->node->agent != NULL && has_room(all) && ct_line_reader_next(all->reader, &query))
        ct_agent_lines_query(all->node->agent, &query.lines_query);
}

static void stop(struct all_lines *all)
{
    (void)uv_timer_stop(&all->timer);
    if (all->reader == NULL)
        return;
    flush(all, true);
    ct_line_reader_free(all->reader);
    all->reader = NULL;
    for (size_t i = 0; i < CT_CONSOLE_STREAMS; i++) {
        ct_fold_free(all->streams[i].fold);
        all->streams[i].fold = NULL;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct all_lines *all = timer->data;

    (void)ct_line_reader_receive(all->reader, uv_now(timer->loop), NULL);
    flush(all, false);
    ask(all);
    if (ct_line_reader_code(all->reader) != 0)
        stop(all);
}

void all_lines_receive(struct all_lines *all, const struct ct_msg_lines *lines)
{
    const struct ct_message message = {.type = CT_MSG_LINES, .lines = *lines};

    if (all->reader == NULL)
        return;
    (void)ct_line_reader_receive(all->reader, uv_now(all->timer.loop), &message);
    flush(all, false);
    ask(all);
}

void all_lines_flush(struct all_lines *all)
{
    if (all == NULL || all->reader == NULL)
        return;
    ct_line_reader_end(all->reader);
    flush(all, true);
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* Are the others' lines wanted here? Workers whose own lines go elsewhere, or are filtered, set the
 * manner. */
static bool is_wanted(const struct node *node)
{
    const struct ct_config *cfg = &node->job->cfg;
    bool is_plain =
        strcmp(cfg->launch.redirects, "0") == 0 && cfg->launch.local_ranks_filter.count == 0;

    if (cfg->log.console == CT_CONFIG_LOG_CONSOLE_ALL)
        return true;
    return cfg->log.console == CT_CONFIG_LOG_CONSOLE_AUTO && is_plain && node->job->slurm == NULL &&
           ct_console_is_terminal(node->console, CT_CONSOLE_OUT);
}

/* Of nodes that were there before this one became the first, no old lines are shown. */
static uint64_t tail_of(const struct ct_round *round)
{
    for (uint32_t i = 0; i < round->node_count; i++)
        if (round->nodes[i].survivor)
            return 0;
    return UINT64_MAX;
}

static int begin(struct all_lines *all, const struct ct_round *round)
{
    const struct ct_line_reader_options options = {
        .rank = -1,
        .node = -1,
        .without = round->own->id,
        .tail = tail_of(round),
        .bytes = WINDOWS_BYTES,
        .follow = true,
        .context = all,
        .on_line = on_line,
        .on_missed = on_missed,
        .on_absent = on_absent,
    };

    all->reader = ct_line_reader_new(&options);
    return all->reader != NULL ? 0 : CT_ENOMEM;
}

/* Folds for as many ranks as there are now, and where those are. */
static int prepare(struct all_lines *all, const struct ct_round *round)
{
    struct ct_wire_run *runs;

    ct_arena_deinit(&all->arena);
    ct_arena_init(&all->arena, ARENA_BYTES);
    runs = ct_arena_array(&all->arena, CT_MAX(round->runs.count, 1u), sizeof *runs);
    if (runs == NULL)
        return CT_ENOMEM;
    for (uint32_t i = 0; i < round->runs.count; i++)
        runs[i] = (struct ct_wire_run){
            .nodes = round->runs.data[i].nodes, .slots = round->runs.data[i].slots, .role = ""};
    all->runs = (struct ct_node_runs){runs, round->runs.count};
    for (size_t i = 0; i < CT_CONSOLE_STREAMS && round->world <= FOLDED_RANKS_MAX; i++) {
        ct_fold_free(all->streams[i].fold);
        all->streams[i].fold = ct_fold_new(round->world, round->world - round->own->slots,
                                           put_folded, &all->streams[i]);
    }
    return 0;
}

void all_lines_begin(struct all_lines *all)
{
    const struct ct_round *round = all->node->round;

    if (round == NULL || round->self != 0 || round->nodes == NULL || round->node_count < 2 ||
        !is_wanted(all->node)) {
        stop(all);
        return;
    }
    if (all->reader == NULL ? begin(all, round) != 0 : false)
        return;
    flush(all, true);
    if (prepare(all, round) != 0) {
        stop(all);
        return;
    }
    if (round->generation == all->generation)
        ct_line_reader_again(all->reader); /* over a new link */
    all->generation = round->generation;
    ct_line_reader_round(all->reader, uv_now(all->timer.loop), round->generation, round->world,
                         round->node_count);
    for (uint32_t i = 0; i < round->node_count; i++)
        ct_line_reader_node(all->reader, round->nodes[i].id, round->nodes[i].host);
    (void)uv_timer_start(&all->timer, on_timer, 0, LOOK_MS);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct all_lines *all_lines_new(struct node *node)
{
    struct all_lines *all = calloc(1, sizeof *all);

    if (all == NULL)
        return NULL;
    all->node = node;
    for (size_t i = 0; i < CT_CONSOLE_STREAMS; i++)
        all->streams[i] = (struct stream){.all = all, .stream = (enum ct_console_stream)i};
    ct_arena_init(&all->arena, ARENA_BYTES);
    (void)uv_timer_init(&node->loop, &all->timer);
    all->timer.data = all;
    return all;
}

void all_lines_close(struct all_lines *all)
{
    if (all == NULL)
        return;
    stop(all);
    uv_close((uv_handle_t *)&all->timer, NULL);
}

void all_lines_free(struct all_lines *all)
{
    if (all != NULL)
        ct_arena_deinit(&all->arena);
    free(all);
}
