/* Rules about 16-bit floats and memory (checks.h). */
#include "config/checks.h"

#include "base/assert.h"

#include <math.h>
#include <string.h>

static bool scale_without_f16(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "scales the loss of a training in f16; set train.precision to f16, or "
                           "leave it out");
    return *(const double *)member != 65536 && cfg->train.precision != CT_CONFIG_PRECISION_F16;
}

static bool rounding_of_other_types(const struct ct_config *cfg, const void *member,
                                    struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is stochastic, which is for copies of the parameters in bf16; set "
                           "train.precision to bf16, or leave it out");
    return *(const enum ct_config_rounding *)member == CT_CONFIG_ROUNDING_STOCHASTIC &&
           cfg->train.precision != CT_CONFIG_PRECISION_BF16;
}

static bool scale_of_other_bits(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    double scale = *(const double *)member;
    int exponent = 0;
    bool is_power = frexp(scale, &exponent) == 0.5;

    (void)cfg;
    (void)ct_buf_printf(why, "is %.17g, must be a power of two (%.17g or %.17g)", scale,
                        ldexp(0.5, exponent), ldexp(1, exponent));
    return !is_power;
}

static bool invariant_in_16_bits(const struct ct_config *cfg, const void *member,
                                 struct ct_buf *why)
{
    (void)ct_buf_puts(why,
                      "is bf16, which rounds the gradients of each worker, so the bits are not "
                      "those of other numbers of workers; set parallel.reduce to reproducible "
                      "or fast");
    return *(const enum ct_config_reduce_dtype *)member == CT_CONFIG_REDUCE_DTYPE_BF16 &&
           cfg->parallel.reduce == CT_CONFIG_REDUCE_INVARIANT;
}

static bool folder_without_file(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is for activations in a file; set memory.offload to file, or leave it "
                           "out");
    return strcmp(*(const char *const *)member, "/tmp") != 0 &&
           cfg->memory.offload != CT_CONFIG_OFFLOAD_FILE;
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(train.loss_scale), AT(train.precision), true, scale_without_f16},
    {AT(train.loss_scale), AT(train.loss_scale), true, scale_of_other_bits},
    {AT(train.rounding), AT(train.precision), true, rounding_of_other_types},
    {AT(parallel.reduce_dtype), AT(parallel.reduce), true, invariant_in_16_bits},
    {AT(memory.offload_dir), AT(memory.offload), true, folder_without_file},
};

const struct ct_config_rules ct_config_precision_rules = {rules, CT_COUNT(rules)};
