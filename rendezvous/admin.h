/* What operators ask of the rendezvous: status, drain, cordon, uncordon, flight.
 *
 *      ctrun status ... --> HELLO role "admin", ADMIN --> service --> status: answered here, at
 * once |         others: an order to the core, printed         <-- ADMIN_REPLY
 * <--------------------+         DO_ANSWER brings the answer
 *
 * HELLO names the job; "" means the only one, or for status all that the peer may see. The status
 * is written from what the cores show, in O(nodes), and shows no more than is known. */
#ifndef CT_RENDEZVOUS_ADMIN_H
#define CT_RENDEZVOUS_ADMIN_H

#include "rendezvous/service.h"

/* The numbers are on the wire (ADMIN). */
enum ct_admin_verb {
    CT_ADMIN_STATUS,
    CT_ADMIN_DRAIN,    /* the host leaves at the next step boundary */
    CT_ADMIN_CORDON,   /* no new round takes the host */
    CT_ADMIN_UNCORDON, /* they may again */
    CT_ADMIN_VERBS,
};

struct ct_service_job;
struct ct_service_link;

/* An operator's message on `link`, which has said HELLO as one. */
void ct_service_on_admin(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                         const struct ct_msg_admin *m);

/* Who waits in PyTorch's store, for the status; told every second as long as somebody does. */
void ct_service_on_store_waits(struct ct_service_job *job, uint64_t now_ms,
                               const struct ct_msg_store_waits *m);

/* Answer an operator. */
void ct_service_answer(struct ct_service *service, uint64_t link, int code, const char *text);

/* Does the operator mean this job, and may he ask for it? */
bool ct_admin_means(const struct ct_service *service, const struct ct_service_link *link,
                    const struct ct_service_job *job);

/* The one job that he means; NULL when he was told instead why there is none. */
struct ct_service_job *ct_admin_job(struct ct_service *service, const struct ct_service_link *link);

/* ---- look.c: what are the ranks at? ---- */

/* An operator asks: he gets the round, or the nodes that he names get the question. */
void ct_service_on_look(struct ct_service *service, const struct ct_service_link *link,
                        const struct ct_msg_look *m);

/* A node of the link's job answers: to the operator, if he is still there. */
void ct_service_on_seen(struct ct_service *service, const struct ct_service_link *link,
                        const struct ct_msg_seen *m);

/* ---- admin_text.c ---- */

/* One job, for people and as a JSON object. */
void ct_admin_describe(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out);
void ct_admin_describe_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out);

#endif
