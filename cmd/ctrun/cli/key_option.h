/* The key that --key_file or --tls_cert, --tls_key and --tls_ca name. */
#ifndef CT_CLI_KEY_OPTION_H
#define CT_CLI_KEY_OPTION_H

#include "config/config.h"
#include "keys/key_source.h"

/* Return what the configuration names, as long as it lives. */
static inline struct ct_key_source key_option_source(const struct ct_config *cfg)
{
    return (struct ct_key_source){.key_file = cfg->launch.key_file,
                                  .tls = {.chain = cfg->launch.tls_cert,
                                          .key = cfg->launch.tls_key,
                                          .ca = cfg->launch.tls_ca}};
}

static inline bool key_option_given(const struct ct_config *cfg)
{
    const struct ct_key_source source = key_option_source(cfg);

    return ct_key_source_given(&source);
}

#endif
