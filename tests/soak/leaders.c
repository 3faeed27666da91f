/* Who leads a rendezvous inside ctrun, and the rounds that it published, from what the agents say
 * (tests/lib/cluster/agent_log.h). See soak.h. */
#include "soak.h"

#include <inttypes.h>

void leaders_forget(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];

    node->place = PLACE_NONE;
    node->led_s = 0;
    node->round = 0;
    node->first_before = (uint64_t)soak->cast.generation;
}

int leaders_find(const struct soak *soak)
{
    int found = -1;

    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        /* Who is not in the job yet may have founded another, and will join this one. */
        if (node->led_s == 0 || node->place == PLACE_NONE || !process_runs(node->agent))
            continue;
        if (found < 0 || node->led_s > soak->cast.nodes[found].led_s)
            found = i;
    }
    return found;
}

bool leaders_are_complete(const struct soak *soak)
{
    for (int i = 0; i < SOAK_HOSTS; i++)
        if (process_runs(soak->cast.nodes[i].agent) && soak->cast.nodes[i].place == PLACE_NONE)
            return false;
    return true;
}

/* An agent takes part in a round: one that is newer than any before it. */
static void begin_round(struct soak *soak, int host, uint64_t generation)
{
    struct node *node = &soak->cast.nodes[host];

    if (generation <= node->round)
        report_alarm(soak, "agent %d begins round %" PRIu64 " after round %" PRIu64, host,
                     generation, node->round);
    if (generation <= node->first_before)
        report_alarm(soak,
                     "agent %d begins round %" PRIu64 ", but the job was in round %" PRIu64
                     " before it started: it was founded a second time",
                     host, generation, node->first_before);
    node->round = generation;
    node->place = PLACE_WORKS;
}

/* A round goes to its members: the same one whoever sends it, and however often. */
static void publish(struct soak *soak, int host, const struct agent_line *line)
{
    struct cast *cast = &soak->cast;

    if (!agent_rosters_add(&soak->rosters, line))
        report_alarm(soak, "agent %d publishes round %" PRIu64 " a second time, with %s", host,
                     line->generation, line->roster);
    if ((double)line->generation < cast->generation)
        return;
    cast->generation = (double)line->generation;
    cast->world = (double)line->count;
    cast->running = 1;
}

void leaders_on_line(struct soak *soak, int host, const char *text)
{
    struct node *node = &soak->cast.nodes[host];
    const struct agent_line line = agent_log_parse(text);

    if (line.said == AGENT_LEADS) {
        node->led_s = soak_now_s(soak);
        soak->cast.epoch++;
    } else if (line.said == AGENT_YIELDS) { /* what it founded was no tenure */
        node->led_s = 0;
        soak->cast.epoch--;
    } else if (line.said == AGENT_SPARES) {
        node->place = PLACE_SPARE;
    } else if (line.said == AGENT_BEGINS) {
        begin_round(soak, host, line.generation);
    } else if (line.said == AGENT_PUBLISHES) {
        publish(soak, host, &line);
    }
}
