/* What the log of a ctrun says of a rendezvous that is inside the job's agents, at the level of
 * debug (--log.level=debug): who leads, what was published, what the agent is.
 *
 *      this host leads the rendezvous of job x in term 3        AGENT_LEADS
 *      job x lives: its ... is at y, this host joins it         AGENT_YIELDS: it founded another
 *      the record of job x is held by 3 hosts                   AGENT_HOLDERS, count
 *      job x: < all ROUND g7 world=8 [host0:0 host3:2 ...]      AGENT_PUBLISHES, generation, count
 *      job x: checkpoint of step 200 saved                      AGENT_SAVES: a publication counts
 *      round g7: BEGIN g7, 2 live on                            AGENT_BEGINS, generation
 *      node 3 was lost; 1 of 1 workers ... (restart 1 of 3)   AGENT_RESTARTS, count
 *      spare: 4 of 4 nodes of job x are at work, ...            AGENT_SPARES */
#ifndef TESTS_CLUSTER_AGENT_LOG_H
#define TESTS_CLUSTER_AGENT_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum agent_said {
    AGENT_OTHER,
    AGENT_LEADS,
    AGENT_YIELDS,
    AGENT_HOLDERS,
    AGENT_PUBLISHES,
    AGENT_SAVES,
    AGENT_BEGINS,
    AGENT_RESTARTS,
    AGENT_SPARES,
};

enum { AGENT_ROSTER = 200, AGENT_ROSTERS = 64 };

struct agent_line {
    enum agent_said said;
    uint64_t generation;
    uint64_t count;            /* ranks of the round; holders; restarts that are charged */
    char roster[AGENT_ROSTER]; /* its first eight hosts with their ranks */
};

/* Parse a line of the log; AGENT_OTHER when it is about something else. */
struct agent_line agent_log_parse(const char *line);

/* The rosters that were published last. Zeroed: none. */
struct agent_rosters {
    uint64_t generations[AGENT_ROSTERS];
    char texts[AGENT_ROSTERS][AGENT_ROSTER];
};

/* Keep the roster of an AGENT_PUBLISHES. False when its generation has another one already, which
 * must never be: it was published twice. */
bool agent_rosters_add(struct agent_rosters *rosters, const struct agent_line *line);

#endif
