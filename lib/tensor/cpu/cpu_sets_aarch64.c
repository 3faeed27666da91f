/* The instruction sets of arm64: each such processor has NEON, with fused multiply-add (cpu.h). */
#include "tensor/cpu/cpu.h"

static bool runs_anywhere(void)
{
    return true;
}

const struct ct_cpu_set ct_cpu_sets[CT_CPU_ISAS] = {
    [CT_CPU_PORTABLE] = {runs_anywhere, &ct_cpu_kernels_portable, ct_half_portable},
    [CT_CPU_NEON] = {runs_anywhere, &ct_cpu_kernels_neon, ct_half_neon},
};
