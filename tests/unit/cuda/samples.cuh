/* Small kernels, right and wrong, that show what tests on the host find (tests/lib/hostcuda). */
#ifndef CT_TESTS_CUDA_SAMPLES_CUH
#define CT_TESTS_CUDA_SAMPLES_CUH

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = x[n - 1 - i] within each block of 64, through shared memory; n = 64 * blocks. */
void samples_turn(const float *x, float *y, int blocks);
/* The same without the barrier between writing and reading. */
void samples_turn_unordered(const float *x, float *y, int blocks);
/* Twice over, without the barrier between reading and writing again. */
void samples_turn_twice_unordered(const float *x, float *y, int blocks);
/* One element is never written to shared memory. */
void samples_turn_unwritten(const float *x, float *y, int blocks);
/* Threads of odd number are over before the barrier; others wait at two places. */
void samples_leave_early(void);
void samples_wait_apart(void);
/* y[i] = the sum over the warp of x; and with a value from a lane that takes no part. */
void samples_warp_sum(const float *x, float *y);
void samples_absent_lane(const float *x, float *y);
/* y[3 * i ..] = block.x, thread.x and thread.y of each of 2 * 64 threads. */
void samples_places(float *y);
/* The flag of a struct that ends with these bytes, as a kernel gets it. */
unsigned char samples_padded(const void *end);

#ifdef __cplusplus
}
#endif

#endif
