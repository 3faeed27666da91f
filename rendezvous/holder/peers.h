/* The peers of a ctrund: the daemons that hold its record together, each by the address that all of
 * them, agents and operators reach it at.
 *
 *      --peers h0:29400,h1:29400,h2:29400 --listen h1:29400
 *
 * Each is given the same list, in any order. A daemon's id follows from its address, so that it is
 * the same replica after a restart; the era of the record follows from the list, so that daemons of
 * different lists ignore each other. Pure. */
#ifndef CT_RENDEZVOUS_SERVICE_PEERS_H
#define CT_RENDEZVOUS_SERVICE_PEERS_H

#include "rendezvous/replica/replica.h"

enum { CT_PEERS_LEAST = 3, CT_PEERS_PORT = 29400 };

struct ct_peers {
    size_t count;
    struct ct_replica_server list[CT_REPLICA_SERVERS]; /* by address */
    size_t own;                                        /* this daemon's place in it */
    size_t listener;                                   /* which of its endpoints that is */
    uint64_t era;
    char name[32]; /* of the list, in a connection's first words: "peers 0123456789abcdef" */
};

/* Read the list; `listen` are the endpoints of this daemon, of which one must be in it. 0, or
 * CT_EUSAGE with the sentence. */
int ct_peers_read(struct ct_peers *ret_peers, const char *list, const char *const *listen,
                  size_t listen_count, struct ct_error *err);

#endif
