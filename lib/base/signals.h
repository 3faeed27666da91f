/* Signals by name, and sets of them.
 *
 * A set has bit N for signal N (1 to 63). */
#ifndef CT_BASE_SIGNALS_H
#define CT_BASE_SIGNALS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ct_signals_has(uint64_t set, int signo)
{
    return signo > 0 && signo < 64 && (set >> signo & 1) != 0;
}

/* Parse a list of signals: "SIGTERM", "TERM", or a number, with optional blanks around it. 0, or
 * CT_EUSAGE with a sentence that follows the name of a setting ("names \"SIGFOO\", ...") for an
 * unknown signal, one that cannot be handled (SIGKILL, SIGSTOP), or one of the program itself
 * (SIGSEGV, SIGCHLD). */
int ct_signals_parse(const char *const *names, size_t count, uint64_t *ret_set,
                     struct ct_error *err);

#endif
