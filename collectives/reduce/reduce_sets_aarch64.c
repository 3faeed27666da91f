/* The instruction sets of arm64 (reduce_table.h): vectors of 16 bytes are NEON's, so the portable
 * kernels are its best. */
#include "reduce/reduce_table.h"

const struct ct_reduce_set ct_reduce_sets[CT_REDUCE_ISAS] = {{&ct_reduce_portable, NULL}};
