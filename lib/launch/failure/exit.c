/* See exit.h. */
#include "launch/failure/exit.h"

#include "base/assert.h"
#include "base/error.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

struct ct_exit ct_exit_of(int wait_status)
{
    if (WIFSIGNALED(wait_status))
        return (struct ct_exit){.signal = WTERMSIG(wait_status)};
    return (struct ct_exit){.status = WEXITSTATUS(wait_status)};
}

int ct_exit_shell_status(struct ct_exit end)
{
    return end.signal != 0 ? 128 + end.signal : end.status;
}

int ct_exit_blame(struct ct_exit end)
{
    enum { AN_ECHO, A_STATUS, A_SIGNAL };

    if (end.signal != 0)
        return end.signal == SIGTERM || end.signal == SIGPIPE ? AN_ECHO : A_SIGNAL;
    return end.status == ct_exit_status(CT_EREVOKED) ? AN_ECHO : A_STATUS;
}

static bool is_one_of(int signal, int asked)
{
    return signal == asked || signal == SIGTERM || signal == SIGPIPE;
}

bool ct_exit_is_stop(struct ct_exit end, int code, int signal, bool native)
{
    if (end.signal != 0)
        return is_one_of(end.signal, signal);
    if (end.status == 0 || (end.status > 128 && is_one_of(end.status - 128, signal)))
        return true;
    if (native)
        return code == CT_EREVOKED || code == CT_ECLOSED ||
               (code == 0 && end.status == ct_exit_status(CT_EREVOKED));
    return signal == SIGINT;
}

bool ct_exit_is_final(struct ct_exit end, bool native)
{
    static const int codes[] = {CT_EUSAGE,    CT_ECONFIG,    CT_EDATA, CT_ENOINPUT,
                                CT_ENOTFOUND, CT_ECANTCREAT, CT_EAUTH};

    if (!native || end.signal != 0)
        return false;
    for (size_t i = 0; i < CT_COUNT(codes); i++)
        if (end.status == ct_exit_status(codes[i]))
            return true;
    return false;
}
