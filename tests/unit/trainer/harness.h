/* Whole trainings inside a test: N ranks as threads, each a real ct_worker, on a small made-up data
 * set in a temporary folder. */
#ifndef CT_TEST_TRAINER_HARNESS_H
#define CT_TEST_TRAINER_HARNESS_H

#include "cmd/ctworker/trainer/worker/worker.h"

enum { HARNESS_RANKS = 8, HARNESS_OPTIONS = 48 };

/* What one training is asked for, and what came of it. Zero-initialise. */
struct training {
    int world;
    int restart_count;
    uint64_t published_step;                  /* that the rendezvous has on record; 0: none */
    const char *options[HARNESS_OPTIONS];     /* "--optim.lr=0.1", NULL at the end */
    bool is_file;                             /* the last option is a configuration's path, and
                                                 the harness' own counts for nothing */
    const char *odd_option;                   /* one more, for the last rank alone */
    void (*tamper)(struct ct_worker *worker); /* called on the last rank after its setup */
    /* Called on each rank after its setup instead of the training. */
    int (*instead)(struct ct_worker *worker, struct ct_error *err);
    uint64_t stop_step; /* world 1: a stop comes during this step; 0: none */

    int code[HARNESS_RANKS];
    struct ct_error error[HARNESS_RANKS];
    enum ct_worker_scope scope[HARNESS_RANKS];
    bool stopped[HARNESS_RANKS];
    uint64_t first_step[HARNESS_RANKS]; /* completed before this training began */
    uint64_t step[HARNESS_RANKS];
    uint64_t position[HARNESS_RANKS];
    double loss_scale[HARNESS_RANKS];
    uint64_t digest[HARNESS_RANKS]; /* parameters and moments at the end */
    struct ct_evaluation evaluation[HARNESS_RANKS];
    char checkpoint[PATH_MAX]; /* rank 0's last one */
};

/* A temporary folder becomes the working directory, with train.csv in it: 44 rows of 6 features, 3
 * classes that a small model can learn. */
void harness_enter(void);
void harness_leave(void);

/* The working directory of before: the source tree's root. */
const char *harness_root(void);

/* Write such a file of `rows` rows. */
void harness_write_rows(const char *path, int rows);

/* Run it on all ranks; results only. */
void harness_run(struct training *training);

/* Run it and fail the test unless every rank ended well in the same state, which is returned. */
uint64_t harness_train(struct training *training);

/* A file's content as a string; the caller frees the buffer. */
struct ct_buf harness_read(const char *path);

/* The two files have the same bytes. */
void harness_expect_equal_files(const char *a, const char *b);

#endif
