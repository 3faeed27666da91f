/* What the tensor tests share: tensors from a seed, operands made from an op's row in op.def, and
 * running an op on a CPU device of a chosen instruction set. */
#ifndef CT_TESTS_TENSOR_KIT_H
#define CT_TESTS_TENSOR_KIT_H

#include "base/arena.h"
#include "base/number/rng.h"
#include "tensor/device.h"

struct kit {
    struct ct_arena arena;
    struct ct_rng rng;
    size_t skew; /* bytes by which new tensors miss alignment */
};

/* TEST_SEED=N in the environment gives every test other numbers: none may pass by luck. */
void kit_init(struct kit *kit, uint64_t seed);

/* A seed of an op's case, from its name: what it draws stays when op.def gets a row. */
uint64_t kit_seed(enum ct_op_kind op, uint64_t number);
void kit_deinit(struct kit *kit);

/* Uniform in [low, high]. */
double kit_uniform(struct kit *kit, double low, double high);

/* A zeroed tensor, with guard bytes beside it that kit_guards checks. */
struct ct_tensor kit_tensor(struct kit *kit, enum ct_dtype dtype, struct ct_shape shape);
struct ct_tensor kit_random(struct kit *kit, enum ct_dtype dtype, struct ct_shape shape, double low,
                            double high);
void kit_guards(const struct ct_tensor *tensor);

/* The same values in new memory, as `dtype`. */
struct ct_tensor kit_copy(struct kit *kit, const struct ct_tensor *tensor, enum ct_dtype dtype);

/* Element i of a floating or I32 tensor. */
double kit_get(const struct ct_tensor *tensor, int64_t i);
void kit_set(struct ct_tensor *tensor, int64_t i, double value);

/* A scalar operand: F64 [1]. */
struct ct_tensor kit_scalar(struct kit *kit, double value);

/* Labels in -1 .. classes - 1. */
struct ct_tensor kit_labels(struct kit *kit, int64_t rows, int64_t classes);

/* i32 [rows]: first, first + 1, ... */
struct ct_tensor kit_places(struct kit *kit, int64_t rows, int64_t first);

/* Sizes that the letters M, N, K, C of op.def get, and n; ops whose sizes hang together take others
 * that follow from them. */
struct kit_sizes {
    int64_t m, n, k, c, flat;
};

/* Random operands and attributes for any op. */
struct ct_kernel_args kit_args(struct kit *kit, enum ct_op_kind op, enum ct_dtype dtype,
                               struct kit_sizes sizes);

/* The same with all operands copied to new memory. */
struct ct_kernel_args kit_copy_args(struct kit *kit, const struct ct_kernel_args *args);

/* A CPU device; asserts that there is one. */
struct ct_device *kit_device(enum ct_cpu_isa isa, int threads);

/* Check and run one op on a fresh device. */
void kit_run(enum ct_cpu_isa isa, int threads, enum ct_op_kind op, enum ct_dtype dtype,
             const struct ct_kernel_args *args);

/* Assert that two tensors hold the same bytes, or values that differ by at most `tolerance` *
 * max(1, |b|); `what` names them. */
void kit_same_bytes(const struct ct_tensor *a, const struct ct_tensor *b, const char *what);
void kit_near(const struct ct_tensor *a, const struct ct_tensor *b, double tolerance,
              const char *what);

#endif
