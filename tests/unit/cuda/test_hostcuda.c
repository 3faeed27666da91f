/* What running kernels on the host finds (tests/lib/hostcuda/host.h). */
#include "host.h"
#include "samples.cuh"

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <signal.h>

TestSuite(hostcuda, .timeout = 20);

enum { BLOCK = 64, BLOCKS = 3, COUNT = BLOCK * BLOCKS };

static void fill(float *x)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i + 1);
}

/* In how many of some orders the kernel turns each block around. */
static int turned_right(void (*kernel)(const float *x, float *y, int blocks))
{
    enum { SEEDS = 10 };
    float x[COUNT], y[COUNT];
    int right = 0;

    fill(x);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int same = 0;

        hostcuda_seed(seed);
        kernel(x, y, BLOCKS);
        for (int i = 0; i < COUNT; i++)
            same += y[i] == x[i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK];
        right += same == COUNT;
    }
    return right * 100 / SEEDS;
}

Test(hostcuda, runs_a_kernel_that_is_right_in_any_order)
{
    cr_assert_eq(turned_right(samples_turn), 100);
}

Test(hostcuda, shows_a_missing_barrier_before_reading)
{
    cr_assert_eq(turned_right(samples_turn_unordered), 0);
}

Test(hostcuda, shows_a_missing_barrier_before_writing_again)
{
    cr_assert_eq(turned_right(samples_turn_twice_unordered), 0);
}

Test(hostcuda, shows_shared_memory_that_nobody_wrote)
{
    float x[COUNT], y[COUNT];

    fill(x);
    samples_turn(x, y, BLOCKS); /* leaves numbers there, which the next launch does not see */
    samples_turn_unwritten(x, y, BLOCKS);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(isnan(y[i]) != 0, i % BLOCK == BLOCK - 1 - 17);
}

Test(hostcuda, ends_when_a_thread_never_comes_to_a_barrier, .signal = SIGABRT)
{
    samples_leave_early();
}

Test(hostcuda, ends_when_threads_wait_at_different_barriers, .signal = SIGABRT)
{
    samples_wait_apart();
}

Test(hostcuda, lets_values_change_hands_within_a_warp)
{
    float x[COUNT], y[COUNT];

    fill(x);
    samples_warp_sum(x, y);
    for (int i = 0; i < BLOCK; i++)
        cr_assert_eq(y[i], i < 32 ? 528.0f : 1552.0f);
}

Test(hostcuda, shows_values_of_lanes_that_take_no_part)
{
    float x[COUNT], y[COUNT] = {0};

    fill(x);
    samples_absent_lane(x, y);
    for (int i = 0; i < BLOCK; i++)
        cr_assert_eq(isnan(y[i]) != 0, i % 32 < 16);
}

Test(hostcuda, tells_each_thread_its_place)
{
    float y[3 * 2 * BLOCK];

    samples_places(y);
    for (int i = 0; i < 2 * BLOCK; i++) {
        cr_assert_eq(y[3 * i], (float)(i / BLOCK));
        cr_assert_eq(y[3 * i + 1], (float)(i % 16));
        cr_assert_eq(y[3 * i + 2], (float)(i % BLOCK / 16));
    }
}

/* Its number, its flag and the bytes behind these, which are nobody's, look like an address of the
 * device's. */
Test(hostcuda, takes_no_part_of_a_struct_with_what_lies_behind_it_for_an_address)
{
    void *memory = NULL;

    cr_assert_eq(cudaMalloc(&memory, 1), cudaSuccess);
    cr_assert_eq(samples_padded(memory), (uintptr_t)memory >> 32 & 0xff);
    cr_assert_eq(cudaFree(memory), cudaSuccess);
}
