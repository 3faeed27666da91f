/* See reduce.h. The instruction set is chosen by what the processor says, on each call: this is a
 * load and a compare. */
#include "reduce/reduce.h"

#include "base/assert.h"
#include "base/processor.h"
#include "reduce/reduce_table.h"

const struct ct_reduce_kernels *ct_reduce_isa(int isa)
{
    const struct ct_reduce_set *set = &ct_reduce_sets[isa];

    return set->runs == NULL || set->runs() ? set->kernels : NULL;
}

bool ct_reduce_supports(enum ct_dtype dtype, enum ct_reduce reduce)
{
    return (unsigned)dtype < CT_DTYPE_COUNT && (unsigned)reduce < CT_REDUCE_COUNT &&
           ct_reduce_portable.of[dtype][reduce][CT_ORDER_RANK] != NULL;
}

bool ct_reduce_in_steps(enum ct_dtype dtype, enum ct_reduce reduce)
{
    bool own_type = dtype == CT_F32 || dtype == CT_F64 || dtype == CT_I64 || dtype == CT_I32 ||
                    dtype == CT_BOOL;

    return own_type && reduce != CT_REDUCE_PREMUL_SUM;
}

bool ct_reduce_through_f32(enum ct_dtype dtype, enum ct_reduce reduce)
{
    return (dtype == CT_BF16 || dtype == CT_F16) && reduce != CT_REDUCE_PREMUL_SUM;
}

void ct_reduce_with(const struct ct_reduce_kernels *kernels, const struct ct_reduction *how,
                    void *dst, const void *const *source, int sources, size_t count)
{
    struct ct_reduce_args args = {.dst = dst,
                                  .copy = how->copy,
                                  .source = source,
                                  .factor = how->factor,
                                  .sources = sources,
                                  .copies = how->copies,
                                  .divisor = how->divisor,
                                  .stream = how->stream,
                                  .count = count};

    for (int i = 0; i < how->copies; i++)
        args.stream = args.stream && (uintptr_t)how->copy[i] % 64 == 0;

    CT_ASSERT(ct_reduce_supports(how->dtype, how->reduce));
    CT_ASSERT(sources >= 1 && sources <= CT_REDUCE_SOURCES_MAX);
    CT_ASSERT(how->reduce != CT_REDUCE_PREMUL_SUM || how->factor != NULL);
    kernels->of[how->dtype][how->reduce][how->order](&args);
    if (args.stream)
        ct_stores_drain(); /* such stores are not ordered before a flag's */
}

/* The best that this machine has. */
static const struct ct_reduce_kernels *best(void)
{
    const struct ct_reduce_kernels *kernels = NULL;

    for (int isa = CT_REDUCE_ISAS - 1; kernels == NULL; isa--)
        kernels = ct_reduce_isa(isa);
    return kernels;
}

void ct_reduce_buffers(const struct ct_reduction *how, void *dst, const void *const *source,
                       int sources, size_t count)
{
    ct_reduce_with(best(), how, dst, source, sources, count);
}

void ct_reduce_widen_with(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype, float *dst,
                          const void *src, size_t count)
{
    CT_ASSERT(kernels->widen[dtype] != NULL);
    kernels->widen[dtype](dst, src, count);
}

void ct_reduce_narrow_with(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype, void *dst,
                           const float *src, size_t count)
{
    CT_ASSERT(kernels->narrow[dtype] != NULL);
    kernels->narrow[dtype](dst, src, count);
}

void ct_reduce_widen(enum ct_dtype dtype, float *dst, const void *src, size_t count)
{
    ct_reduce_widen_with(best(), dtype, dst, src, count);
}

void ct_reduce_narrow(enum ct_dtype dtype, void *dst, const float *src, size_t count)
{
    ct_reduce_narrow_with(best(), dtype, dst, src, count);
}
