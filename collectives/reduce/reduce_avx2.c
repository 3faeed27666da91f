/* The reduction kernels, compiled for AVX2. */
#define CT_REDUCE_TABLE ct_reduce_avx2
#define CT_REDUCE_WIDTH 32
#include "reduce/reduce_kernels.h"
