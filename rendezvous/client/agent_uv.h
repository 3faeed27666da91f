/* The agent's end of the node link: one connection from a node to the rendezvous.
 *
 * It connects (and reconnects, with jitter, when the connection breaks), joins, keeps the lease
 * alive, retransmits lost messages, and relays store operations. The pure member.h decides which
 * messages are sent and when; this file owns the socket and the timer.
 *
 *      ct_agent_start
 *          v                    on_prepare(1, FORM)     nothing runs yet: answer ct_agent_prepared
 *          v                    on_round(...)           spawn the workers, give them their ranks
 *      ct_agent_failure / ct_agent_done, or another node's
 *          v                    on_prepare(2, FAILURE)  stop the workers, then ct_agent_prepared
 *          v                    on_round(...)           spawn again, or let the survivors regroup
 *          v                    on_closed(result)       the job is over: stop what still runs
 *      ct_agent_stop            stopped
 *
 * Everything happens on the loop's thread; callbacks come from the loop, never from inside a call
 * of this header. Pointers given to callbacks live until the callback returns, but for the round,
 * which lives until the next on_round or ct_agent_stop. The caller frees nothing. */
#ifndef CT_RENDEZVOUS_CLIENT_AGENT_UV_H
#define CT_RENDEZVOUS_CLIENT_AGENT_UV_H

#include "rendezvous/client/member.h"

#include <uv.h>

struct ct_agent;

/* Start connecting; the first callback comes from the loop. Strings are copied. CT_EUSAGE with the
 * sentence for bad options, CT_EAUTH for an unusable key file. */
int ct_agent_start(struct ct_agent **ret_agent, uv_loop_t *loop,
                   const struct ct_agent_options *options,
                   const struct ct_agent_callbacks *callbacks, struct ct_error *err);

/* Close the connection and free the agent; `stopped` (may be NULL) is the last callback. What was
 * queued (a leave, the last failure) is still sent, for at most 200 ms. */
void ct_agent_stop(struct ct_agent *agent, void (*stopped)(void *context));

/* Where it is connected, was last, or tries to be: "host:port". Static in the agent. */
const char *ct_agent_endpoint(const struct ct_agent *agent);

/* Promise, see struct ct_prepared. Call it again with lineage 0 when the state is lost before the
 * round begins. Ignored when another generation is being made by then. */
void ct_agent_prepared(struct ct_agent *agent, const struct ct_prepared *prepared);

/* Report that all workers of this node hold the base of `generation`. Required when
 * options.reports_recovery; joins and leaves wait for it, failures do not. */
void ct_agent_state_recovered(struct ct_agent *agent, uint64_t generation);

/* Ask whether a checkpoint or result of `publication->generation` counts (see PUBLISH in wire.def):
 * its files are complete and in their place, and all ranks have completed its step. Answered once
 * by on_published, however long the daemon is away; a newer generation may ask anew before that,
 * and then the older one is not answered any more. 0; CT_ELIMIT when one of the same generation is
 * open. */
int ct_agent_publish(struct ct_agent *agent, const struct ct_msg_publish *publication);

/* Report the workers' progress, from rank 0's worker or any: for status and the next heartbeat. */
void ct_agent_progress(struct ct_agent *agent, const struct ct_msg_progress *progress);

/* Report the waiters of PyTorch's store and their keys, a line each ("" for none), for status. The
 * report expires after 3 s and must be repeated before. */
void ct_agent_store_waits(struct ct_agent *agent, const struct ct_msg_store_waits *waits);

/* The answer to on_voters. */
void ct_agent_offer(struct ct_agent *agent, const struct ct_msg_offer *offer);

/* Answer on_flight_query. */
void ct_agent_flight_reply(struct ct_agent *agent, const struct ct_msg_flight_reply *reply);

/* The answer to on_watched. */
void ct_agent_figures(struct ct_agent *agent, const struct ct_msg_figures *figures);

/* Answer on_lines_query, as often as lines come; generation and incarnation are filled in. Only
 * while the agent takes them: it is connected, and less than CT_AGENT_LINES_BYTES wait for the
 * daemon, so that lines never keep the lease waiting. */
enum { CT_AGENT_LINES_BYTES = 256 << 10 };
bool ct_agent_takes_lines(const struct ct_agent *agent);
void ct_agent_lines(struct ct_agent *agent, const struct ct_msg_lines *lines);

/* Query the lines of other nodes' workers (line_reader.h); on_lines follows. */
void ct_agent_lines_query(struct ct_agent *agent, const struct ct_msg_lines_query *query);

/* Report a failed worker of `generation`, `failure->age_ms` ago (copied). The host is filled in. */
void ct_agent_failure(struct ct_agent *agent, uint64_t generation,
                      const struct ct_wire_failure *failure);

/* Report that all workers of this node in `generation` exited with 0. */
void ct_agent_done(struct ct_agent *agent, uint64_t generation);

/* Leave: DRAIN this node (on_released follows) or STOP the job (on_closed follows). */
void ct_agent_leave(struct ct_agent *agent, enum ct_rdzv_leave how);

/* Send one store operation: a STORE_SET, _GET, _ADD, _CAS, _WAIT or _DELETE, such as a worker sent
 * it (copied). `request` takes the place of the number inside and must be unique among those not
 * yet answered. Answered exactly once by on_store_reply: CT_EREVOKED when the generation ends
 * first; CT_ECLOSED when the connection broke while an ADD or CAS was open (it may have been done
 * or not). Returns 0; CT_ELIMIT when too many are open, or key or value are too long: then no
 * answer comes. */
int ct_agent_store(struct ct_agent *agent, uint64_t request, const struct ct_message *op);

#endif
