/* A native training on the nodes of a drill, and what it wrote.
 *
 *      static const struct fleet run = {.name = "run", .steps = 500};
 *      fleet_job(&run, &job);  drill_node(0, 1, &job); ...
 *      fleet_wait_step(&run, 40, 20);      then a fault, with pids of fleet_worker_now compared
 *      fleet_expect_samples(&run);         each sample of each epoch once
 *
 * Every node has one worker. */
#ifndef TESTS_FLEET_H
#define TESTS_FLEET_H

#include "drill.h"

enum { FLEET_MICRO = 4 };

struct fleet {
    const char *name;         /* of the folder in which its outputs lie */
    int steps;                /* the metrics have a line for each */
    int batch;                /* samples a step; 0: 48, which worlds of 1 to 4 divide */
    const char *const *words; /* more options, NULL-terminated, or NULL */
};

/* Make `job` start this training. The words are static: one job at a time. */
void fleet_job(const struct fleet *fleet, struct drill_job *job);

/* From now on each step waits for a slow disk, until it is fast: whoever is left alone is still at
 * work when others come back, and computes little. For nodes that are started afterwards. */
void fleet_disk_slow(void);
void fleet_disk_fast(void);

/* The same undisturbed, in one process. */
void fleet_run_alone(const struct fleet *fleet);

/* The worker of the node in a slot, once it has one; 0: it has none now. */
pid_t fleet_worker(int index, double seconds);
pid_t fleet_worker_now(int index);

/* The last step in the metrics, 0 before the first; wait for one. */
int fleet_step(const struct fleet *fleet);
void fleet_wait_step(const struct fleet *fleet, int step, double seconds);

/* The wall clock of its last step, in seconds. */
double fleet_last_time(const struct fleet *fleet);

/* Fail unless the metrics have each step once, in order, each going on where the one before ended
 * in the order of the samples, up to the last. */
void fleet_expect_samples(const struct fleet *fleet);

/* The largest difference between the losses of two runs, over all steps. */
double fleet_loss_difference(const struct fleet *a, const struct fleet *b);

/* Are the last checkpoints of two runs the same, bit for bit? */
bool fleet_same_result(const struct fleet *a, const struct fleet *b);

/* Wait for the end of a node; its exit status. */
int fleet_finish(int index, double seconds);

#endif
