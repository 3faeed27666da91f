/* The reduction kernels for every machine. */
#define CT_REDUCE_TABLE ct_reduce_portable
#define CT_REDUCE_WIDTH 16
#include "reduce/reduce_kernels.h"
