/* See stop.h. */
#include "stop.h"

#include <time.h>

void ct_stop_init(struct ct_stop *stop)
{
    *stop = (struct ct_stop){.signal = 0};
    (void)sigemptyset(&stop->signals);
    (void)sigaddset(&stop->signals, SIGTERM);
    (void)sigaddset(&stop->signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &stop->signals, NULL);
}

/* Take a pending signal, waiting up to `ms` for it. */
static void receive_signal(struct ct_stop *stop, long ms)
{
    const struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    int signal = sigtimedwait(&stop->signals, NULL, &wait);

    if (signal > 0)
        stop->signal = signal;
}

bool ct_stop_requested(struct ct_stop *stop, struct ct_job *job)
{
    if (stop->signal == 0)
        receive_signal(stop, 0);
    if (stop->signal == 0 && job != NULL && ct_job_stop_requested(job, NULL))
        stop->signal = SIGTERM;
    return stop->signal != 0;
}

bool ct_stop_is_secondary(int code)
{
    return code == CT_ECLOSED || code == CT_EREVOKED;
}

bool ct_stop_wait(struct ct_stop *stop, struct ct_job *job, int timeout_ms)
{
    enum { SLICE_MS = 20 };

    for (int waited = 0; waited < timeout_ms; waited += SLICE_MS) {
        if (ct_stop_requested(stop, job))
            return true;
        receive_signal(stop, SLICE_MS);
    }
    return ct_stop_requested(stop, job);
}
