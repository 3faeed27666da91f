/* What a GPU refuses is a failure that names the op, and an Xid in the driver's log. */
#include "base/assert.h"
#include "kit.h"
#include "tensor/plugin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(gpu_fault, .timeout = 60);

/* An operand of the kit's, copied to the device. */
static struct ct_tensor place(struct ct_device *gpu, const struct ct_tensor *tensor)
{
    struct ct_tensor there = *tensor;
    struct ct_error err = {0};
    void *memory = NULL;

    if (tensor->data == NULL)
        return there;
    cr_assert_eq(ct_device_alloc(gpu, CT_MAX(ct_tensor_bytes(tensor), (size_t)1), &memory, &err), 0,
                 "%s", err.text);
    there.data = memory;
    ct_device_copy_in(gpu, memory, tensor->data, ct_tensor_bytes(tensor));
    return there;
}

/* A label beyond the classes traps in the kernel: NVIDIA's Xid 13, which ends the process' use of
 * the GPU and nothing else. */
Test(gpu_fault, a_kernel_that_traps_is_a_failure_of_its_op)
{
    const struct ct_device_request request = {.kind = CT_DEVICE_CUDA};
    const struct kit_sizes size = {3, 17, 5, 10, 17};
    struct ct_device *gpu = NULL;
    struct ct_error why, err = {0};
    struct kit kit;

    cr_assert_eq(ct_device_open(&request, &gpu, &why, &err), 0, "%s", err.text);
    kit_init(&kit, 1);
    struct ct_kernel_args args = kit_args(&kit, CT_OP_CROSS_ENTROPY, CT_F32, size);

    ((int32_t *)args.in[1].data)[0] = (int32_t)ct_shape_columns(args.in[0].shape);
    for (int i = 0; i < CT_OP_MAX_IN; i++)
        args.in[i] = place(gpu, &args.in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        args.out[i] = place(gpu, &args.out[i]);
    cr_assert_eq(ct_device_prepare(gpu, CT_OP_CROSS_ENTROPY, CT_F32, &args, &err), 0, "%s",
                 err.text);
    ct_device_run(gpu, CT_OP_CROSS_ENTROPY, CT_F32, &args);
    int code = ct_device_finish(gpu, &err);

    (void)printf("%s\n", err.text);
    cr_assert_eq(code, CT_EDEVICE);
    kit_deinit(&kit); /* the device cannot give back what it holds: the process' end does */
}
