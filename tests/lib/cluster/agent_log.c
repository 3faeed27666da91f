/* See agent_log.h. */
#include "cluster/agent_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind `words`, 0: the line has them not. */
static uint64_t number_after(const char *line, const char *words)
{
    const char *at = strstr(line, words);

    return at != NULL ? strtoull(at + strlen(words), NULL, 10) : 0;
}

struct agent_line agent_log_parse(const char *line)
{
    struct agent_line parsed = {AGENT_OTHER, 0, 0, ""};
    const char *at;

    if (strstr(line, "this host leads the rendezvous of job ") != NULL)
        parsed.said = AGENT_LEADS;
    else if (strstr(line, ", this host joins it") != NULL)
        parsed.said = AGENT_YIELDS;
    else if (strstr(line, "ctrun: spare: ") != NULL)
        parsed.said = AGENT_SPARES;
    else if (strstr(line, "ctrun: job ") != NULL && strstr(line, ": checkpoint of step ") != NULL)
        parsed.said = AGENT_SAVES;
    else if ((parsed.count = number_after(line, " is held by ")) > 0)
        parsed.said = AGENT_HOLDERS;
    else if ((parsed.count = number_after(line, " (restart ")) > 0 ||
             (parsed.count = number_after(line, "; restart ")) > 0)
        parsed.said = AGENT_RESTARTS;
    else if ((parsed.generation = number_after(line, "ctrun: round g")) > 0)
        parsed.said = AGENT_BEGINS;
    else if (strstr(line, ": < ") != NULL && (at = strstr(line, " ROUND g")) != NULL &&
             sscanf(at, " ROUND g%" SCNu64 " world=%" SCNu64 " [%199[^]]", &parsed.generation,
                    &parsed.count, parsed.roster) == 3)
        parsed.said = AGENT_PUBLISHES;
    return parsed;
}

bool agent_rosters_add(struct agent_rosters *rosters, const struct agent_line *line)
{
    size_t at = line->generation % AGENT_ROSTERS;
    bool other = rosters->generations[at] == line->generation &&
                 strcmp(rosters->texts[at], line->roster) != 0;

    rosters->generations[at] = line->generation;
    (void)snprintf(rosters->texts[at], AGENT_ROSTER, "%s", line->roster);
    return !other;
}
