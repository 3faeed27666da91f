/* The equivalence table over the configurations that ship: a plan never changes what the program
 * means. Ranks as threads (unit/trainer) and as processes (e2e) go through the same rows.
 *
 *     group   a configuration, made small, on data of a few kilobytes
 *       first row    what the others are compared with, mostly one worker
 *       other rows   other numbers of workers and other layouts, each with the claims it stands for
 *
 * A row trains STEPS steps, or half of them in one layout and the rest in another, and is compared
 * by what it leaves behind: checkpoints and metrics. The claims are E1 to E16 of Megatron's,
 * PyTorch's and llm.c's kinds of tests:
 *
 *   E1  more ranks = more micro-batches      E7  recompute, offload, overlap, prefetch, buckets
 *   E2  zero1 = fsdp (any) = ddp             E8  several micro-batches = one
 *   E3  stages, in any order                 E9  stopped and gone on = never stopped
 *   E4  slices                               E10 saved in one layout, gone on in another
 *   E5  slices cut by tokens                 E11 first values
 *   E6  stages x slices x samples            E12 clipping by the global norm
 *   E13 an overflow that one rank sees       E15 a last batch that is not full
 *   E14 the samples of a step                E16 replicas stay equal (check.replicas) */
#ifndef TESTS_EQUAL_H
#define TESTS_EQUAL_H

#include <stdbool.h>

enum { EQUAL_STEPS = 6, EQUAL_HALF = 3, EQUAL_WORDS = 48 };

enum equal_how {
    EQUAL_BITS,  /* parameters and optimizer's state after both halves, losses, places */
    EQUAL_NEAR,  /* losses and norms to 2e-6, parameters to 4e-6 in the L2 norm */
    EQUAL_FIRST, /* the parameters alone, to the bit: nothing is learned */
    EQUAL_SKIPS  /* as BITS, and some step was left out */
};

struct equal_row {
    const char *claims;
    int world;
    const char *layout; /* options */
    int next_world;     /* above 0: the second half */
    const char *next_layout;
    bool always; /* it is among the few that say most */
};

struct equal_group {
    const char *name;
    const char *config; /* "configs/char_gpt.yaml" */
    enum equal_how how;
    const char *common; /* options */
    const struct equal_row *rows;
    int row_count;
};

/* One training on `world` workers: words are options, NULL at the end; the configuration's path is
 * the last one. It ends well, or the test does. */
typedef void equal_train(int world, const char *const words[]);

/* The same by a real `ctrun` with `env` (as proc_start): what an equal_train between processes
 * does. */
void equal_run(const char *ctrun, const char *const env[], int world, const char *const words[]);

/* Go through a group in the working directory, which is empty; `root` is that of the source tree.
 */
void equal_check(const char *group, const char *root, bool all, equal_train *train);

/* equal_table.c */
extern const struct equal_group equal_groups[];
extern const int equal_group_count;

#endif
