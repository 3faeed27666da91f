/* The CPU device: what it is asked for, what it refuses, and its memory. */
#include "tensor/device.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(device, .timeout = 30);

static int make(int threads, enum ct_cpu_isa isa, struct ct_error *err)
{
    struct ct_device *device = NULL;
    int rc = ct_device_cpu_new(&(struct ct_cpu_options){threads, isa}, &device, err);

    cr_assert_eq(device == NULL, rc != 0);
    ct_device_free(device);
    return rc;
}

Test(device, every_instruction_set_that_runs_can_be_asked_for_and_no_other)
{
    cr_assert(ct_cpu_isa_runs(CT_CPU_PORTABLE) && ct_cpu_isa_runs(ct_cpu_isa_best()));
    cr_assert_eq(make(1, CT_CPU_AUTO, NULL), 0);
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++)
        cr_assert_eq(make(1, isa, NULL), ct_cpu_isa_runs(isa) ? 0 : CT_EUNSUPPORTED, "%s",
                     ct_cpu_isa_name(isa));
    cr_assert_str_eq(ct_cpu_isa_name(CT_CPU_AVX512), "avx512");
}

Test(device, an_instruction_set_that_is_not_there_is_refused_with_the_best)
{
    struct ct_error err = {0};

    cr_assert_eq(make(1, (enum ct_cpu_isa)99, &err), CT_EUNSUPPORTED);
    cr_assert_not_null(strstr(err.text, ct_cpu_isa_name(ct_cpu_isa_best())), "%s", err.text);
}

Test(device, thread_counts_out_of_range_are_refused)
{
    struct ct_error err = {0};

    cr_assert_eq(make(-1, CT_CPU_AUTO, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text,
                     "-1 compute threads: give a number from 1 to 1024 (OMP_NUM_THREADS)");
    cr_assert_eq(make(5000, CT_CPU_AUTO, &err), CT_EUSAGE);
}

Test(device, threads_come_from_the_environment_when_none_are_given)
{
    (void)setenv("OMP_NUM_THREADS", "99999", 1);
    cr_assert_eq(make(0, CT_CPU_AUTO, NULL), CT_EUSAGE);
    cr_assert_eq(make(2, CT_CPU_AUTO, NULL), 0, "an explicit count wins");
    (void)setenv("OMP_NUM_THREADS", "3", 1);
    cr_assert_eq(make(0, CT_CPU_AUTO, NULL), 0);
    (void)setenv("OMP_NUM_THREADS", "many", 1);
    cr_assert_eq(make(0, CT_CPU_AUTO, NULL), 0);
    (void)unsetenv("OMP_NUM_THREADS");
}

Test(device, arenas_are_zeroed_aligned_and_hold_what_is_copied_in)
{
    struct ct_device *device = NULL;
    const size_t size = (3 << 20) + 5;
    void *memory = NULL;
    char back[6];

    cr_assert_eq(ct_device_cpu_new(NULL, &device, NULL), 0);
    cr_assert_eq(ct_device_alloc(device, size, &memory, NULL), 0);
    cr_assert_eq((uintptr_t)memory % CT_DEVICE_ALIGN, 0);
    for (size_t i = 0; i < size; i += 4096)
        cr_assert_eq(((char *)memory)[i], 0);
    ct_device_copy_in(device, (char *)memory + size - 6, "hello", 6);
    ct_device_copy_out(device, back, (char *)memory + size - 6, 6);
    cr_assert_str_eq(back, "hello");
    ct_device_release(device, memory, size);
    ct_device_release(device, NULL, 0);
    ct_device_free(device);
    ct_device_free(NULL);
}

Test(device, an_arena_that_does_not_fit_is_an_error_with_its_size)
{
    struct ct_device *device = NULL;
    struct ct_error err = {0};
    void *memory = &err;

    cr_assert_eq(ct_device_cpu_new(NULL, &device, NULL), 0);
    cr_assert_eq(ct_device_alloc(device, (size_t)1 << 60, &memory, &err), CT_ENOMEM);
    cr_assert_eq(memory, &err, "untouched on failure");
    cr_assert_not_null(strstr(err.text, "1152921504606846976 bytes"), "%s", err.text);
    ct_device_free(device);
}

Test(device, every_op_runs_in_single_and_double_precision)
{
    struct ct_device *device = NULL;

    cr_assert_eq(ct_device_cpu_new(NULL, &device, NULL), 0);
    for (int op = 0; op < CT_OP_COUNT; op++) {
        cr_assert(ct_device_has(device, (enum ct_op_kind)op, CT_F32));
        cr_assert(ct_device_has(device, (enum ct_op_kind)op, CT_F64));
        cr_assert_eq(ct_device_has(device, (enum ct_op_kind)op, CT_BF16),
                     ct_device_has(device, (enum ct_op_kind)op, CT_F16));
        cr_assert_not(ct_device_has(device, (enum ct_op_kind)op, CT_I64));
    }
    ct_device_free(device);
}
