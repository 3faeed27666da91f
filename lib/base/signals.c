/* See signals.h. */
#include "base/signals.h"

#include "base/assert.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Not to be listed: they cannot be caught, or they tell a program about itself. */
static const int reserved[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGABRT, SIGPIPE};

/* The number of the signal that `name` means; 0 when there is none. */
static int number_of(const char *name)
{
    int64_t number = 0;
    const char *stem = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;

    if (ct_parse_i64(name, &number) == 0)
        return number > 0 && number < 64 && sigabbrev_np((int)number) != NULL ? (int)number : 0;
    for (int signo = 1; signo < NSIG; signo++) {
        const char *known = sigabbrev_np(signo);

        if (known != NULL && strcasecmp(known, stem) == 0)
            return signo;
    }
    return 0;
}

int ct_signals_parse(const char *const *names, size_t count, uint64_t *ret_set,
                     struct ct_error *err)
{
    uint64_t set = 0;

    for (size_t i = 0; i < count; i++) {
        char name[24];
        const char *start = names[i] + strspn(names[i], " ");

        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(start, " "), start);
        int signo = number_of(name);
        if (signo == 0)
            return ct_error_set(err, CT_EUSAGE,
                                "names \"%s\", which is no signal; they are written as SIGTERM",
                                name);
        for (size_t r = 0; r < CT_COUNT(reserved); r++)
            if (signo == reserved[r])
                return ct_error_set(err, CT_EUSAGE,
                                    "names SIG%s, which cannot be taken or passed on; leave it out",
                                    sigabbrev_np(signo));
        set |= UINT64_C(1) << signo;
    }
    *ret_set = set;
    return 0;
}
