/* PyTorch's store for the workers of the job, round after round (--torch_store; auto: local where
 * several nodes have a key, else agent).
 *
 *               node 0                                    the other nodes
 *      agent    its agent serves at its address:          nothing; their workers connect there
 *               the hosts of the round are admitted
 *      local    its agent serves on loopback, and a       a relay on loopback, connected with
 *               hub at its address serves relays          node 0's hub
 *      rank0    the port stays reserved for rank 0, which serves
 *
 *      store_offer     the promise of a round: listen, anew each time; the port is sent to all
 *      store_open      the round begins: nodes other than 0 close theirs, members are admitted
 *      store_close     the end
 *
 * Each round has a key space and a port of its own, so no data of an older round can be read.
 * Native workers have a store of their own; they get the reserved port.
 *
 * Node 0 reports waiters and their keys: to `ctrun status` after a second, in the log after 30 s. A
 * connection that ends during a wait suggests that its process is dead: the agent checks whether it
 * is one of its own, and reports others. On the loop's thread. */
#ifndef CT_CTRUN_AGENT_STORE_UV_H
#define CT_CTRUN_AGENT_STORE_UV_H

#include "base/error.h"
#include "job/round.h"

#include <stdint.h>
#include <sys/resource.h>

struct node;
struct store;

/* Allocate; NULL with the reason: no memory, or an unusable key file. */
struct store *store_new(struct node *node, struct ct_error *err);

/* Return the limit of descriptors that workers get: the agent raises its own, for the connections.
 * NULL: it was not raised. */
const struct rlimit *store_files(const struct store *store);

/* Return the port for the promise of round `generation`; 0: no port is free, which is an error only
 * when this becomes node 0. The store of the round before stays open: other nodes may still stop
 * their workers. */
uint16_t store_offer(struct store *store, uint64_t generation);

/* Open the store for the promised round. 0 with the address for its workers, which lives as long as
 * the round; CT_EUNAVAILABLE and others: this node cannot take part. */
int store_open(struct store *store, const struct ct_round *round, struct round_master *ret_master,
               struct ct_error *err);

/* Close all handles; store_free when the loop has run. Both take NULL. */
void store_close(struct store *store);
void store_free(struct store *store);

#endif
