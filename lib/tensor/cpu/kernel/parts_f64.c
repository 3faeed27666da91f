/* The parts for double: references for checks, such as finite differences (parts_body.h). */
#include "tensor/cpu/kernel/math_f64.h"

#define T double
#define EXP exp_f64
#define TANH tanh_f64
#define ERF erf_f64
#define SQRT sqrt
#define GEMM ct_gemm_f64
#define KERNELS ct_cpu_kernels_f64
#include "tensor/cpu/kernel/parts_body.h"
