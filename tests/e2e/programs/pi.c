/* Pi by numbers thrown at a quarter circle, on any number of ranks; alone it is a world of one:
 *
 *     cc pi.c $(pkg-config --cflags --libs ctrun) -o pi
 *     ctrun --nproc_per_node 4 pi 1000000
 *
 * Each rank throws its own numbers, one all-reduce adds up the hits, rank 0 tells. */
#include <ctrun.h>
#include <stdio.h>
#include <stdlib.h>

/* How many of `throws` points fall into the circle; each rank has a sequence of its own. */
static int64_t throw_all(int64_t throws, int rank)
{
    unsigned short state[3] = {(unsigned short)rank, 3, 14};
    int64_t hits = 0;

    for (int64_t i = 0; i < throws; i++) {
        double x = erand48(state), y = erand48(state);

        hits += x * x + y * y < 1;
    }
    return hits;
}

int main(int argc, char **argv)
{
    int64_t sums[2] = {0, argc > 1 ? atoll(argv[1]) : 1000000}; /* hits, throws */
    struct ct_error err = {0};
    struct ct_job *job = NULL;
    struct ct_group *group = NULL;
    int code = ct_job_open(&job, &err);

    if (code == 0 && (code = ct_group_new(job, NULL, &group, &err)) == 0) {
        sums[0] = throw_all(sums[1], ct_group_rank(group));
        code = ct_all_reduce(group, ct_inplace(sums, 2, CT_I64), CT_REDUCE_SUM, NULL);
        if (code != 0)
            err = *ct_group_failure(group);
    }
    if (code != 0)
        (void)fprintf(stderr, "pi: %s\n", err.text);
    else if (ct_group_rank(group) == 0)
        (void)printf("pi is about %.3f on %d ranks\n", 4.0 * (double)sums[0] / (double)sums[1],
                     ct_group_size(group));
    ct_group_free(group);
    ct_job_close(job);
    return ct_exit_status(code);
}
