/* Python started ahead: an interpreter that has imported what a script begins with, and becomes a
 * worker of that script the moment one is needed, without the second or more that `import torch`
 * takes.
 *
 *   agent                                 interpreter
 *   ct_warm_fill ----- script's name -->  imports the packages that the script imports in front of
 *                                         all else; ends when ctrun is not among them
 *   ct_warm_become --- arguments, ----->  becomes __main__ of the script: its arguments, its
 *                      environment,       environment, its descriptors
 *                      descriptors
 *   ct_warm_drop ----- end of file ---->  ends
 *
 * Only scripts that import ctrun are treated so: they know that they can be started early. Modules
 * of the user's own are not imported ahead, nor any behind the script's first other statement, as
 * it may set what they read. It ends with the agent, as workers do. */
#ifndef CT_LAUNCH_WARM_START_H
#define CT_LAUNCH_WARM_START_H

#include "launch/spawn.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_warm {
    pid_t pid;
    int fd; /* the agent's end of its socket */
};

/* The interpreters ahead of a node; all zero: none. */
struct ct_warm_pool {
    struct ct_warm *all;
    uint32_t count, room;
};

/* Return whether a Python script says "ctrun" somewhere, so that one is worth while. */
bool ct_warm_suits(const char *script);

/* Start interpreters for `spawn`, whose argv is PYTHON -u SCRIPT ARGS, until there are `wanted`; of
 * it path, argv and envp are used. 0, or the error of one that could not be started. */
int ct_warm_fill(struct ct_warm_pool *pool, uint32_t wanted, const struct ct_spawn *spawn,
                 struct ct_error *err);

/* Have one run as the worker that `spawn` describes. False when none is there: then ct_spawn. */
bool ct_warm_become(struct ct_warm_pool *pool, const struct ct_spawn *spawn, pid_t *ret_pid);

/* Have all end by themselves. */
void ct_warm_drop(struct ct_warm_pool *pool);

#endif
