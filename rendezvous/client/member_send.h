/* The agent's messages on the node link, for member.c only. Each message is made of the member's
 * state and takes the next sequence number. */
#ifndef CT_RENDEZVOUS_CLIENT_MEMBER_SEND_H
#define CT_RENDEZVOUS_CLIENT_MEMBER_SEND_H

#include "rendezvous/client/member.h"

void ct_member_send_hello(struct ct_member *member);
void ct_member_send_join(struct ct_member *member);
void ct_member_send_heartbeat(struct ct_member *member);
void ct_member_send_prepared(struct ct_member *member);
void ct_member_send_leave(struct ct_member *member);
void ct_member_send_follow(struct ct_member *member);

/* The daemon has refused the protocol of the last HELLO: offer the next older one on the next
 * connection. False: there is none, and `last_error` says so. */
bool ct_member_speak_older(struct ct_member *member);

/* Retransmit all messages that the daemon, which has this node in `state`, may have missed. */
void ct_member_repeat(struct ct_member *member, enum ct_rdzv_member_state state);

#endif
