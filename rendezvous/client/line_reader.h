/* The reader's end of the stream of all workers' lines (wire.def: LINES_QUERY, LINES): an operator,
 * or node 0's agent for its console, which knows the rounds without asking.
 *
 *      reader                       rendezvous                     agents
 *      LINES_QUERY generation 0 -->
 *                               <-- ROUND in parts
 *      LINES_QUERY all nodes    -->             LINES_QUERY -->    each
 *                               <--             LINES       <--    its last lines, then what comes
 *      LINES_QUERY one node     -->             when half of its window has been received
 *
 * All windows together have a limit, so that what waits at the rendezvous for a slow reader is
 * bounded, whatever the number of nodes; a node's lines go on from where they were when it is asked
 * anew, over another connection or in another round. Lines of a node come in their order, each
 * once. Pure but for memory; one object a reader. */
#ifndef CT_RENDEZVOUS_CLIENT_LINE_READER_H
#define CT_RENDEZVOUS_CLIENT_LINE_READER_H

#include "wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_LINE_READER_WINDOW = 256 << 10,   /* of one node at most */
    CT_LINE_READER_ALIVE_MS = 10 * 1000, /* between two signs of life to the nodes */
    CT_LINE_READER_PING_MS = 1000,       /* between two questions whether the round is still it */
    CT_LINE_READER_ANSWER_MS = 3000,     /* for a node, when no more is wanted than it has */
};

struct ct_line_reader;

struct ct_read_line {
    const char *host;
    uint32_t node; /* in the newest round */
    uint32_t rank;
    uint8_t stream; /* 0: standard output, 1: standard error */
    const char *text;
    size_t size;
};

struct ct_line_reader_options {
    int64_t rank;         /* whose lines are wanted; -1: those of all */
    int64_t node;         /* of which node; -1: of all */
    struct ct_id without; /* an agent whose lines are not wanted; {0, 0}: nobody */
    uint64_t tail;        /* lines of each node to begin with */
    uint32_t bytes;       /* of all windows together */
    bool follow;

    void *context;
    void (*on_line)(void *context, const struct ct_read_line *line);
    /* So many more lines of the node were overwritten, or its end came, before they were read. */
    void (*on_missed)(void *context, const char *host, uint64_t count);
    /* No lines come from it now, and why. */
    void (*on_absent)(void *context, const char *host, const char *why);
};

/* Create; the query for the round is due. NULL without memory. */
struct ct_line_reader *ct_line_reader_new(const struct ct_line_reader_options *options);
void ct_line_reader_free(struct ct_line_reader *reader);

/* The connection is a new one: all is asked anew. */
void ct_line_reader_again(struct ct_line_reader *reader);

/* For who knows the round: it has `count` nodes, each of which is told then, in their order. */
void ct_line_reader_round(struct ct_line_reader *reader, uint64_t now_ms, uint64_t generation,
                          uint32_t world, uint32_t count);
void ct_line_reader_node(struct ct_line_reader *reader, struct ct_id id, const char *host);

/* Handle a message, or (NULL) the passing of time. Returns true when nothing more is to come. */
bool ct_line_reader_receive(struct ct_line_reader *reader, uint64_t now_ms,
                            const struct ct_message *message);

/* Return whether a message is to be sent, and fill it in; call it until false. */
bool ct_line_reader_next(struct ct_line_reader *reader, struct ct_message *ret_message);

/* The job is over: what nodes had not sent yet counts as missed. */
void ct_line_reader_end(struct ct_line_reader *reader);

/* Return CT_ENOTFOUND when the round has no such node or rank as is wanted, CT_ENOMEM, else 0. */
int ct_line_reader_code(const struct ct_line_reader *reader);

/* Return the ranks and the nodes of the newest round, 0 before the first. */
uint32_t ct_line_reader_world(const struct ct_line_reader *reader);
uint32_t ct_line_reader_nodes(const struct ct_line_reader *reader);

#endif
