/* See line_reader.h. Nodes are found by the incarnation of their agents, whose place in the round
 * changes. */
#include "rendezvous/client/line_reader.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

struct line_node {
    struct ct_id id;
    char host[256];
    uint32_t index; /* in the newest round; UINT32_MAX: it is not of it */
    uint32_t slot_next;
    bool answered;  /* since the connection was made */
    bool caught_up; /* or nothing will come */
    bool owed;      /* a query, since it stands in the line for one */
    uint64_t next;  /* number of its next line */
    uint64_t missed, behind;
    uint64_t received, told; /* bytes, as the node counts them; of them, as it has been told */
    struct ct_buf part;      /* the begin of a line whose rest is to come */
    uint64_t part_number;
    uint32_t next_owed; /* in the line; UINT32_MAX: the last */
};

struct ct_line_reader {
    struct ct_line_reader_options options;
    uint64_t generation;          /* of the round that is known or coming in; 0: none */
    uint32_t world, count, known; /* ranks; nodes of the round, and of them that have been named */
    bool asks_round, asks_all, pings;
    uint64_t began_ms, alive_ms, ping_ms;
    bool is_told; /* of rounds */
    bool gave_up; /* in this round, on those that do not answer */
    int code;
    struct line_node *nodes; /* of all rounds */
    uint32_t node_count, node_room;
    uint32_t *slots; /* a hash table of chains over them, node_room of them; UINT32_MAX: empty */
    uint32_t first_owed, last_owed;
};

enum { NONE = UINT32_MAX };

struct ct_line_reader *ct_line_reader_new(const struct ct_line_reader_options *options)
{
    struct ct_line_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return NULL;
    reader->options = *options;
    reader->asks_round = true;
    reader->first_owed = reader->last_owed = NONE;
    return reader;
}

void ct_line_reader_free(struct ct_line_reader *reader)
{
    if (reader == NULL)
        return;
    for (uint32_t i = 0; i < reader->node_count; i++)
        ct_buf_deinit(&reader->nodes[i].part);
    free(reader->nodes);
    free(reader->slots);
    free(reader);
}

void ct_line_reader_again(struct ct_line_reader *reader)
{
    reader->generation = 0;
    reader->asks_round = true;
    reader->asks_all = false;
    reader->count = reader->known = 0;
    reader->first_owed = reader->last_owed = NONE;
    for (uint32_t i = 0; i < reader->node_count; i++) {
        struct line_node *node = &reader->nodes[i];
        node->owed = node->answered = node->caught_up = false;
        node->received = node->told = node->missed = node->behind = 0;
        node->index = NONE;
        ct_buf_clear(&node->part); /* its line comes again */
    }
}

int ct_line_reader_code(const struct ct_line_reader *reader)
{
    return reader->code;
}

uint32_t ct_line_reader_world(const struct ct_line_reader *reader)
{
    return reader->world;
}

uint32_t ct_line_reader_nodes(const struct ct_line_reader *reader)
{
    return reader->count;
}

/* ---- nodes ---- */

static uint32_t *chain_of(const struct ct_line_reader *reader, struct ct_id id)
{
    return &reader->slots[ct_id_fold(id) & (reader->node_room - 1)];
}

static struct line_node *find(const struct ct_line_reader *reader, struct ct_id id)
{
    if (reader->node_room == 0)
        return NULL;
    for (uint32_t i = *chain_of(reader, id); i != NONE; i = reader->nodes[i].slot_next)
        if (ct_id_equal(reader->nodes[i].id, id))
            return &reader->nodes[i];
    return NULL;
}

static void link_node(struct ct_line_reader *reader, uint32_t i)
{
    uint32_t *chain = chain_of(reader, reader->nodes[i].id);
    reader->nodes[i].slot_next = *chain;
    *chain = i;
}

static int grow(struct ct_line_reader *reader)
{
    uint32_t room = CT_MAX(16u, reader->node_room * 2);
    struct line_node *nodes = realloc(reader->nodes, room * sizeof(*nodes));
    if (nodes == NULL)
        return CT_ENOMEM;
    reader->nodes = nodes;
    uint32_t *slots = realloc(reader->slots, room * sizeof(*slots));
    if (slots == NULL)
        return CT_ENOMEM;
    reader->slots = slots;
    reader->node_room = room;
    memset(slots, 0xff, room * sizeof(*slots));
    for (uint32_t i = 0; i < reader->node_count; i++)
        link_node(reader, i);
    return 0;
}

static struct line_node *demand(struct ct_line_reader *reader, struct ct_id id)
{
    struct line_node *node = find(reader, id);
    if (node != NULL)
        return node;
    if (reader->node_count == reader->node_room && grow(reader) != 0)
        return NULL;
    node = &reader->nodes[reader->node_count];
    *node = (struct line_node){.id = id, .index = NONE};
    ct_buf_init(&node->part, CT_WIRE_LINE_BYTES);
    link_node(reader, reader->node_count++);
    return node;
}

