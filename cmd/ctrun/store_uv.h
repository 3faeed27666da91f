/* PyTorch's store for the workers of the job, round after round (--torch_store).
 *
 *                 node 0                                  the other nodes
 *      agent      its agent serves at its address:        nothing; their workers connect there
 *                 the members of the round may come
 *      local      its agent serves on loopback, and a     a relay on loopback, connected with
 *                 hub at its address takes relays         node 0's hub
 *      rank0      the port stays reserved for rank 0, which serves
 *
 *      store_offer     the promise of a round: listen, anew each time; the port is told to all
 *      store_open      the round begins: others than node 0 let go again, members are let in
 *      store_close     no worker needs it any more
 *
 * Each round has a key space and a port of its own, so nothing that an older round left can be
 * read. Native workers have a store of their own; they get the reserved port. On the loop's thread.
 */
#ifndef CT_CTRUN_STORE_UV_H
#define CT_CTRUN_STORE_UV_H

#include "base/error.h"
#include "round.h"

#include <stdint.h>

struct node;
struct store;

/* NULL and the reason: no memory, or an unusable key file. */
struct store *store_new(struct node *node, struct ct_error *err);

/* The port for the promise of round `generation`; 0: there is none to have, which is an error only
 * when this becomes node 0. The store of the round before is gone: its workers are, too. */
uint16_t store_offer(struct store *store, uint64_t generation);

/* The round that was promised begins. 0 and where its workers find the store (the address lives as
 * long as the round); CT_EUNAVAILABLE and others: this node cannot do its part. */
int store_open(struct store *store, const struct ct_round *round, struct round_master *ret_master,
               struct ct_error *err);

/* Close all handles; store_free when the loop has run. Both take NULL. */
void store_close(struct store *store);
void store_free(struct store *store);

#endif
