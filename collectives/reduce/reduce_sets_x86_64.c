/* The instruction sets of x86-64 (reduce_table.h). */
#include "reduce/reduce_table.h"

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct ct_reduce_set ct_reduce_sets[CT_REDUCE_ISAS] = {
    {&ct_reduce_portable, NULL},
    {&ct_reduce_avx2, runs_avx2},
    {&ct_reduce_avx512, runs_avx512},
};
