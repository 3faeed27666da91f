/* Training runs for tests: a model, made-up data, a world of ranks as threads.
 *
 * Row i of the data is the same in every run: a run of W ranks, accumulation A and micro-batches of
 * b rows takes rows s * G .. (s + 1) * G - 1 in step s, G = W * A * b, and rank r the r-th block of
 * them. So runs with equal G train on the same batches. */
#ifndef CT_TESTS_EXEC_FIXTURE_H
#define CT_TESTS_EXEC_FIXTURE_H

#include "collectives/exec/exec.h"

enum { FIXTURE_MAX_STEPS = 32, FIXTURE_MAX_WORLD = 8 };

/* Default: CUDA's where CTRUN_TEST_DEVICE is cuda, else the CPU. Far and late: far.h. */
enum run_device { RUN_DEFAULT, RUN_CPU, RUN_FAR, RUN_LATE, RUN_CUDA };

struct run {
    /* What to do. */
    enum run_device device;
    struct ct_model_spec spec;
    struct ct_plan_options options; /* world 1 runs without a group */
    uint64_t seed;
    double lr;
    int steps;
    int64_t masked; /* the last samples of each global batch that do not count */
    double scale;   /* of the loss, in f16 */
    int poisoned;   /* the step, from 1, in which a feature of the last samples is NaN */
    bool evaluates; /* the first rows, at the end; of ranks that see the same */
    bool symmetric; /* the arena is the job's memory, as a trainer has it */
    struct ct_exec_options exec; /* device, group and job are filled in; of rank 0 only */

    /* What came out; run_deinit frees it. */
    struct ct_exec_sums evaluation;
    double losses[FIXTURE_MAX_STEPS];
    int64_t correct[FIXTURE_MAX_STEPS];
    double norms[FIXTURE_MAX_STEPS];
    int skipped[FIXTURE_MAX_WORLD]; /* steps that each rank left out */
    uint64_t
        digests[FIXTURE_MAX_WORLD]; /* of each rank, at the end; of rank 0 when ranks hold parts */
    struct ct_exec_common common[FIXTURE_MAX_WORLD]; /* what ranks hold of what others hold, too;
                                                         run_train compares it */
    double *grads; /* rank 0: all gradients of the last step, in f64, one parameter after the other;
                      NULL when ranks hold parts */
    double *state; /* rank 0: all tensors at the end */
    int64_t grad_count, state_count;
    int replayed;                /* rank 0, far and late: recordings */
    struct ct_exec_event *trace; /* rank 0, when exec.trace is set */
    struct ct_job *job;          /* a rank's, while it runs */
    void *shared;                /* the data, while it runs */
};

/* Defaults: a relu MLP 6-9-7-4 in f32, SGD with momentum, world 1, 4 micro-batches of 6 rows, 4
 * steps, buckets of a few tensors, invariant reduction, overlap. */
struct run run_default(void);

/* The same with a gpt of 2 heads and dropout: 8 of 11 tokens a sample. */
struct run run_gpt(int layers, int width);

/* The features are pictures of two channels, and these layers the run's model. */
void run_see(struct run *run, int height, int width, const struct ct_layer_spec *layers, int count);

/* Train. Aborts the test on failure. */
void run_train(struct run *run);
void run_deinit(struct run *run);

/* Two runs have the same bits: losses, counts, norms and tensors. */
void assert_same_bits(const struct run *a, const struct run *b, const char *what);

/* |a - b| / |b| in the L2 norm. */
double relative_l2(const double *a, const double *b, int64_t count);

/* Numbers and labels of a sample: features and 1, or tokens. */
int64_t sample_inputs(const struct ct_model_spec *spec);
int64_t sample_labels(const struct ct_model_spec *spec);

/* Samples first .. first + rows - 1 of the made-up data. */
void fill_rows(const struct ct_model_spec *spec, int64_t first, int64_t rows, void *x,
               int32_t *labels);

/* Room on the host for all tensors of a plan. */
struct tensors {
    int count;
    void **data;
};

void tensors_init(struct tensors *tensors, const struct ct_plan *plan);
void tensors_deinit(struct tensors *tensors);

/* One rank without a world: plan, device, executor. */
struct rig {
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_group *device_group;
    struct ct_exec *exec;
};

void rig_init(struct rig *rig, const struct run *run, struct ct_group *group);
void rig_deinit(struct rig *rig);

#endif
