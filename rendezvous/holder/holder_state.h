/* What the files of a holder share:
 *
 *   holder.c            events
 *   holder_meet.c       two records of one job: which of them stays
 *   holder_lead.c       what the replica decides: the service comes and goes, its records are puts
 *   holder_voters.c     who holds the record, and who is told
 *   holder_founding.c   when it may lead without the others
 *   holder_nodes.c      when who manages the machines knows that the others are dead
 *   holder_leave.c      when it may end, its node having left
 *   holder_peers.c      with peers, which are the same from start to end
 */
#ifndef CT_RENDEZVOUS_SERVICE_HOLDER_STATE_H
#define CT_RENDEZVOUS_SERVICE_HOLDER_STATE_H

#include "rendezvous/holder/holder.h"

/* Log one sentence. */
void holder_log(const struct ct_holder *holder, enum ct_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- holder.c ---- */

/* See ct_service_io.may. */
int holder_may(const struct ct_holder *holder, void *peer, enum ct_right right, const char *job,
               struct ct_error *err);

/* Who holds the record that it waits to be added to, or is cut off from. */
void holder_keep_known(struct ct_holder *holder, const struct ct_msg_voters *voters);

/* Give up what it holds, and wait to be added to that record. 0 or CT_ENOMEM. */
int holder_follow(struct ct_holder *holder, const struct ct_msg_voters *voters);

/* ---- holder_meet.c ---- */

/* May it give up what it holds for the record of which its node was told? */
bool holder_may_follow(const struct ct_holder *holder, const struct ct_msg_voters *voters);

/* Another holder tells of the record that it leads. */
void holder_receive_voters(struct ct_holder *holder, struct ct_holder_conn *conn,
                           const struct ct_msg_voters *voters);

/* For a while after another told of a record with a round, this one begins no first round. */
void holder_wait_for_unled(struct ct_holder *holder);

/* The host where the nodes meet tells of another record. */
void holder_receive_of_endpoint(struct ct_holder *holder, const struct ct_msg_voters *voters);

/* Tell those holders of this record that lead one which knows less. */
void holder_tell_those_who_know_less(struct ct_holder *holder);

/* ---- holder_lead.c ---- */

/* The callbacks of a replica and of a service, for ct_holder_init. */
void holder_connect_parts(struct ct_holder *holder);

/* Nodes of other voters that have not come since this holder leads are lost when their replicas
 * have been silent for a lease. */
void holder_miss_silent(struct ct_holder *holder);

/* Tell a node, or an operator, to go elsewhere. */
void holder_refuse(const struct ct_holder *holder, struct ct_holder_conn *conn);

/* It serves no longer: each node is told where to go. */
void holder_drop_service(struct ct_holder *holder);

/* Is a round of the job on record? The newest one; 0: none. */
bool holder_has_round(const struct ct_holder *holder);
uint64_t holder_recorded_generation(const struct ct_holder *holder);

/* To what its leaders have raised the count in the epoch; 0: they have not. */
uint64_t holder_raised_count(const struct ct_holder *holder);

/* This leader's epoch shall be above that one, once a majority holds that. */
void holder_raise(struct ct_holder *holder, uint64_t above);

/* ---- holder_peers.c ---- */

/* A replica with its peers as the voters; NULL without memory. */
struct ct_replica *holder_new_peer(struct ct_holder *holder);

/* Who leads, or what is waited for. */
void holder_describe_peers(const struct ct_holder *holder, char *text, size_t room);

/* Log who leads when that has changed, and when nobody has for a while. */
void holder_report_peers(struct ct_holder *holder);

/* Is this the first message of one of its peers? If not, it is told why, and goes. */
bool holder_admits_peer(const struct ct_holder *holder, const struct ct_holder_conn *conn,
                        const struct ct_msg_hello *hello);

/* ---- holder_voters.c ---- */

/* Who holds the record, as far as this server knows, in the order in which nodes try them. */
void holder_list_voters(const struct ct_holder *holder, struct ct_holder_voters *ret_voters);
void holder_send_voters(const struct ct_holder *holder, const struct ct_holder_voters *voters,
                        const struct ct_holder_conn *conn); /* NULL: to the endpoint */
void holder_tell_member(struct ct_holder *holder, struct ct_holder_conn *conn); /* `told` */
bool holder_is_dead(const struct ct_holder *holder, uint64_t id);

/* What is known of voter `id`; NULL: it is none. */
struct ct_holder_voter *holder_voter_of(struct ct_holder *holder, uint64_t id);

/* A node could hold the record, or cannot any longer. Jobs have thousands of them: whoever counts
 * them all does so when voters change, not at each message. */
void holder_set_offers(struct ct_holder *holder, struct ct_holder_conn *conn, bool offers);

/* Tell the host at the job's endpoint, which is connected, who holds the record. */
void holder_tell_endpoint(struct ct_holder *holder);

/* Give up the connection to the job's endpoint, if there is one. */
void holder_leave_endpoint(struct ct_holder *holder);

/* Something may have changed: connect to the voters, tell who they are, change them. */
void holder_update_voters(struct ct_holder *holder);

/* ---- holder_nodes.c ---- */

/* Another holder said where it runs; NULL: it has not, or long ago. */
void holder_note_host(struct ct_holder *holder, uint64_t id, const char *host);
const char *holder_host_of(const struct ct_holder *holder, uint64_t id);

/* Ask whether the nodes of the others are down, when that is worth a question; the answer. */
void holder_ask_nodes(struct ct_holder *holder);
void holder_nodes_known(struct ct_holder *holder, bool down, const char *text);

/* ---- holder_founding.c ---- */

/* Is it one of those who hold the record, as far as it knows? */
bool holder_votes(const struct ct_holder *holder);

/* This host goes on with what it has, although others may know of more. 0 or CT_ENOMEM. */
int holder_go_on_alone(struct ct_holder *holder, const char *why);

uint64_t holder_epoch(const struct ct_holder *holder); /* of a service, should it lead */

/* A replica that holds nothing yet; NULL without memory. */
struct ct_replica *holder_new_replica(struct ct_holder *holder, uint64_t era);

/* Found a record of its own, as number `count`, in place of what it holds. False without memory. */
bool holder_found(struct ct_holder *holder, uint64_t count);

/* After which the one of two voters that led goes on without the other. */
uint64_t holder_silence_ms(const struct ct_holder *holder);
void holder_go_on_without_silent(struct ct_holder *holder);

/* Somebody was found dead: go on if all others are, and nothing can be lost; or if no majority
 * lives. */
void holder_go_on_without_dead(struct ct_holder *holder);

/* What a node waits for when all who held the record are dead. */
void holder_describe_orphan(const struct ct_holder *holder, char *text, size_t room);

/* Take the place of a rendezvous of `epoch`, of which a node says that all who held it are dead.
 * False when a round was begun here. */
bool holder_succeed(struct ct_holder *holder, uint64_t epoch);

/* An operator says that nobody else serves the job: go on with what is held here. 0; CT_EINUSE when
 * somebody does, CT_ENOTFOUND when nothing is held, CT_ENOMEM; with the sentence. */
int holder_take_over(struct ct_holder *holder, const char *author, char *text, size_t room);

#endif
