/* Many real ranks on a small machine: one job that trains digits to their accuracy, and what its
 * ranks hold while they train.
 *
 *      one node     ctrun --nproc_per_node N             N processes
 *      nodes        a ctrun in each of up to 64 hosts    (cluster/hosts.h), RANKS processes each
 *
 *      first spawn .... step 1 ...... evaluation ...... step 31 ............... the end
 *              step1_s                                  census: /proc of each    accuracy, statuses
 *
 * The model is the perceptron of configs/digits_mlp.yaml with batches that the ranks divide, of 512
 * samples at most: 512 is the most ranks. What goes wrong is a sentence, never a failed
 * assertion: e2e/nodes/test_many.c runs few ranks in the gate, tests/many many of them. */
#ifndef TESTS_MANY_H
#define TESTS_MANY_H

#include "cluster/hosts.h"

enum { MANY_RANKS = 512, MANY_TROUBLE = 1024 };

/* What has to be reached: one rank alone comes to 97.5 to 98.1 % with any of the batches. */
#define MANY_ACCURACY 0.97

struct many_shape {
    int nodes;
    int ranks;           /* of each node */
    const char *backend; /* parallel.backend; mpi: on one node, started by Open MPI's mpirun */
};

struct many_setting {
    const char *programs;       /* folder of ctrun and ctworker */
    const char *config;         /* path of digits_mlp.yaml */
    const struct hosts *hosts;  /* as many as there are nodes, or more */
    const char *lease;          /* of the job */
    double seconds;             /* after which it is ended */
    const char *const *options; /* more of every agent, NULL-terminated, or NULL */
    bool keep;                  /* the folder with its logs, even if all is well */
};

/* Of all ranks. */
struct many_figure {
    double mean, most;
};

struct many_result {
    double step1_s; /* from the first spawn to the end of step 1 */
    double whole_s; /* to the end of the last agent */
    double accuracy;
    int looked_at; /* ranks in the census; the figures are theirs */
    struct many_figure connections, descriptors, kib; /* TCP; KiB that are shared count in part */
    char folder[64];                                  /* with NAME.log of each agent, if it stays */
    char trouble[MANY_TROUBLE];                       /* the first thing that went wrong, or "" */
};

/* Run one job. True: every agent has ended with 0, the accuracy is reached, all ranks were looked
 * at; else the trouble says what is not so, in ctrun's words where it has some. */
bool many_run(const struct many_setting *setting, const struct many_shape *shape,
              struct many_result *ret_result);

#endif
