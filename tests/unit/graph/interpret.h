/* The plainest way to run a program, for tests: every root has memory of its own, ops run in order
 * on the CPU device. */
#ifndef CT_TESTS_INTERPRET_H
#define CT_TESTS_INTERPRET_H

#include "graph/program.h"
#include "tensor/device.h"

struct interpreter {
    const struct ct_program *program;
    struct ct_device *device;
    char **memory; /* by root */
};

/* Memory is zeroed. Aborts the test on failure. */
void interpreter_init(struct interpreter *in, const struct ct_program *program);
void interpreter_deinit(struct interpreter *in);

/* Where a value lies. */
void *interpreter_at(const struct interpreter *in, int value);

/* Run ops [first, last). */
void interpreter_run(struct interpreter *in, int first, int last);

#endif
