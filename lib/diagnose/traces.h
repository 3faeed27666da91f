/* Traces: the last records of a node's ranks (wire/worker_record.h) and flight recorders
 * (wire/flight.h), in the form that agents exchange (wire.def, TRACES) and that verdict.h judges.
 *
 * Of each group of a rank: the calls around the newest completed one, where ranks diverge, and the
 * last sends and receives. Everything is copied: the workers may end. */
#ifndef CT_DIAGNOSE_TRACES_H
#define CT_DIAGNOSE_TRACES_H

#include "base/arena.h"
#include "diagnose/verdict.h"
#include "wire/worker_record.h"

enum {
    CT_TRACES_CALLS = 4,     /* collectives of a group: two that are over, two that follow */
    CT_TRACES_TRANSFERS = 3, /* and its last sends and receives */
    CT_TRACES_GAPS = 64,     /* last calls of which the usual time between two is taken */
};

/* Traces that grow; `all` shows them. */
struct ct_traces {
    struct ct_msg_traces all;
    struct ct_arena arena;
    struct ct_wire_trace_rank *ranks;
    struct ct_wire_trace_group *groups;
    struct ct_wire_trace_call *calls;
    uint32_t room; /* ranks */
};

/* A rank, as its agent knows it. Strings are copied. */
struct ct_trace_source {
    uint32_t rank;
    int pid;
    enum ct_trace_life life;
    int status; /* ENDED */
    const char *host;
    const char *doing;                     /* its process */
    const struct ct_worker_record *record; /* NULL: it keeps none */
};

/* Initialise with room for `room` ranks of a round. 0 or CT_ENOMEM. */
int ct_traces_init(struct ct_traces *traces, uint64_t generation, uint32_t room);

/* Free; a zeroed struct is valid. */
void ct_traces_deinit(struct ct_traces *traces);

/* Add one rank as it is at `now`. 0 or CT_ENOMEM. */
int ct_traces_add(struct ct_traces *traces, const struct ct_trace_source *source,
                  struct ct_ticks_pair now);

/* Add a TRACES frame of another node. CT_EPROTOCOL for an invalid one, CT_ELIMIT when its ranks do
 * not fit. */
int ct_traces_add_frame(struct ct_traces *traces, const void *frame, size_t size);

/* Append all as a TRACES frame. */
int ct_traces_print_frame(const struct ct_traces *traces, struct ct_buf *to);

/* Append a flight recorder as text or as a JSON object, with at most `calls` calls, newest last,
 * for `ctrun flight` and the log folder. */
int ct_flight_print(const struct ct_worker_record *record, struct ct_ticks_pair now, uint32_t calls,
                    struct ct_buf *to);
int ct_flight_print_json(const struct ct_worker_record *record, struct ct_ticks_pair now,
                         uint32_t calls, struct ct_buf *to);

#endif
