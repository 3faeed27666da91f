/* What a training of `steps` steps has written in the test's folder: metrics in NAME/log, one line
 * a step (--log.every=1), checkpoints in NAME/ckpt. */
#ifndef TESTS_E2E_WRITTEN_H
#define TESTS_E2E_WRITTEN_H

/* How often each step is in the metrics, in times[1] to times[steps]; the highest step. */
int written_steps(const char *name, int steps, int *times);

/* Wait until `step` is in the metrics. */
void written_wait(const char *name, int steps, int step);

/* Fail unless each step is there once. */
void written_each_once(const char *name, int steps);

/* Fail unless the last checkpoints have the same parameters and moments, byte for byte. */
void written_equal(const char *a, const char *b, int steps);

#endif
