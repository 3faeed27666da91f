/* Operators' requests to the rendezvous: status, drain, cordon, uncordon, flight, logs.
 *
 *     ctrun status ... ---- HELLO role "admin", ADMIN ---> service
 *                                                           |-- status: answered here, at once
 *                                                           |-- flight, logs: forwarded to the
 *                                                           |           nodes (node_queries.c)
 *                                                           `-- others: an order to the core, whose
 *                                                               DO_ANSWER brings the answer
 *     printed <------------------ ADMIN_REPLY ------------ service
 *
 *     agent with log files, or a hook: ADMIN(FOLLOW), JOIN > service
 *     events.jsonl, hook <------- ADMIN_REPLY ------------ each event to one node of its job: of
 *                                                          those that ask the one with the lowest
 *                                                          place in the round
 *
 * HELLO names the job; "" means the only one, or for status all that the peer may see. The status
 * is written from the cores' state, in O(nodes); that of a job of many places is up to a second
 * old, but never older than an order or a phase.
 *
 * A request above the rate limit is refused with the time to retry; FLIGHT_QUERY and
 * LINES_QUERY of one node are limited by the nodes' answers. */
#ifndef CT_RENDEZVOUS_SERVICE_ADMIN_H
#define CT_RENDEZVOUS_SERVICE_ADMIN_H

#include "rendezvous/service/service.h"

/* The numbers are on the wire (ADMIN). */
enum ct_admin_verb {
    CT_ADMIN_STATUS,
    CT_ADMIN_DRAIN,    /* the host leaves at the next step boundary */
    CT_ADMIN_CORDON,   /* no new round takes the host */
    CT_ADMIN_UNCORDON, /* they may again */
    CT_ADMIN_EVENTS,   /* what happened: a record a line, of numbers above `after` */
    CT_ADMIN_TAKEOVER, /* of a job whose record's holders are gone: see holder.h */
    CT_ADMIN_FOLLOW,   /* as EVENTS, and those to come, until the link closes; nodes may, too */
    CT_ADMIN_VERBS,
};

/* Of a status or of events; also on the wire. */
enum ct_admin_form {
    CT_ADMIN_TEXT,
    CT_ADMIN_JSON,
    CT_ADMIN_HISTORY, /* JSON with the job's course, as the page has it, where it has room */
    CT_ADMIN_FORMS,
};

enum {
    CT_ADMIN_MANY = 256,     /* places above which status is kept */
    CT_ADMIN_KEPT_MS = 1000, /* for so long */
    CT_ADMIN_PER_S = 20,     /* questions and orders of one connection in the long run */
    CT_ADMIN_BURST = 50,     /* and at once */
    CT_ADMIN_ALL = 10,       /* times as many of all connections together */
    CT_ADMIN_JOBS = 8,       /* in a status count as one question more */
    CT_ADMIN_ACCOUNT = 5,    /* times as many of all connections of one account */
    CT_ADMIN_HELD = 64,      /* events before the first round that may wait for its node 0 */
};

struct ct_service_job;
struct ct_service_link;

/* Handle a message of an operator: on `link`, which has sent HELLO with role "admin". */
void ct_service_on_operator(struct ct_service *service, uint64_t now_ms,
                            struct ct_service_link *link, const struct ct_message *message);

/* Record the progress of the training and the uptime that rank 0's agent reports. */
void ct_service_on_progress(struct ct_service_job *job, uint64_t now_ms,
                            const struct ct_msg_progress *progress);

/* Record the waiters of PyTorch's store, for status; reported every second while there are any. */
void ct_service_on_store_waits(struct ct_service_job *job, uint64_t now_ms,
                               const struct ct_msg_store_waits *m);

/* Free the cached status text of the job. */
void ct_admin_forget(struct ct_service_job *job);

/* Answer an operator. */
void ct_service_answer(struct ct_service *service, uint64_t link, int code, const char *text);

/* Return whether the operator names this job and may query it. */
bool ct_admin_means(const struct ct_service *service, const struct ct_service_link *link,
                    const struct ct_service_job *job);

