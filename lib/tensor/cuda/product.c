/* See product.h. */
#include "tensor/cuda/product.h"

#include "base/assert.h"

static void end(struct ct_product *p, enum ct_op_kind op, const struct ct_kernel_args *args)
{
    if (op != CT_OP_LINEAR_GELU && op != CT_OP_LINEAR_DX_GELU)
        return;
    p->end = op == CT_OP_LINEAR_GELU ? CT_PRODUCT_GELU : CT_PRODUCT_DGELU;
    p->aux = op == CT_OP_LINEAR_GELU ? args->out[1].data : args->in[2].data;
    p->aux_step = p->m;
}

struct ct_product ct_product_of(enum ct_op_kind op, enum ct_dtype dtype,
                                const struct ct_kernel_args *args)
{
    const struct ct_tensor *first = &args->in[0], *second = &args->in[1], *to = &args->out[0];
    bool forward = op == CT_OP_LINEAR || op == CT_OP_LINEAR_GELU;
    int64_t rows = ct_shape_rows(first->shape), in = ct_shape_columns(second->shape);
    int64_t out = ct_shape_columns(forward ? to->shape : first->shape);
    struct ct_product p = {.c = to->data, .in = dtype, .out = to->dtype, .accumulate = false};

    switch (op) {
    case CT_OP_LINEAR:
    case CT_OP_LINEAR_GELU:
        p.a = second->data;
        p.b = first->data;
        p.bias = args->in[2].data;
        p.a_transposed = true;
        p.m = out;
        p.n = rows;
        p.k = in;
        break;
    case CT_OP_LINEAR_DX:
    case CT_OP_LINEAR_DX_GELU:
        p.a = second->data;
        p.b = first->data;
        p.m = in;
        p.n = rows;
        p.k = out;
        break;
    default:
        CT_ASSERT(op == CT_OP_LINEAR_DW);
        p.a = second->data;
        p.b = first->data;
        p.b_transposed = true;
        p.accumulate = args->attr.accumulate;
        p.m = in;
        p.n = out;
        p.k = rows;
    }
    p.a_step = p.a_transposed ? p.k : p.m;
    p.b_step = p.b_transposed ? p.n : p.k;
    p.c_step = p.m;
    end(&p, op, args);
    return p;
}

/* The largest power of 2, up to 256, that divides an address; 0 for none. */
static uint16_t alignment(const void *at)
{
    enum { MOST = 256 };
    uintptr_t bits = (uintptr_t)at | MOST;

    return (uint16_t)(at == NULL ? 0 : bits & (~bits + 1));
}

struct ct_product_key ct_product_key_of(const struct ct_product *product)
{
    return (struct ct_product_key){
        .m = product->m,
        .n = product->n,
        .k = product->k,
        .aux_step = product->aux_step,
        .in = (int32_t)product->in,
        .out = (int32_t)product->out,
        .a_align = alignment(product->a),
        .b_align = alignment(product->b),
        .c_align = alignment(product->c),
        .bias_align = alignment(product->bias),
        .aux_align = alignment(product->aux),
        .a_transposed = product->a_transposed,
        .b_transposed = product->b_transposed,
        .accumulate = product->accumulate,
        .end = (uint8_t)product->end,
    };
}
