/* See calibrate.h: the order of the measurements, and the single figures. */
#include "collectives/planner/calibrate/calibrate.h"

#include "base/assert.h"
#include "base/clock.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READINGS = 1000, WAKES = 200, STREAM_BYTES = 128 << 20, STREAM_TURNS = 7 };

/* How long a reference model is run: for its ops, and for the slow-down of a crowd. */
static const double BUDGET_S = 0.12, CROWD_S = 0.7;

struct calibration {
    struct ct_job *job;
    struct ct_group *all;
    struct ct_costs *costs; /* at rank 0 */
    FILE *to;               /* likewise, else NULL */
    int cores;              /* processors; none is kept from a worker: the job has no affinity */
    bool speaks;
};

static double now_s(void)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- single figures ------------------------------------------------------------------------- */

static double measure_clock(void)
{
    double best = 1;

    for (int turn = 0; turn < 9; turn++) {
        double from_s = now_s();
        for (int i = 0; i < READINGS; i++)
            (void)now_s();
        best = CT_MIN(best, (now_s() - from_s) / READINGS);
    }
    return best;
}

/* A copy reads and writes. */
static int measure_stream(double *ret_rate, struct ct_error *err)
{
    char *from = malloc(STREAM_BYTES), *to = malloc(STREAM_BYTES);
    double times[STREAM_TURNS];

    if (from == NULL || to == NULL) {
        free(from);
        free(to);
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    }
    memset(from, 1, STREAM_BYTES);
    memset(to, 2, STREAM_BYTES);
    for (int i = 0; i < STREAM_TURNS; i++) {
        double from_s = now_s();
        memcpy(to, from, STREAM_BYTES);
        times[i] = now_s() - from_s;
    }
    qsort(times, STREAM_TURNS, sizeof *times, by_size);
    *ret_rate = 2.0 * STREAM_BYTES / times[STREAM_TURNS / 4];
    free(from);
    free(to);
    return 0;
}

/* Two threads that hand a token to each other. */
struct token {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int passes;
};

static void pass(struct token *token, int parity)
{
    pthread_mutex_lock(&token->mutex);
    while (token->passes < 2 * WAKES && token->passes % 2 != parity)
        pthread_cond_wait(&token->changed, &token->mutex);
    token->passes++;
    pthread_cond_broadcast(&token->changed);
    pthread_mutex_unlock(&token->mutex);
}

static void *other_end(void *context)
{
    for (int i = 0; i < WAKES; i++)
        pass(context, 1);
    return NULL;
}

static int measure_wake(double *ret_s, struct ct_error *err)
{
    struct token token = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    double times[WAKES];
    pthread_t thread;

    if (pthread_create(&thread, NULL, other_end, &token) != 0)
        return ct_error_set(err, CT_EOS, "no thread can be started");
    for (int i = 0; i < WAKES; i++) {
        double from_s = now_s();
        pass(&token, 0);
        times[i] = now_s() - from_s;
    }
    (void)pthread_join(thread, NULL);
    qsort(times, WAKES, sizeof *times, by_size);
    *ret_s = times[WAKES / 2] / 2;
    return 0;
}