/* Return the job that the operator named; NULL: the reason has been sent instead. */
struct ct_service_job *ct_admin_job(struct ct_service *service, const struct ct_service_link *link);

/* Return whether the operator, or all of them, have asked too often; then he is told. */
bool ct_admin_is_too_fast(struct ct_service *service, uint64_t now_ms,
                          struct ct_service_link *link);

/* ---- node_queries.c: what are the ranks at, what do they write? ---- */

/* Handle an operator's query: answer with the round, or forward it to the named nodes. */
void ct_service_on_flight_query(struct ct_service *service, const struct ct_service_link *link,
                                const struct ct_msg_flight_query *m);

/* Forward the reply of a node of the link's job to the operator, if still connected. */
void ct_service_on_flight_reply(struct ct_service *service, const struct ct_service_link *link,
                                const struct ct_msg_flight_reply *m);

/* Handle the query of an operator (answer with the round unless he names it, or forward it to the
 * named nodes), or of a node for its console. */
void ct_service_on_lines_query(struct ct_service *service, uint64_t now_ms,
                               struct ct_service_link *link, const struct ct_msg_lines_query *m);

/* Forward lines of a node of the link's job to who asked for them, if still connected. */
void ct_service_on_lines(struct ct_service *service, const struct ct_service_link *link,
                         const struct ct_msg_lines *m);

/* ---- service_events.c ---- */

/* Append the next event with a number above `*after`, which becomes its number, of the jobs that
 * the operator means (`link`), or that a reader of the page may see (`link` NULL), as a record on a
 * line. False: there is none. */
bool ct_service_put_event(const struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, const struct ct_grant *reader,
                          uint64_t *after, struct ct_buf *out);

/* The same for all of them, as many as there is room for, 256 at most. */
void ct_service_put_events(const struct ct_service *service, uint64_t now_ms,
                           const struct ct_service_link *link, uint64_t after, struct ct_buf *out);

/* Tell an operator of events as they come, until the link closes. False: so many are told already
 * that there is no room. */
bool ct_service_add_follower(struct ct_service *service, const struct ct_service_link *link);

/* Return whether a node asks to be told of its job's events: before its JOIN, so that it is told of
 * the end, too, should the job be over. */
bool ct_service_is_follow(const struct ct_service_link *link, const struct ct_message *message);

/* Handle that: `after` is the last number that it has seen. */
void ct_service_on_follow(struct ct_service_link *link, uint64_t after);

/* The node of the link is a member now: tell it of events from now on, if it has asked for that. */
void ct_service_start_following(struct ct_service_job *job, uint64_t now_ms,
                                struct ct_service_link *link);

/* A node comes back to a job that is over, and will be told so: of events that no node was told, if
 * it has asked for them, it is told before. */
void ct_service_tell_end(struct ct_service_job *job, uint64_t now_ms,
                         const struct ct_service_link *link);

/* The job goes: operators that follow it by name are told that it is no more. */
void ct_service_end_following(struct ct_service *service, const struct ct_service_job *job);

/* ---- admin_text.c ---- */

/* Append the status of one job, as text and as a JSON object: its nodes, or of more than
 * `nodes_max` places how many are in each state. */
void ct_admin_describe(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out);
void ct_admin_describe_json(const struct ct_service_job *job, uint64_t now_ms, size_t nodes_max,
                            struct ct_buf *out);

/* ---- service_quota.c ---- */

/* Append what the jobs of a daemon take up of its quotas, and of the accounts those that the
 * operator may see: his own, and those of jobs that he means. As lines, or as a member of the
 * object at the end of `out`. Nothing where there are no accounts. */
void ct_admin_put_quotas(const struct ct_service *service, const struct ct_service_link *link,
                         bool is_json, struct ct_buf *out);

/* ---- admin_history.c ---- */

/* Add "curve", "time" and "rounds" to the object at the end of `out`. */
void ct_admin_add_history(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out);

#endif
