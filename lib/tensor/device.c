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

int ct_device_prepare(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                      const struct ct_kernel_args *args, struct ct_error *err)
{
    return device->table->prepare != NULL ? device->table->prepare(device, op, dtype, args, err)
                                          : 0;
}

int ct_device_reach(struct ct_device *device, void *memory, size_t bytes, struct ct_error *err)
{
    return device->table->reach != NULL ? device->table->reach(device, memory, bytes, err) : 0;
}

void ct_device_unreach(struct ct_device *device, void *memory)
{
    if (device->table->unreach != NULL && memory != NULL)
        device->table->unreach(device, memory);
}

/* ---- queues and time ------------------------------------------------------------------------ */

int ct_device_beside(struct ct_device *device, struct ct_device **ret_device, struct ct_error *err)
{
    return device->table->beside(device, ret_device, err);
}

int ct_device_finish(struct ct_device *device, struct ct_error *err)
{
    return device->table->finish != NULL ? device->table->finish(device, err) : 0;
}

int ct_device_mark_new(struct ct_device *device, struct ct_mark **ret_mark, struct ct_error *err)
{
    struct ct_mark *mark = NULL;

    if (device->table->mark_new != NULL) {
        mark = device->table->mark_new(device);
        if (mark == NULL)
            return ct_error_set(err, CT_ENOMEM, "the %s device has no room for a mark",
                                device->table->name);
    }
    *ret_mark = mark;
    return 0;
}

void ct_device_mark_free(struct ct_device *device, struct ct_mark *mark)
{
    if (mark != NULL)
        device->table->mark_free(mark);
}

void ct_device_mark(struct ct_device *device, struct ct_mark *mark)
{
    if (mark != NULL)
        device->table->mark(device, mark);
}

void ct_device_await(struct ct_device *device, const struct ct_mark *mark)
{
    if (mark != NULL)
        device->table->await(device, mark);
}

void *ct_device_stream(struct ct_device *device)
{
    return device->table->stream != NULL ? device->table->stream(device) : NULL;
}

const struct ct_accel *ct_device_accel(struct ct_device *device)
{
    return device->table->accel != NULL ? device->table->accel(device) : NULL;
}

bool ct_device_can_record(const struct ct_device *device)
{
    return device->table->record != NULL;
}

int ct_device_record(struct ct_device *device, struct ct_error *err)
{
    CT_ASSERT(ct_device_can_record(device));
    return device->table->record(device, err);
}

int ct_device_record_end(struct ct_device *device, struct ct_recording **ret_recording,
                         struct ct_error *err)
{
    return device->table->record_end(device, ret_recording, err);
}

void ct_device_replay(struct ct_device *device, struct ct_recording *recording)
{
    device->table->replay(device, recording);
}

void ct_device_recording_free(struct ct_device *device, struct ct_recording *recording)
{
    if (recording != NULL)
        device->table->recording_free(recording);
}
