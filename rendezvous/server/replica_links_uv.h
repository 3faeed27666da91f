/* The connections of a replica to others, one a direction: each sends on those that it has dialled
 * itself, and reads on those that its listener has accepted.
 *
 *      dialled -> open -> closed by the other end -> dialled once more -> refused: it is dead
 *                            silent, or not reachable -> dialled again and again
 *
 * A living kernel that refuses a connection to where a process listened proves that the process is
 * gone, for it listens as long as it lives. Silence proves nothing. With `returns` a process that
 * is dead may come back as the same replica: it is dialled on, and reported dead as long as it
 * refuses.
 *
 * All on the loop's thread; callbacks come from the loop. */
#ifndef CT_RENDEZVOUS_SERVICE_REPLICA_LINKS_UV_H
#define CT_RENDEZVOUS_SERVICE_REPLICA_LINKS_UV_H

#include "base/clock.h"
#include "keys/key.h"
#include "rendezvous/replica/replica.h"

#include <uv.h>

struct ct_replica_links;

struct ct_replica_links_options {
    uv_loop_t *loop;
    const struct ct_clock *clock;
    const struct ct_key *key; /* NULL: none; outlives the links */
    const char *job, *host;   /* of HELLO; they outlive the links */
    struct ct_id incarnation; /* likewise */
    void *context;
    void (*on_died)(void *context, uint64_t id); /* its process is known to be dead */
    bool returns;                                /* under its id */

    /* The one at `address` does not want to be spoken to (another key, another list of peers):
     * once a minute at most. May be NULL. */
    void (*on_failed)(void *context, const char *address, const struct ct_error *why);
};

/* No links; NULL without memory. */
struct ct_replica_links *ct_replica_links_new(const struct ct_replica_links_options *options);

/* Close all of them; `closed` is called last. */
void ct_replica_links_free(struct ct_replica_links *links, void (*closed)(void *context),
                           void *context);

/* These are wanted; others are closed when nothing was sent to them for a while. */
void ct_replica_links_want(struct ct_replica_links *links, const struct ct_replica_server *list,
                           size_t count);

/* Send. Of what is sent while the connection is not open yet, the last message arrives. */
void ct_replica_links_send(struct ct_replica_links *links, uint64_t id, const char *address,
                           const struct ct_message *message);

#endif