/* Let the node be told what has been received of it. */
static void owe(struct ct_line_reader *reader, struct line_node *node)
{
    uint32_t number = (uint32_t)(node - reader->nodes);
    if (node->owed)
        return;
    node->owed = true;
    node->next_owed = NONE;
    if (reader->first_owed == NONE)
        reader->first_owed = number;
    else
        reader->nodes[reader->last_owed].next_owed = number;
    reader->last_owed = number;
}

/* ---- rounds ---- */

static bool is_wanted(const struct ct_line_reader *reader, const struct line_node *node)
{
    return node->index != NONE && !ct_id_equal(node->id, reader->options.without) &&
           (reader->options.node < 0 || reader->options.node == (int64_t)node->index);
}

static void begin_round(struct ct_line_reader *reader, uint64_t now_ms, uint64_t generation,
                        uint32_t world, uint32_t count)
{
    reader->generation = generation;
    reader->world = world;
    reader->count = count;
    reader->known = 0;
    reader->asks_round = reader->asks_all = reader->gave_up = false;
    reader->began_ms = reader->alive_ms = reader->ping_ms = now_ms;
    for (uint32_t i = 0; i < reader->node_count; i++) {
        reader->nodes[i].index = NONE;
        ct_buf_clear(&reader->nodes[i].part);
    }
}

void ct_line_reader_round(struct ct_line_reader *reader, uint64_t now_ms, uint64_t generation,
                          uint32_t world, uint32_t count)
{
    reader->is_told = true;
    begin_round(reader, now_ms, generation, world, count);
}

/* All nodes are known. The last words to those of an earlier round may have been lost with it. */
static void ask_all(struct ct_line_reader *reader)
{
    if (reader->options.node >= (int64_t)reader->count ||
        reader->options.rank >= (int64_t)reader->world) {
        reader->code = CT_ENOTFOUND;
        return;
    }
    reader->asks_all = true;
    for (uint32_t i = 0; i < reader->node_count; i++)
        if (is_wanted(reader, &reader->nodes[i]) && reader->nodes[i].received > 0)
            owe(reader, &reader->nodes[i]);
}

void ct_line_reader_node(struct ct_line_reader *reader, struct ct_id id, const char *host)
{
    struct line_node *node = demand(reader, id);
    if (node == NULL) {
        reader->code = CT_ENOMEM;
        return;
    }
    ct_str_copy(node->host, sizeof(node->host), host);
    node->index = reader->known++;
    node->caught_up = false;
    if (reader->known == reader->count)
        ask_all(reader);
}

static void receive_round(struct ct_line_reader *reader, uint64_t now_ms,
                          const struct ct_msg_round *m)
{
    if (m->first == 0 && m->generation != reader->generation)
        begin_round(reader, now_ms, m->generation, m->world, m->node_count);
    if (m->generation != reader->generation || m->first != reader->known ||
        m->nodes.count > reader->count - reader->known)
        return; /* the parts of another one that was asked for twice */
    for (uint32_t i = 0; i < m->nodes.count; i++)
        ct_line_reader_node(reader, m->nodes.data[i].incarnation, m->nodes.data[i].host);
}

/* ---- lines ---- */

static uint32_t window_of(const struct ct_line_reader *reader)
{
    return CT_MIN((uint32_t)CT_LINE_READER_WINDOW,
                  CT_MAX(reader->options.bytes / CT_MAX(reader->count, 1u), 64u));
}

static void deliver(struct ct_line_reader *reader, struct line_node *node,
                    const struct ct_wire_line *line)
{
    if (line->number < node->next)
        return; /* it came over an earlier connection */
    if (node->part.size > 0 && node->part_number != line->number)
        ct_buf_clear(&node->part); /* its rest was overwritten */
    node->part_number = line->number;
    bool in_parts = line->more != 0 || node->part.size > 0;
    if (in_parts)
        (void)ct_buf_append(&node->part, line->text.data, line->text.size);
    if (line->more != 0)
        return;
    node->next = line->number + 1;
    reader->options.on_line(
        reader->options.context,
        &(struct ct_read_line){
            .host = node->host,
            .node = node->index,
            .rank = line->rank,
            .stream = line->stream,
            .text = in_parts ? ct_buf_str(&node->part) : (const char *)line->text.data,
            .size = in_parts ? node->part.size : line->text.size,
        });
    ct_buf_clear(&node->part);
}

