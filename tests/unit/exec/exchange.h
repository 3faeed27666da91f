/* E10 and E11 for tests: the tensors of a run on one rank, which worlds of other layouts are to
 * begin with, to take over and to give back. */
#ifndef CT_TESTS_EXEC_EXCHANGE_H
#define CT_TESTS_EXEC_EXCHANGE_H

#include "tests/unit/exec/fixture.h"

struct originals {
    struct rig rig;        /* the rank alone */
    struct tensors first;  /* its first values */
    struct tensors marked; /* others, which tell each byte's place */
    struct tensors got;
};

void originals_init(struct originals *originals, const struct run *one);
void originals_deinit(struct originals *originals);

/* The loss of sample 0; the run evaluates one row at a time. */
double loss_of(struct rig *rig, const struct run *run);

/* The world of `run` begins with the first values (with `loss` not NULL they give that loss, too),
 * and gives the marked ones back when it has been given them, bit by bit. */
void assert_takes_over(struct originals *originals, const struct run *run, const double *loss);

#endif
