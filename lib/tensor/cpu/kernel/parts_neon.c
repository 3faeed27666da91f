/* The parts for float, with NEON (parts_body.h). */
#include "tensor/cpu/kernel/math_f32.h"

#define VECTORS
#define T float
#define EXP exp_f32
#define TANH tanh_f32
#define ERF erf_f32
#define SQRT sqrtf
#define GEMM ct_gemm_neon
#define KERNELS ct_cpu_kernels_neon
#include "tensor/cpu/kernel/parts_body.h"

#define HALF ct_half_neon
#include "tensor/cpu/kernel/half_body.h"
