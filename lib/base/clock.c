/* See clock.h. */
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec now;

    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t system_mono_ns(void *context)
{
    (void)context;
    return read_ns(CLOCK_MONOTONIC);
}

static uint64_t system_wall_ns(void *context)
{
    (void)context;
    return read_ns(CLOCK_REALTIME);
}

const struct ct_clock ct_clock_system = {system_mono_ns, system_wall_ns, NULL};
