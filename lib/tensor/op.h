/* The ops of op.def as an enum and a table: programs consist of them and devices run them. */
#ifndef CT_TENSOR_OP_H
#define CT_TENSOR_OP_H

#include "base/error.h"
#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ct_op_kind {
#define OP(name, ...) CT_OP_##name,
#include "tensor/op.def"
#undef OP
    CT_OP_COUNT
};

/* No op of op.def has more operands. */
enum { CT_OP_MAX_IN = 4, CT_OP_MAX_OUT = 3 };

/* The widest head of attention. */
enum { CT_HEAD_MAX_SIZE = 1024 };

/* Operands of BF16 and F16: no row, and no head of a sequence, has more elements. */
enum { CT_NARROW_MAX_COLUMNS = 1 << 18 };

/* The attributes an op is run with; those that its row does not name are zero. */
struct ct_attr {
#define ATTR(type, name) type name;
#include "tensor/attr.def"
#undef ATTR
};

enum ct_attr_id {
#define ATTR(type, name) CT_ATTR_##name,
#include "tensor/attr.def"
#undef ATTR
    CT_ATTR_COUNT
};

enum ct_attr_type { CT_ATTR_TYPE_bool, CT_ATTR_TYPE_double, CT_ATTR_TYPE_uint64_t };

/* For printers, hashes and parsers of programs: where attribute `id` lies in struct ct_attr. */
struct ct_attr_info {
    const char *name;
    enum ct_attr_type type;
    size_t offset;
};

struct ct_op_info {
    const char *name;
    const char *operands; /* "x[M,K] W[N,K] b[N]? -> y[M,N]" */
    int in_place;         /* the input whose buffer output 0 may take, or -1 */
    bool updates;         /* reads its outputs */
    bool narrows;         /* devices have it on bf16 and f16 */
    uint32_t attributes;  /* bit 1 << CT_ATTR_x for each attribute it reads */
};

/* Return the row of an op, or of an attribute; never NULL; `op` and `id` are in range
 * (asserted). */
const struct ct_op_info *ct_op_info(enum ct_op_kind op);
const struct ct_attr_info *ct_attr_info(enum ct_attr_id id);

/* Return the op called `name`, or -1. */
int ct_op_find(const char *name);

/* Types of an operand that depend on the op's T, beside those of enum ct_dtype. */
enum { CT_OPERAND_T = -1, CT_OPERAND_WIDE = -2 };

/* One operand as op.def writes it. */
struct ct_operand {
    char name[12];
    int dtype; /* enum ct_dtype, CT_OPERAND_T, or CT_OPERAND_WIDE */
    bool optional;
    int dims;    /* 1: any shape of size[0] elements; 2: size[0] rows of size[1] columns */
    char dim[2]; /* a letter that binds a size, or a digit */
};

struct ct_operands {
    int in_count, out_count;
    struct ct_operand in[CT_OP_MAX_IN], out[CT_OP_MAX_OUT];
};

/* Parse the operands of `op` from its row. */
void ct_op_operands(enum ct_op_kind op, struct ct_operands *ret_operands);

/* The 16-bit floats: kernels compute with them in F32 and round once. */
static inline bool ct_dtype_is_narrow(enum ct_dtype dtype)
{
    return dtype == CT_BF16 || dtype == CT_F16;
}

/* Return the type that `wide` stands for in an op of type `dtype`, and the type of an operand. */
static inline enum ct_dtype ct_dtype_wide(enum ct_dtype dtype)
{
    return ct_dtype_is_narrow(dtype) ? CT_F32 : dtype;
}

/* Return whether `op` adds to output `output` where its attribute `accumulate` is set. */
bool ct_op_adds_to(enum ct_op_kind op, int output);

/* Return whether `op` is one that devices may have for operands of 16 bits. */
bool ct_op_narrows(enum ct_op_kind op);

enum ct_dtype ct_operand_dtype(const struct ct_operand *operand, enum ct_dtype dtype);

/* The operands of an op. An absent optional operand has data == NULL. */
struct ct_kernel_args {
    struct ct_tensor in[CT_OP_MAX_IN];
    struct ct_tensor out[CT_OP_MAX_OUT];
    struct ct_attr attr;
};

/* One of several ops that do together what another op does. */
struct ct_op_part {
    enum ct_op_kind op;
    struct ct_kernel_args args;
};

enum { CT_OP_MAX_PARTS = 3 };

/* Decompose `op` into its parts, in order, for devices without a kernel of the whole. Returns their
 * number, 0 for an op that has no parts. A part may read the result of another; the last may lie
 * where its in-place input does. */
int ct_op_parts(enum ct_op_kind op, const struct ct_kernel_args *args,
                struct ct_op_part ret_parts[CT_OP_MAX_PARTS]);

/* Check that `args` fit the row of `op` with T = `dtype`: present, of the right type, with sizes
 * that agree. 0, or CT_EBUG with a sentence in `err` (may be NULL) that names op, operand and
 * sizes. */
int ct_op_check(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args,
                struct ct_error *err);

#ifdef __cplusplus
}
#endif

#endif
