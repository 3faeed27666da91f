/* The instruction sets of processors for which there are none (cpu.h). */
#include "tensor/cpu/cpu.h"

static bool runs_anywhere(void)
{
    return true;
}

const struct ct_cpu_set ct_cpu_sets[CT_CPU_ISAS] = {
    [CT_CPU_PORTABLE] = {runs_anywhere, &ct_cpu_kernels_portable, ct_half_portable},
};
