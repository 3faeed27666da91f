/* Which of a job's nodes hold its record: the next change of the voters.
 *
 *      nodes   1   2   3 4   5 and more
 *      voters  1   2    3        5
 *
 * A voter that is gone is removed before another takes its place: it would count against the
 * majority meanwhile. One that lives is never removed, even where fewer nodes are left than that:
 * it would go on believing that it votes, and with others that believe so found the record anew
 * (ct_replica_known_within). New ones are taken in the order of the list, those first whose host
 * has no voter yet; so the choice stays as it is as long as its nodes do. Pure. */
#ifndef CT_RENDEZVOUS_REPLICA_VOTERS_H
#define CT_RENDEZVOUS_REPLICA_VOTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_REPLICA_VOTERS = 5 }; /* at most */

struct ct_replica_node {
    uint64_t id;
    const char *host;
    bool votes;
    bool gone; /* its process is dead, or it has been away for too long */
};

enum ct_replica_change { CT_REPLICA_KEEP, CT_REPLICA_ADD, CT_REPLICA_REMOVE };

/* The change to make now, of node `*ret_index` of the list; `self` is never removed. */
enum ct_replica_change ct_replica_next_change(const struct ct_replica_node *nodes, size_t count,
                                              uint64_t self, size_t *ret_index);

#endif
