/* Who leads a rendezvous inside ctrun, and the rounds that it published, from what the agents say
 * (--log.level=debug). See soak.h.
 *
 *      this host leads the rendezvous of job soak in term 3       it leads, unless it founded a job
 *      job soak lives: ..., this host joins it                    that was alive elsewhere
 *      job soak: < all ROUND g7 world=8 [host0:0 host3:2 ...]     what a leader has published
 *      round g7: BEGIN g7, 2 live on    spare: 4 of 4 nodes ...   what an agent is */
#include "soak.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void publish(struct soak *soak, int host, const char *line)
{
    struct leaders *said = &soak->leaders_said;
    struct cast *cast = &soak->cast;
    uint64_t generation, world;
    char roster[SOAK_ROSTER] = "";

    if (sscanf(line, " ROUND g%" SCNu64 " world=%" SCNu64 " [%199[^]]", &generation, &world,
               roster) != 3)
        return;
    size_t at = generation % SOAK_ROSTERS;
    if (said->generations[at] == generation && strcmp(said->rosters[at], roster) != 0)
        report_alarm(soak, "agent %d publishes round %" PRIu64 " a second time: %s, before %s",
                     host, generation, roster, said->rosters[at]);
    said->generations[at] = generation;
    (void)snprintf(said->rosters[at], SOAK_ROSTER, "%s", roster);
    if ((double)generation < cast->generation)
        return;
    cast->generation = (double)generation;
    cast->world = (double)world;
    cast->running = 1;
}

void leaders_on_line(struct soak *soak, int host, const char *line)
{
    struct node *node = &soak->cast.nodes[host];
    const char *at;

    if (strstr(line, "this host leads the rendezvous of job ") != NULL) {
        node->led_s = soak_now_s(soak);
        soak->cast.epoch++;
    } else if (strstr(line, ", this host joins it") != NULL) {
        node->led_s = 0;
        soak->cast.epoch--;
    } else if (strstr(line, "ctrun: spare: ") != NULL) {
        node->place = PLACE_SPARE;
    } else if ((at = strstr(line, "ctrun: round g")) != NULL) {
        begin_round(soak, host, strtoull(at + strlen("ctrun: round g"), NULL, 10));
    } else if (strstr(line, ": < ") != NULL && (at = strstr(line, " ROUND g")) != NULL) {
        publish(soak, host, at);
    }
}
