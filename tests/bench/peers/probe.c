/* What the machine allows, for as many ranks as are asked for, each a process on a core of its own.
 *
 *     probe RANKS BYTES ...
 *
 * "hop 0 US", when there are two ranks: a cache line's way from one core to the other.
 * "pass BYTES US", a line a size: all ranks at once read and write BYTES of their own, in place,
 * again and again: what each has, it finds in its own cache.
 * "limit BYTES US": what an all_reduce in place has to move when its data are fresh, as gradients
 * are. Each rank writes BYTES of its own, all meet; then a rank reads its share of everyone's
 * bytes, which lie changed in the others' caches, and writes the sum to everyone; it is over when
 * all have. Nothing can move less: whoever adds up an element needs all ranks' values of it, and
 * all ranks need the sum. Medians; with more ranks than cores those of a core follow one another.
 * Wants -O3 -march=native: 16 numbers at a time. */
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BATCHES = 9,
    HOPS = 2000,
    BATCH_US = 4000,
    CALLS_MAX = 1000,
};

static struct bare bare;
static double *times; /* one a rank, of the last batch */
static char *shared;  /* `room` bytes a rank, one behind the other */
static size_t room;
static int ranks, rank;

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

static void meet(void)
{
    bare_meet(&bare);
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

    for (int i = 0; i < HOPS; i++)
        bare_hop(&bare);
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

static void measure_hop(void)
{
    double us[BATCHES];

    for (int i = 0; i < BATCHES; i++)
        us[i] = slowest(hops());
    qsort(us, BATCHES, sizeof *us, by_size);
    if (rank == 0)
        (void)printf("hop 0 %.4f\n", us[BATCHES / 2]);
}

static void measure_pass(float *data, size_t bytes)
{
    double us[BATCHES];

    (void)passes(data, bytes / sizeof *data, 1);
    double once = passes(data, bytes / sizeof *data, 2);
    int calls = once < 0.1 ? BATCH_US * 10 : (int)(BATCH_US / once) + 1;
    for (int i = 0; i < BATCHES; i++)
        us[i] = passes(data, bytes / sizeof *data, calls);
    qsort(us, BATCHES, sizeof *us, by_size);
    if (rank == 0)
        (void)printf("pass %zu %.4f\n", bytes, us[BATCHES / 2]);
}

/* One all_reduce. */
static double all_reduce(size_t bytes)
{
    float *own = (float *)(void *)bare.data[rank];

    for (size_t i = 0; i < bytes / sizeof *own; i++)
        own[i] = (float)rank;
    meet();
    double start = now_us();
    bare_sum(&bare, bytes);
    meet();
    return now_us() - start;
}

static void measure_limit(size_t bytes)
{
    static double us[CALLS_MAX];

    (void)slowest(all_reduce(bytes));
    double once = slowest(all_reduce(bytes));
    int calls = (int)(BATCHES * BATCH_US / once);
    calls = calls < BATCHES ? BATCHES : calls > CALLS_MAX ? CALLS_MAX : calls;
    for (int i = 0; i < calls; i++)
        us[i] = slowest(all_reduce(bytes));
    qsort(us, (size_t)calls, sizeof *us, by_size);
    if (rank == 0)
        (void)printf("limit %zu %.4f\n", bytes, us[calls / 2]);
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
    bare.rank = rank;
    if (ranks == 2)
        measure_hop();
    for (int i = 2; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        float *data = aligned_alloc(4096, room);

        if (data == NULL)
            _exit(1);
        memset(data, 0, room);
        measure_pass(data, bytes);
        free(data);
        measure_limit(bytes);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), failed = 0, status;
    struct bare_flag *flags;

    ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 1 || ranks > BARE_RANKS_MAX) {
        (void)fprintf(stderr, "usage: probe RANKS BYTES ...\n");
        return 2;
    }
    flags = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 2; i < argc; i++)
        room = strtoull(argv[i], NULL, 10) > room ? strtoull(argv[i], NULL, 10) : room;
    room = (room + 4095) / 4096 * 4096;
    shared = mmap(NULL, (size_t)ranks * room + BARE_AHEAD, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (flags == MAP_FAILED || shared == MAP_FAILED)
        return 1;
    times = (double *)(void *)(flags + BARE_RANKS_MAX);
    bare = (struct bare){.ranks = ranks, .crowded = ranks > cores};
    for (int i = 0; i < ranks; i++) {
        bare.flags[i] = flags + i;
        bare.data[i] = shared + (size_t)i * room;
    }
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
