/* Fits y = 2 x + 1 by gradient descent, on any number of ranks, and lives on when ranks are lost:
 *
 *     cc line.c $(pkg-config --cflags --libs ctrun) -o line
 *     ctrun --nproc_per_node 3 --max_restarts 5 line FOLDER
 *
 * What makes it survive is ct_job_register_state and ct_job_begin_step; there is nothing else. */
#include <ctrun.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 300, SAMPLES = 12, STEP_MS = 5 };

/* The gradient of the mean squared error over this rank's share of the samples, not yet summed. */
static void compute(const struct ct_assignment *me, const double line[2], double gradient[2])
{
    gradient[0] = gradient[1] = 0;
    for (int i = me->rank; i < SAMPLES; i += me->world) {
        double x = (double)i / SAMPLES, error = line[0] * x + line[1] - (2 * x + 1);

        gradient[0] += 2 * error * x / SAMPLES;
        gradient[1] += 2 * error / SAMPLES;
    }
}

/* One file a rank, replaced at each step: who is where. */
static void tell(const char *folder, const struct ct_job_step *step, int rank)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/rank_%d", folder, rank);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return;
    (void)fprintf(file, "%d %llu\n", (int)getpid(), (unsigned long long)step->number);
    (void)fclose(file);
}

static int train(struct ct_job *job, const char *folder, struct ct_error *err)
{
    const struct ct_assignment *me = ct_job_assignment(job);
    double line[2] = {0, 0}, gradient[2];
    struct ct_job_step step = {.number = 0};
    int code = ct_job_register_state(job, "line", line, sizeof line, err);

    while (code == 0 && (code = ct_job_begin_step(job, &step, err)) == 0 && step.number < STEPS) {
        compute(me, line, gradient);
        if (ct_all_reduce(step.group, ct_inplace(gradient, 2, CT_F64), CT_REDUCE_SUM, NULL) != 0)
            continue;
        line[0] -= gradient[0];
        line[1] -= gradient[1] / 2;
        tell(folder, &step, me->rank);
        (void)poll(NULL, 0, STEP_MS); /* what a larger model would take */
    }
    if (code == 0 && me->rank == 0)
        (void)printf("y = %.2f x + %.2f after %llu steps on %d ranks\n", line[0], line[1],
                     (unsigned long long)step.number, me->world);
    return code;
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct ct_job *job;
    int code = ct_job_open(&job, &err);

    if (code == 0) {
        code = train(job, argc > 1 ? argv[1] : ".", &err);
        if (code != 0)
            (void)ct_job_failure(job, &err);
        ct_job_close(job);
    }
    if (code != 0)
        (void)fprintf(stderr, "line: %s\n", err.text);
    return ct_exit_status(code);
}
