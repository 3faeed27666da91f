/* `ctrun flight` of a whole job: the flight recorders of all its nodes, judged as one.
 *
 *      ctrun flight                  rendezvous                  agents
 *      FLIGHT_QUERY generation 0 -->
 *                                <-- ROUND in parts
 *      FLIGHT_QUERY four nodes   -->             FLIGHT_QUERY -->  each
 *                                <--             FLIGHT_REPLY <--
 *      FLIGHT_QUERY one more     -->             for each that has answered; those that do not
 *                                                within 3 s are left out, and named
 *
 * Few nodes are queried at a time, so that neither end holds more than their replies. Pure but for
 * memory: messages in, messages and text out. */
#ifndef CT_CTRUN_FLIGHT_JOB_H
#define CT_CTRUN_FLIGHT_JOB_H

#include "diagnose/traces.h"
#include "wire/wire.h"

struct flight_node {
    char host[256];
    uint32_t first_rank, slots;
    bool replied;
    int32_t code;
    struct ct_buf text; /* its recorders */
};

/* Zeroed but for `query` before the first message. */
struct flight_job {
    struct ct_msg_flight_query query; /* what is asked of each node */
    uint64_t generation;              /* 0: the round is not known yet */
    uint32_t world, count, known;     /* nodes: of the round, of them listed so far */
    uint32_t queried, replied;
    struct flight_node *nodes;
    struct ct_traces traces;
    int code; /* no memory */
};

/* Receive a message of the rendezvous (on_answer of struct admin_request); NULL: none arrived for 3
 * s. Returns true after the last; `ret_next` is sent next. */
bool flight_job_receive(void *context, const struct ct_message *message,
                        struct ct_message *ret_next);

/* Append all that came, with the verdict. 0 or a negative code. */
int flight_job_print(const struct flight_job *job, struct ct_buf *to);

void flight_job_deinit(struct flight_job *job);

#endif
