/* The placement of a node's ranks: those that share a last-level cache, and those that share a
 * socket.
 *
 *     rank      0  1  2  3  4  5  6  7  8  9 10 11
 *     cache     0  0  0  1  1  1  6  6  6  7  7  7
 *     socket    0  0  0  0  0  0  1  1  1  1  1  1
 *     domain    0  0  0  1  1  1  2  2  2  3  3  3
 *
 * Domains are runs of ranks in one cache or, where these are too many or too short, one socket.
 * As ranks of a run are consecutive, sums made domain after domain are in rank order. Each rank
 * finds its own seat in the kernel's files on its cores (Linux; elsewhere seats are unknown), and
 * sends it to the others. */
#ifndef CT_COLL_ALGORITHM_DOMAINS_H
#define CT_COLL_ALGORITHM_DOMAINS_H

#include <stdint.h>

/* Numbers of one machine. -1: not known, or several. */
struct ct_seat {
    int32_t cache, socket;
};

enum { CT_SEAT_WORDS = 16, CT_DOMAINS_MAX = 8 };

/* Return the seat of a thread that may run on these cores (a bit each), from `folder`, the cpu
 * folder of sysfs. */
struct ct_seat ct_seat_of(const char *folder, const uint64_t cpus[CT_SEAT_WORDS]);

/* Domain d holds the ranks first[d] .. first[d + 1] - 1. */
struct ct_domains {
    int count, first[CT_DOMAINS_MAX + 1];
};

/* Return the domains of ranks at these seats: one, where grouping gains nothing. Pure. */
struct ct_domains ct_domains_of(const struct ct_seat *seats, int size);

/* Return the domain of a rank. */
int ct_domains_find(const struct ct_domains *domains, int rank);

#endif
