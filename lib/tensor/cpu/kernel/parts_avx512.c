/* The parts for float, with AVX-512 (parts_body.h). */
#include "tensor/cpu/kernel/math_f32.h"

#define VECTORS
#define T float
#define EXP exp_f32
#define TANH tanh_f32
#define ERF erf_f32
#define SQRT sqrtf
#define GEMM ct_gemm_avx512
#define KERNELS ct_cpu_kernels_avx512
#include "tensor/cpu/kernel/parts_body.h"

#define HALF ct_half_avx512
#include "tensor/cpu/kernel/half_body.h"
