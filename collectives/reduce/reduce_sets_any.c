/* The instruction sets of processors for which there are none (reduce_table.h). */
#include "reduce/reduce_table.h"

const struct ct_reduce_set ct_reduce_sets[CT_REDUCE_ISAS] = {{&ct_reduce_portable, NULL}};
