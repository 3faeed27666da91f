/* See voters.h. */
#include "rendezvous/replica/voters.h"

#include <string.h>

static size_t wanted(size_t nodes)
{
    return nodes < 3 ? nodes : nodes < 5 ? 3 : CT_REPLICA_VOTERS;
}

static bool has_voter(const struct ct_replica_node *nodes, size_t count, const char *host)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i].votes && strcmp(nodes[i].host, host) == 0)
            return true;
    return false;
}

/* The first that does not vote; of a host without a voter if there is one. `count`: none. */
static size_t find_new(const struct ct_replica_node *nodes, size_t count)
{
    size_t found = count;

    for (size_t i = 0; i < count; i++) {
        if (nodes[i].votes || nodes[i].gone)
            continue;
        if (!has_voter(nodes, count, nodes[i].host))
            return i;
        if (found == count)
            found = i;
    }
    return found;
}

enum ct_replica_change ct_replica_next_change(const struct ct_replica_node *nodes, size_t count,
                                              uint64_t self, size_t *ret_index)
{
    size_t here = 0, voters = 0;

    for (size_t i = 0; i < count; i++) {
        if (nodes[i].votes && nodes[i].gone && nodes[i].id != self) {
            *ret_index = i;
            return CT_REPLICA_REMOVE;
        }
        here += !nodes[i].gone;
        voters += nodes[i].votes;
    }
    *ret_index = find_new(nodes, count);
    return voters < wanted(here) && *ret_index < count ? CT_REPLICA_ADD : CT_REPLICA_KEEP;
}
