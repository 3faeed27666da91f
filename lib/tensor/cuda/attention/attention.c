/* Operands of attention, and which kernels take them. */
#include "tensor/cuda/attention/attention.h"

static struct ct_cuda_heads heads_of(const struct ct_kernel_args *args, const struct ct_tensor *qkv)
{
    return (struct ct_cuda_heads){
        .qkv = qkv->data,
        .sequences = ct_shape_rows(qkv->shape) / (int64_t)args->attr.sequence,
        .sequence = (int32_t)args->attr.sequence,
        .heads = (int32_t)args->attr.heads,
        .size = (int32_t)(ct_shape_columns(qkv->shape) / 3 / (int64_t)args->attr.heads),
    };
}

struct ct_cuda_heads ct_cuda_heads_forward(const struct ct_kernel_args *args)
{
    struct ct_cuda_heads heads = heads_of(args, &args->in[0]);

    heads.y = args->out[0].data;
    heads.lse = args->out[1].data;
    return heads;
}

struct ct_cuda_heads ct_cuda_heads_backward(const struct ct_kernel_args *args, void *workspace)
{
    struct ct_cuda_heads heads = heads_of(args, &args->in[1]);

    heads.dy = args->in[0].data;
    heads.y = args->in[2].data;
    heads.lse = args->in[3].data;
    heads.dqkv = args->out[0].data;
    heads.delta = workspace;
    return heads;
}

const struct ct_cuda_flash *ct_cuda_heads_flash(const struct ct_cuda_queue *queue,
                                                const struct ct_cuda_heads *heads,
                                                enum ct_dtype dtype)
{
    static const struct ct_cuda_flash *const kernels[2][2] = {
        {&ct_cuda_flash_64, &ct_cuda_flash_128}, {&ct_cuda_hopper_64, &ct_cuda_hopper_128}};
    uintptr_t bits =
        (uintptr_t)heads->qkv | (uintptr_t)heads->y | (uintptr_t)heads->dy | (uintptr_t)heads->dqkv;

    if (!ct_dtype_is_narrow(dtype) || (heads->size != 64 && heads->size != 128) || bits % 16 != 0)
        return NULL;
    return kernels[queue->warpgroups][heads->size == 128];
}

size_t ct_cuda_heads_workspace(const struct ct_cuda_heads *heads)
{
    return (size_t)heads->sequences * (size_t)heads->sequence * (size_t)heads->heads *
           sizeof(float);
}
