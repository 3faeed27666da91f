/* What the machine allows, for as many ranks as are asked for, each a process on a core of its own.
 *
 *     probe RANKS BYTES ...
 *
 * "hop 0 US", when there are two ranks: a cache line's way from one core to the other.
 * "limit BYTES US", a line a size: all ranks at once read and write BYTES of their own, in place;
 * no all_reduce in place can move less. Medians of batches; with more ranks than cores the passes
 * of a core's ranks follow one another. Wants -O3 -march=native: 16 numbers at a time. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 9, HOPS = 2000, BATCH_US = 4000, RANKS_MAX = 64, LINE = 128 };

struct flag {
    _Atomic uint64_t value;
    char rest[LINE - sizeof(uint64_t)];
};

static struct flag *flags; /* one a rank */
static double *times;      /* one a rank, of the last batch */
static int ranks, rank, crowded;
static uint64_t met;

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void await(int other, uint64_t value)
{
    while (atomic_load_explicit(&flags[other].value, memory_order_acquire) < value)
        if (crowded)
            (void)sched_yield();
}

static void meet(void)
{
    atomic_store_explicit(&flags[rank].value, ++met, memory_order_release);
    for (int i = 0; i < ranks; i++)
        await(i, met);
}

/* The slowest rank's. */
static double slowest(double us)
{
    double most = 0;

    times[rank * 16] = us;
    meet();
    for (int i = 0; i < ranks; i++)
        most = times[i * 16] > most ? times[i * 16] : most;
    meet();
    return most;
}

static double hops(void)
{
    double start = now_us();

    for (int i = 0; i < HOPS; i++) {
        atomic_store_explicit(&flags[rank].value, ++met, memory_order_release);
        await(1 - rank, met);
    }
    return (now_us() - start) / HOPS;
}

static void pass(float *restrict data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] += 1.0F;
}

static double passes(float *data, size_t count, int calls)
{
    meet();
    double start = now_us();
    for (int i = 0; i < calls; i++) {
        pass(data, count);
        atomic_signal_fence(memory_order_seq_cst);
    }
    return slowest((now_us() - start) / calls);
}

static void measure(const char *what, float *data, size_t bytes)
{
    double us[BATCHES], once = 1;

    if (data != NULL) {
        (void)passes(data, bytes / sizeof *data, 1);
        once = passes(data, bytes / sizeof *data, 2);
    }
    int calls = once < 0.1 ? BATCH_US * 10 : (int)(BATCH_US / once) + 1;
    for (int i = 0; i < BATCHES; i++)
        us[i] = data != NULL ? passes(data, bytes / sizeof *data, calls) : slowest(hops());
    qsort(us, BATCHES, sizeof *us, by_size);
    if (rank == 0)
        (void)printf("%s %zu %.4f\n", what, bytes, us[BATCHES / 2]);
}

static void pin(int cores)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % cores), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static void run(int argc, char **argv)
{
    if (ranks == 2)
        measure("hop", NULL, 0);
    for (int i = 2; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10), room = (bytes + 4095) / 4096 * 4096;
        float *data = aligned_alloc(4096, room);

        if (data == NULL)
            _exit(1);
        memset(data, 0, room);
        measure("limit", data, bytes);
        free(data);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), failed = 0, status;

    ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 1 || ranks > RANKS_MAX) {
        (void)fprintf(stderr, "usage: probe RANKS BYTES ...\n");
        return 2;
    }
    crowded = ranks > cores;
    flags = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (flags == MAP_FAILED)
        return 1;
    times = (double *)(void *)(flags + RANKS_MAX);
    for (rank = 1; rank < ranks; rank++)
        if (fork() == 0) {
            pin(cores);
            run(argc, argv);
            _exit(0);
        }
    rank = 0;
    pin(cores);
    run(argc, argv);
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
