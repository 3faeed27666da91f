/* See device.h: what all devices share. */
#include "tensor/device.h"

#include "base/assert.h"

void ct_device_free(struct ct_device *device)
{
    if (device != NULL)
        device->table->free(device);
}

int ct_device_alloc(struct ct_device *device, size_t bytes, void **ret_memory, struct ct_error *err)
{
    CT_ASSERT(bytes > 0);
    void *memory = device->table->alloc(device, bytes);

    if (memory == NULL)
        return ct_error_set(err, CT_ENOMEM,
                            "the %s device has no room for an arena of %zu bytes; use a smaller "
                            "model or micro-batch",
                            device->table->name, bytes);
    CT_ASSERT((uintptr_t)memory % CT_DEVICE_ALIGN == 0);
    *ret_memory = memory;
    return 0;
}

void ct_device_release(struct ct_device *device, void *memory, size_t bytes)
{
    if (memory != NULL)
        device->table->release(device, memory, bytes);
}

void ct_device_copy_in(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    device->table->copy_in(device, to, from, bytes);
}

void ct_device_copy_out(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    device->table->copy_out(device, to, from, bytes);
}

bool ct_device_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype)
{
    return device->table->has(device, op, dtype);
}

void ct_device_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                   const struct ct_kernel_args *args)
{
    device->table->run(device, op, dtype, args);
}
