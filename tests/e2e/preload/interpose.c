/* Loaded into programs under test (LD_PRELOAD): a wall clock that a test moves, a slow disk, and an
 * end by SIGKILL at an exact write of the journal, or while something is saved. Everything goes to
 * the kernel as before. See interpose.h. */
#include "interpose.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Mapped at the first call; without the page nothing is changed. */
static struct interpose_page *page(void)
{
    static struct interpose_page none;
    static struct interpose_page *_Atomic mapped;
    struct interpose_page *at = atomic_load(&mapped);

    if (at != NULL)
        return at;
    const char *path = getenv(INTERPOSE_PAGE);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map =
        fd >= 0 ? mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        (void)close(fd);
    at = map != MAP_FAILED ? map : &none;
    atomic_store(&mapped, at);
    return at;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int code = (int)syscall(SYS_clock_gettime, clock, time);

    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += page()->wall_offset_s;
    return code;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *ret_time)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret_time != NULL)
        *ret_time = now.tv_sec;
    return now.tv_sec;
}

static bool is_metrics(int fd)
{
    static const char name[] = "/metrics.jsonl";
    char link[64], path[PATH_MAX];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    ssize_t wanted = (ssize_t)strlen(name);
    return length >= wanted && memcmp(path + length - wanted, name, (size_t)wanted) == 0;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    int ms = (int)page()->metrics_ms;

    if (ms > 0 && is_metrics(fd))
        (void)poll(NULL, 0, ms);
    return syscall(SYS_write, fd, bytes, count);
}

int fsync(int fd)
{
    if (atomic_exchange(&page()->die_saving, 0) != 0)
        (void)kill(getpid(), SIGKILL);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    struct interpose_page *at = page();
    int64_t call = atomic_fetch_add(&at->syncs, 1) + 1;
    int64_t die = call == at->die_at;

    if (die && at->die_before)
        (void)kill(getpid(), SIGKILL);
    int code = (int)syscall(SYS_fdatasync, fd);
    if (die)
        (void)kill(getpid(), SIGKILL);
    return code;
}