static void note_absent(struct ct_line_reader *reader, struct line_node *node, int code)
{
    node->caught_up = true;
    if (node->answered && code == CT_EUNAVAILABLE && reader->options.follow)
        return; /* it is about to be lost or to come back: events tell */
    node->answered = true;
    reader->options.on_absent(reader->options.context, node->host,
                              code == CT_ELIMIT ? "has as many readers of its lines as it takes, 8"
                                                : "is not connected to the rendezvous");
}

static void receive_lines(struct ct_line_reader *reader, const struct ct_msg_lines *m)
{
    struct line_node *node = find(reader, m->incarnation);
    if (node == NULL || !is_wanted(reader, node))
        return;
    if (m->code != 0) {
        note_absent(reader, node, m->code);
        return;
    }
    node->answered = true;
    if (m->missed > node->missed)
        reader->options.on_missed(reader->options.context, node->host, m->missed - node->missed);
    node->missed = m->missed;
    for (uint32_t i = 0; i < m->lines.count; i++)
        deliver(reader, node, &m->lines.data[i]);
    node->received = m->sent;
    node->behind = m->behind;
    node->caught_up = node->caught_up || m->caught_up != 0;
    if (node->received - node->told >= window_of(reader) / 2)
        owe(reader, node);
    if (m->generation > reader->generation)
        reader->asks_round = true;
}

void ct_line_reader_end(struct ct_line_reader *reader)
{
    for (uint32_t i = 0; i < reader->node_count; i++) {
        struct line_node *node = &reader->nodes[i];
        if (node->behind > 0)
            reader->options.on_missed(reader->options.context, node->host, node->behind);
        node->behind = 0;
    }
}

static bool is_complete(const struct ct_line_reader *reader)
{
    if (reader->count == 0 || reader->known < reader->count)
        return false;
    for (uint32_t i = 0; i < reader->node_count; i++)
        if (is_wanted(reader, &reader->nodes[i]) && !reader->nodes[i].caught_up)
            return false;
    return true;
}

/* Those that have said nothing by now are not waited for. */
static void give_up(struct ct_line_reader *reader)
{
    reader->gave_up = true;
    for (uint32_t i = 0; i < reader->node_count; i++) {
        struct line_node *node = &reader->nodes[i];
        if (!is_wanted(reader, node) || node->answered)
            continue;
        node->answered = node->caught_up = true;
        reader->options.on_absent(reader->options.context, node->host,
                                  "does not answer: is its ctrun stopped?");
    }
}

bool ct_line_reader_receive(struct ct_line_reader *reader, uint64_t now_ms,
                            const struct ct_message *message)
{
    if (message != NULL && message->type == CT_MSG_ROUND)
        receive_round(reader, now_ms, &message->round);
    else if (message != NULL && message->type == CT_MSG_LINES)
        receive_lines(reader, &message->lines);
    bool is_known = reader->count > 0 && reader->known == reader->count;
    if (is_known && !reader->gave_up && now_ms - reader->began_ms >= CT_LINE_READER_ANSWER_MS)
        give_up(reader);
    if (is_known && now_ms - reader->alive_ms >= CT_LINE_READER_ALIVE_MS) {
        reader->alive_ms = now_ms;
        reader->asks_all = true;
    }
    if (is_known && !reader->is_told && now_ms - reader->ping_ms >= CT_LINE_READER_PING_MS) {
        reader->ping_ms = now_ms;
        reader->pings = true;
    }
    return reader->code != 0 || (!reader->options.follow && is_complete(reader));
}

/* The next one that is to be told, and is of the round; NULL: there is none. */
static struct line_node *pop_owed(struct ct_line_reader *reader)
{
    while (reader->first_owed != NONE) {
        struct line_node *node = &reader->nodes[reader->first_owed];
        reader->first_owed = node->next_owed;
        node->owed = false;
        if (node->index != NONE)
            return node;
    }
    return NULL;
}

bool ct_line_reader_next(struct ct_line_reader *reader, struct ct_message *ret_message)
{
    struct ct_msg_lines_query query = {.generation = reader->generation,
                                       .first = 0,
                                       .count = reader->count,
                                       .rank = (int32_t)reader->options.rank,
                                       .tail = reader->options.tail,
                                       .window = window_of(reader)};
    if (reader->asks_round) {
        reader->asks_round = false;
        query.generation = query.count = 0;
    } else if (reader->asks_all) {
        reader->asks_all = false;
        if (reader->options.node >= 0) {
            query.first = (uint32_t)reader->options.node;
            query.count = 1;
        }
    } else if (reader->pings) { /* no node is asked, but the rendezvous says what is new */
        reader->pings = false;
        query.count = 0;
    } else {
        struct line_node *node = pop_owed(reader);
        if (node == NULL)
            return false;
        node->told = query.received = node->received;
        query.first = node->index;
        query.count = 1;
    }
    *ret_message = (struct ct_message){.type = CT_MSG_LINES_QUERY, .lines_query = query};
    return true;
}
