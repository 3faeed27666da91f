/* The results of a run as text, for the subcommands on runs, and for the final report of a
 * training. */
#ifndef CT_CTRUN_AGENT_RUN_TEXT_H
#define CT_CTRUN_AGENT_RUN_TEXT_H

#include "base/bytes.h"
#include "base/error.h"
#include "config/config.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Load the configuration of the file `path`, whose inputs need not exist. `cfg` needs
 * ct_config_deinit in any case. CT_ECONFIG. */
int run_config(struct ct_config *cfg, const char *path, struct ct_error *err);

/* Return whether a key says where a run lies, not what it trains: what `ctrun resume` sets. */
bool run_is_place(const char *key);

/* Return the checkpoint folder of the run in `folder`; "" if it has none. */
void run_checkpoints(const struct ct_config *cfg, const char *folder, char path[PATH_MAX]);

/* Return the newest or the `best` checkpoint (checkpoint.best) of the run in `folder`, and its
 * step. CT_ENOTFOUND: it has none. */
int run_checkpoint(const char *folder, bool best, char path[PATH_MAX], uint64_t *ret_step,
                   struct ct_error *err);

#endif
