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

enum {
    BATCHES = 9,
    HOPS = 2000,
    BATCH_US = 4000,
    RANKS_MAX = 64,
    LINE = 128,
    CALLS_MAX = 1000,
    BLOCK = 4,   /* lines */
    AHEAD = 1024 /* bytes: asked for by who will change them, so that they travel once */
};

struct flag {
    _Atomic uint64_t value;
    char rest[LINE - sizeof(uint64_t)];
};

static struct flag *flags; /* one a rank */
static double *times;      /* one a rank, of the last batch */
static char *shared;       /* `room` bytes a rank, one behind the other */
static size_t room;
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

/* A cache line. */
typedef float vector __attribute__((vector_size(64)));

static vector *line_of(int who, size_t line)
{
    return (vector *)(void *)(shared + (size_t)who * room) + line;
}

/* So many cache lines of all ranks: read, added up, written to one after the other, which is a
 * quarter faster than each line to all. `lines` is a constant for all but the last. */
static inline __attribute__((always_inline)) void sum_block(size_t at, size_t lines)
{
    vector sum[BLOCK];

    for (int r = 0; r < ranks; r++)
        for (size_t k = 0; r != rank && k < lines; k++)
            __builtin_prefetch((char *)line_of(r, at + k) + AHEAD, 1);
    for (size_t k = 0; k < lines; k++)
        sum[k] = *line_of(0, at + k);
    for (int r = 1; r < ranks; r++)
        for (size_t k = 0; k < lines; k++)
            sum[k] += *line_of(r, at + k);
    for (int r = 0; r < ranks; r++)
        for (size_t k = 0; k < lines; k++)
            *line_of((rank + r) % ranks, at + k) = sum[k];
}

static void sum_share(size_t from, size_t to)
{
    size_t at = from;

    for (; to - at >= BLOCK && at < to; at += BLOCK)
        sum_block(at, BLOCK);
    for (; at < to; at++)
        sum_block(at, 1);
}

/* One all_reduce. */
static double all_reduce(size_t bytes)
{
    size_t lines = (bytes + 63) / 64, share = (lines + (size_t)ranks - 1) / (size_t)ranks;
    size_t from = (size_t)rank * share, end = from + share < lines ? from + share : lines;
    float *own = (float *)(void *)line_of(rank, 0);

    for (size_t i = 0; i < lines * 16; i++)
        own[i] = (float)rank;
    meet();
    double start = now_us();
    sum_share(from, end);
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

    ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 1 || ranks > RANKS_MAX) {
        (void)fprintf(stderr, "usage: probe RANKS BYTES ...\n");
        return 2;
    }
    crowded = ranks > cores;
    flags = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 2; i < argc; i++)
        room = strtoull(argv[i], NULL, 10) > room ? strtoull(argv[i], NULL, 10) : room;
    room = (room + 4095) / 4096 * 4096;
    shared = mmap(NULL, (size_t)ranks * room + AHEAD, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (flags == MAP_FAILED || shared == MAP_FAILED)
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
