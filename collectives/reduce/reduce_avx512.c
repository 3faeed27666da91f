/* The reduction kernels, compiled for AVX-512. */
#define CT_REDUCE_TABLE ct_reduce_avx512
#define CT_REDUCE_WIDTH 64
#include "reduce/reduce_kernels.h"
