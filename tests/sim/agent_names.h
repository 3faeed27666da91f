/* Names of the phases and lives of an agent's core. */
#ifndef TESTS_SIM_AGENT_NAMES_H
#define TESTS_SIM_AGENT_NAMES_H

#include "cmd/ctrun/agent/core/agent_core.h"

static inline const char *agent_phase_name(enum agent_phase phase)
{
    static const char *const names[AGENT_PHASES] = {
#define PHASE(name, text) #name,
#include "cmd/ctrun/agent/core/agent.def"
    };
    return names[phase];
}

static inline const char *agent_life_name(enum agent_life life)
{
    static const char *const names[AGENT_LIVES] = {
#define LIFE(name, text) #name,
#include "cmd/ctrun/agent/core/agent.def"
    };
    return names[life];
}

#endif
