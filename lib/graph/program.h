/* Programs: computation as a flat list of ops over virtual tensors.
 *
 *     values                              ops, in order
 *     %0 param  f32 [10, 64] "w"          %3 = linear %2, %0, %1
 *     %1 param  f32 [10]     "b"          %4, %5 = cross_entropy %3, %6
 *     %2 input  f32 [32, 64] "x"          ...
 *
 * A value is memory without an address yet: a root has its own, a view is a slice of a root. An op
 * reads the values in `in` and writes those in `out`; a value in both is updated in place. A list
 * means what running it from the first op to the last gives; every later optimisation (placing
 * values over each other, running ops side by side) must preserve that.
 *
 * Building. Calls append to the program and do not fail one by one: the first error (a shape that
 * does not fit, memory) stays in `error`, later calls do nothing and return -1, and the caller
 * checks once, at the end. A program and its names are in one arena; ct_program_deinit frees all.
 * One thread at a time. */
#ifndef CT_GRAPH_PROGRAM_H
#define CT_GRAPH_PROGRAM_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"
#include "graph/rule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_PROGRAM_MAX_VALUES = 1 << 22,
    CT_PROGRAM_MAX_OPS = 1 << 22,
};

enum ct_value_kind {
    CT_VALUE_PARAM,  /* learned; survives steps */
    CT_VALUE_STATE,  /* moments of the optimizer; survives steps */
    CT_VALUE_BUFFER, /* running statistics; survives steps, whole on every rank */
    CT_VALUE_GRAD,   /* gradient of a parameter; lives through a step */
    CT_VALUE_INPUT,  /* written by the host before the list runs */
    CT_VALUE_OUTPUT, /* read by the host after the list ran */
    CT_VALUE_TEMP,   /* lives from its first write to its last access */
    CT_VALUE_HOST,   /* likewise, in the host's memory: copied to and from */
    CT_VALUE_KIND_COUNT
};

struct ct_value {
    const char *name; /* never NULL */
    enum ct_value_kind kind;
    enum ct_dtype dtype;
    struct ct_shape shape;
    int root;            /* the value that owns the memory; its own number for a root */
    size_t offset_bytes; /* in the root; 0 for a root */
    size_t bytes;
};

/* The part of a step that an op belongs to, for the printer, the trace and the verifier. */
enum ct_stage {
    CT_STAGE_INIT,
    CT_STAGE_FORWARD,
    CT_STAGE_BACKWARD,
    CT_STAGE_REDUCE,
    CT_STAGE_UPDATE,
    CT_STAGE_COUNT
};

/* Among which ranks a communication op runs. */
enum ct_axis {
    CT_AXIS_WORLD,   /* all */
    CT_AXIS_DATA,    /* those that do the same with other samples: shards and their replicas */
    CT_AXIS_SHARD,   /* those that hold one state together, each a part of every tensor */
    CT_AXIS_REPLICA, /* those that hold the same part of it */
    CT_AXIS_TENSOR,  /* those that compute a layer together */
    CT_AXIS_STAGE,   /* those that hold a model's layers one behind the other */
    CT_AXIS_COPY,    /* all that hold one copy of the model together: stages, parts and slices */
    CT_AXIS_COUNT
};

enum { CT_NONE = -1 }; /* no value: an optional operand that is absent */

struct ct_program_op {
    int kind; /* enum ct_op, or a communication op of rule.h */
    enum ct_stage stage;
    int micro;              /* the micro-batch it works for */
    int in[CT_OP_MAX_IN];   /* values or CT_NONE */
    int out[CT_OP_MAX_OUT]; /* values or CT_NONE */
    struct ct_attr attr;
    enum ct_axis axis;                         /* communication ops only */
    int to[CT_OP_MAX_IN], from[CT_OP_MAX_OUT]; /* exchange: which member of the axis' group gets an
                                                  input, gives an output */
    enum ct_dtype dtype;                       /* selects the kernel; set by ct_program_emit */
};

struct ct_program {
    struct ct_value *values;
    int value_count;
    struct ct_program_op *ops;
    int op_count;
    struct ct_error error; /* the first failure; code 0 while there is none */

    enum ct_stage stage; /* stamped on the ops that are emitted next */
    int micro;
    int value_room, op_room;
    struct ct_arena arena;
};

void ct_program_init(struct ct_program *program);
void ct_program_deinit(struct ct_program *program);

/* Add a root value. `name` is copied. Dimensions are > 0. */
int ct_program_value(struct ct_program *program, enum ct_value_kind kind, enum ct_dtype dtype,
                     struct ct_shape shape, const char *name);

/* Add a view: `shape` elements of `dtype` at `offset_bytes` of the value `of` (a root or a view),
 * whose kind it takes. It must lie inside `of`. */
int ct_program_view(struct ct_program *program, int of, size_t offset_bytes, enum ct_dtype dtype,
                    struct ct_shape shape, const char *name);

/* Append an op of `kind`, its operands checked; `stage`, `micro` and `dtype` are filled in. Outputs
 * that are CT_NONE though the op has them, and that its inputs determine, become new temporaries.
 * Returns out[0], or CT_NONE. The op is the program's last. */
int ct_program_emit(struct ct_program *program, struct ct_program_op op);

/* Move the last op in front of the one that is number `at` now. */
void ct_program_move_last(struct ct_program *program, int at);

/* Return an op without operands: every value CT_NONE, attributes zero. */
struct ct_program_op ct_program_op(int kind);

/* The gradient of parameter `param` goes to the value `grad`, of the same type and shape. */
struct ct_grad_pair {
    int param, grad;
};

/* Append the backward pass of the ops so far: for each pair, write scale * d loss / d param to
 * grad. `loss` is a value [1] that an op of the program wrote, `scale` a value f64 [1]. A parameter
 * that the loss does not depend on gets a zero gradient, one that is used several times their sum.
 */
void ct_program_backward(struct ct_program *program, int loss, int scale,
                         const struct ct_grad_pair *pairs, int pair_count);

/* Return whether the op reads its outputs too (an update in place, an accumulation). */
bool ct_program_op_updates(const struct ct_program_op *op);

/* Return whether it reads output number `output` before it writes it. */
bool ct_program_op_reads_out(const struct ct_program_op *op, int output);

/* Return a hash of the computation: kinds, shapes, wiring and attributes, not the names. */
uint64_t ct_program_hash(const struct ct_program *program);

/* The cost of one op: floating-point operations, bytes read and written. */
struct ct_cost {
    double flop;
    double bytes;
};

struct ct_cost ct_program_cost(const struct ct_program *program, const struct ct_program_op *op);

/* One op as a line without its end:
 *     linear %3 x, %0 layers.0.weight, %1 layers.0.bias -> %4 h0 f32[32, 64] */
void ct_program_print_op(const struct ct_program *program, int op, struct ct_buf *buf);

/* Return "forward", ... */
const char *ct_stage_name(enum ct_stage stage);

/* Return "world", "data", "shard", ... */
const char *ct_axis_name(enum ct_axis axis);

#endif