static int measure_values(struct calibration *c, struct ct_error *err)
{
    double *value = c->costs->value, pages = (double)sysconf(_SC_PHYS_PAGES);

    value[CT_COST_cores] = c->cores;
    value[CT_COST_memory] = pages * (double)sysconf(_SC_PAGESIZE) / value[CT_COST_cores];
    value[CT_COST_clock] = measure_clock();
    int code = measure_stream(&value[CT_COST_stream], err);
    return code == 0 ? measure_wake(&value[CT_COST_wake], err) : code;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static int wait_for_all(struct calibration *c, struct ct_error *err)
{
    const struct ct_options patient = {.timeout_ms = CT_CALIBRATE_WAIT_MS};
    int code = ct_barrier(c->all, &patient);

    return code == 0 || err->code != 0
               ? code
               : ct_error_set(err, code, "a rank is away: %s", ct_strerror(code));
}

/* Threads of a worker that are measured: 1, 4, 16, ... and those of the only worker of a node. */
static int next_threads(int threads, int most)
{
    return threads >= most ? 0 : CT_MIN(4 * threads, most);
}

/* The first `ranks` of all, as many as there are; NULL at the others. */
static int gather(struct calibration *c, int ranks, struct ct_group **ret_group,
                  struct ct_error *err)
{
    int colour = ct_group_rank(c->all) < ranks ? 0 : CT_NO_COLOUR;

    *ret_group = NULL;
    return ct_group_split(c->all, colour, 0, ret_group, err);
}

/* By as many ranks as have processors for so many threads each, into `costs` of rank 0. */
static int measure_references(struct calibration *c, int threads, struct ct_costs *costs,
                              struct ct_error *err)
{
    struct ct_group *group;
    double ignored_s;
    int code = gather(c, CT_MAX(c->cores / threads, 1), &group, err);

    for (int i = 0; i < ct_reference_count() && code == 0 && group != NULL; i++)
        code = ct_reference_measure(ct_reference_at(i), threads, BUDGET_S, group, costs, &ignored_s,
                                    err);
    ct_group_free(group);
    return code == 0 ? wait_for_all(c, err) : code;
}

static int measure_pass(struct calibration *c, struct ct_costs *costs, struct ct_error *err)
{
    int most = CT_MIN(c->cores, (int)CT_COSTS_THREADS), code = 0;

    for (int threads = 1; threads > 0 && code == 0; threads = next_threads(threads, most))
        code = measure_references(c, threads, costs, err);
    return code;
}

/* Twice, seconds apart, as the machine may be busy for a while: the mean of both counts, by the
 * logarithm. */
static int measure_ops(struct calibration *c, struct ct_error *err)
{
    struct ct_costs *again = NULL;

    if (c->costs != NULL && (again = malloc(sizeof *again)) == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    if (again != NULL)
        *again = *c->costs;
    int code = measure_pass(c, c->costs, err);
    if (code == 0)
        code = measure_pass(c, again, err);
    if (code == 0 && again != NULL) {
        CT_ASSERT(again->op_count == c->costs->op_count); /* the same ops in the same order */
        for (int i = 0; i < again->op_count; i++)
            c->costs->ops[i].seconds = sqrt(c->costs->ops[i].seconds * again->ops[i].seconds);
        (void)fprintf(c->to, "%d shapes of ops in %d models\n", again->op_count,
                      ct_reference_count());
    }
    free(again);
    return code;
}

/* Rank 0 alone. */
static int measure_alone(struct calibration *c, struct ct_error *err)
{
    int code = 0;

    if (c->costs != NULL)
        code = measure_values(c, err);
    if (c->costs != NULL && code == 0)
        code = ct_reference_beside(c->costs->value[CT_COST_clock], &c->costs->value[CT_COST_step],
                                   err);
    return code == 0 ? wait_for_all(c, err) : code;
}

/* The model by which ranks disturb each other: a gpt, whose step needs processor and memory. */
static const struct ct_reference *crowd_model(void)
{
    const struct ct_reference *best = ct_reference_at(0);

    for (int i = 0; i < ct_reference_count(); i++)
        if (ct_reference_at(i)->compute == CT_F32 && ct_reference_at(i)->width == 256 &&
            !ct_reference_at(i)->modern)
            best = ct_reference_at(i);
    return best;
}

/* The time that the slowest of the first `ranks` runs for a step, while they compute at once: what
 * they share but the processor. */
static int time_crowd(struct calibration *c, int ranks, double *ret_s, struct ct_error *err)
{
    double step_s = 0;
    struct ct_group *group;
    int code = gather(c, ranks, &group, err);

    if (code == 0 && group != NULL)
        code = ct_reference_measure(crowd_model(), 1, CROWD_S, group, NULL, &step_s, err);
    ct_group_free(group);
    if (code == 0)
        code = ct_all_reduce(c->all, ct_inplace(&step_s, 1, CT_F64), CT_REDUCE_MAX,
                             &(struct ct_options){.timeout_ms = CT_CALIBRATE_WAIT_MS});
    *ret_s = step_s;
    return code == 0 || err->code != 0
               ? code
               : ct_error_set(err, code, "%d ranks at once: %s", ranks, ct_strerror(code));
}

/* More ranks than processors, beside as many. */
static int measure_crowds(struct calibration *c, struct ct_error *err)
{
    double filled_s, step_s;
    int code = time_crowd(c, c->cores, &filled_s, err);

    for (int ranks = 2 * c->cores; code == 0 && ranks <= ct_group_size(c->all); ranks *= 2) {
        code = time_crowd(c, ranks, &step_s, err);
        if (code != 0 || c->costs == NULL || c->costs->crowd_count == CT_COSTS_CROWDS)
            continue;
        double slowdown = CT_MAX(step_s / filled_s, 1) * ranks / c->cores;
        c->costs->crowds[c->costs->crowd_count++] = (struct ct_cost_crowd){ranks, slowdown};
        (void)fprintf(c->to, "%d ranks at once take %.2f times as long as %d\n", ranks, slowdown,
                      c->cores);
    }
    return code;
}

static int measure(struct calibration *c, const char *path, struct ct_error *err)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return ct_error_set(err, CT_EOS, "the processors of this process cannot be read");
    c->cores = CPU_COUNT(&cpus);
    int code = measure_alone(c, err);
    if (code == 0)
        code = measure_ops(c, err);
    if (code == 0)
        code = measure_crowds(c, err);
    if (code == 0)
        code = ct_calls_measure(c->job, c->costs, err);
    return code == 0 && c->costs != NULL ? ct_costs_save(c->costs, path, err) : code;
}

int ct_calibrate(struct ct_job *job, const char *path, FILE *to, struct ct_error *err)
{
    const struct ct_group_options how = {.name = "calibrate"};
    struct calibration c = {.job = job, .to = to};
    char where[PATH_MAX];
    int code = ct_group_new(job, &how, &c.all, err);

    if (code != 0)
        return code;
    c.speaks = ct_group_rank(c.all) == 0;
    if (c.speaks && (c.costs = calloc(1, sizeof *c.costs)) == NULL)
        code = ct_error_set(err, CT_ENOMEM, "out of memory");
    double from_s = now_s();
    if (code == 0)
        code = measure(&c, path, err);
    if (code == 0 && c.costs != NULL) {
        ct_costs_path(path, where, sizeof where);
        (void)fprintf(to, "%d calls; %.0f s in all; written to %s\n", c.costs->call_count,
                      now_s() - from_s, where);
    }
    free(c.costs);
    ct_group_free(c.all);
    return code;
}
