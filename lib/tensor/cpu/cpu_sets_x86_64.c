/* The instruction sets of x86-64 (cpu.h). */
#include "tensor/cpu/cpu.h"

static bool runs_anywhere(void)
{
    return true;
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct ct_cpu_set ct_cpu_sets[CT_CPU_ISAS] = {
    [CT_CPU_PORTABLE] = {runs_anywhere, &ct_cpu_kernels_portable, ct_half_portable},
    [CT_CPU_AVX2] = {runs_avx2, &ct_cpu_kernels_avx2, ct_half_avx2},
    [CT_CPU_AVX512] = {runs_avx512, &ct_cpu_kernels_avx512, ct_half_avx512},
};
