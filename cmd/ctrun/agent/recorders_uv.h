/* The flight recorders of this node's ranks: written to the log folder with a verdict, and sent to
 * an operator who queries the whole job (`ctrun flight --job`, wire.def: FLIGHT_QUERY,
 * FLIGHT_REPLY). */
#ifndef CT_CTRUN_AGENT_RECORDERS_UV_H
#define CT_CTRUN_AGENT_RECORDERS_UV_H

struct ct_msg_flight_query;
struct node;

/* Write LOG_DIR/.../flight_rank_RRRR.gG.json for each rank that has made a call. */
void recorders_keep(struct node *node);

/* Answer with the last records of the ranks and as many of their newest calls as fit a
 * FLIGHT_REPLY. */
void recorders_reply(struct node *node, const struct ct_msg_flight_query *query);

#endif
