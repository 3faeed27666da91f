/* Projects for tests: a configuration as text, on machines of a kind. */
#ifndef CT_TESTS_PLANNER_FIXTURE_H
#define CT_TESTS_PLANNER_FIXTURE_H

#include "collectives/planner/project.h"

struct planned {
    struct ct_config cfg;
    struct ct_project project;
};

/* Aborts the test on failure; planned_deinit frees it. */
void planned_init(struct planned *planned, const char *yaml, int nodes, int per_node,
                  const char *device);

/* The code, with the sentence in `err`. */
int planned_try(struct planned *planned, const char *yaml, int nodes, int per_node,
                const char *device, struct ct_error *err);
void planned_deinit(struct planned *planned);

#endif
