/* The Python program that hands metrics to the user's wandb (wandb_follow.py, within this one), and
 * the interpreter that runs it. */
#ifndef CT_CTRUN_AGENT_WANDB_PYTHON_H
#define CT_CTRUN_AGENT_WANDB_PYTHON_H

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"

#include <sys/types.h>

enum { WANDB_TOLD = 3 }; /* exit status: the program has said why (wandb_follow.py) */

/* Find the interpreter that has wandb, before anything is started; *ret_python is NULL when
 * log.wandb is off. CT_EUNAVAILABLE without an interpreter, CT_ECONFIG without the package. One
 * that does not answer within seconds is taken as it is. */
int wandb_find(const struct ct_config *cfg, char *const *env, struct ct_arena *arena,
               const char **ret_python, struct ct_error *err);

/* Start the program with `args` (NULL-terminated) and these standard descriptors. Errors as of
 * ct_spawn. */
int wandb_spawn(const char *python, char *const *env, const char *const *args, const int fds[3],
                pid_t *ret_pid, struct ct_error *err);

#endif
