/* A rank dies by SIGKILL inside of a call, and the others say how theirs ended:
 *
 *     ctrun --nproc_per_node 3 --max_restarts 1 kills OPERATION BACKEND VICTIM DELAY_US FILE
 *
 * All make the call again and again; DELAY_US after the victim has begun one, a thread of it writes
 * the time to FILE and kills the process. The others print code and time, free the group, compare
 * what they have open with what they had before (but after a first group, for UCX's worker stays
 * for the job), and regroup with the successor. */
#include <ctrun.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1 << 20, WARM = 3 };

static _Atomic int entered;
static _Atomic unsigned long long *died_ns;
static long delay_us;

static unsigned long long now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

static void *die(void *unused)
{
    (void)unused;
    while (atomic_load(&entered) == 0)
        ;
    unsigned long long at = now_ns() + (unsigned long long)delay_us * 1000;
    while (now_ns() < at)
        ;
    atomic_store(died_ns, now_ns());
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static int count_names(const char *folder)
{
    DIR *entries = opendir(folder);
    int count = 0;

    while (entries != NULL && readdir(entries) != NULL)
        count++;
    if (entries != NULL)
        (void)closedir(entries);
    return count;
}

/* Descriptors, threads, mappings that are shared with others. */
struct open {
    int descriptors, threads, shared;
};

static struct open count_open(void)
{
    struct open open = {count_names("/proc/self/fd"), count_names("/proc/self/task"), 0};
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[1024];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        open.shared += strstr(line, "s 0") != NULL && strchr(line, ' ')[4] == 's';
    if (maps != NULL)
        (void)fclose(maps);
    return open;
}

static int call(struct ct_group *group, const char *what, float *data)
{
    int rank = ct_group_rank(group), size = ct_group_size(group);
    struct ct_data whole = ct_inplace(data, COUNT, CT_F32);
    struct ct_data part = ct_inplace(data, COUNT / 4, CT_F32);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    struct ct_transfer both[] = {ct_transfer_to(next, data, COUNT, CT_F32),
                                 ct_transfer_from(last, data + COUNT, COUNT, CT_F32)};
    static const char *const names[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                        "reduce_scatter", "gather", "scatter",   "all_to_all",
                                        "exchange",       "barrier"};
    size_t i = 0;

    while (i < 9 && strcmp(names[i], what) != 0)
        i++;
    switch (i) {
    case 0:
        return ct_all_reduce(group, whole, CT_REDUCE_MAX, NULL);
    case 1: { /* a barrier makes the others wait for the root's, and it for theirs */
        int code = ct_reduce(group, whole, CT_REDUCE_MAX, 0, NULL);
        return code == 0 ? ct_barrier(group, NULL) : code;
    }
    case 2:
        return ct_broadcast(group, whole, 1 % size, NULL);
    case 3:
        return ct_all_gather(group, part, NULL);
    case 4:
        return ct_reduce_scatter(group, part, CT_REDUCE_MAX, NULL);
    case 5:
        return ct_gather(group, part, 0, NULL);
    case 6:
        return ct_scatter(group, part, 0, NULL);
    case 7:
        return ct_all_to_all(group, part, NULL);
    case 8:
        return ct_exchange(group, both, 2, NULL);
    default:
        return ct_barrier(group, NULL);
    }
}

/* Call until it fails, once all have formed the group; what it failed with. */
static int go_on(struct ct_group *group, const char *what, float *data, int is_victim)
{
    pthread_t thread;
    int code = ct_barrier(group, NULL);

    for (int i = 0; code == 0; i++) {
        if (is_victim && i == WARM) {
            (void)pthread_create(&thread, NULL, die, NULL);
            atomic_store(&entered, 1);
        }
        code = call(group, what, data);
    }
    return code;
}

/* A group that comes and goes, and what an engine opens once for such calls. */
static int warm_up(struct ct_job *job, const struct ct_group_options *options, const char *what,
                   float *data, struct ct_error *err)
{
    struct ct_group *group = NULL;
    int code = ct_group_new(job, options, &group, err);

    for (int i = 0; code == 0 && i < WARM; i++)
        code = call(group, what, data);
    if (code == 0)
        code = ct_barrier(group, NULL);
    ct_group_free(group);
    return code;
}

static int first_round(struct ct_job *job, char **argv, struct ct_error *err)
{
    const struct ct_assignment *me = ct_job_assignment(job);
    struct ct_group_options options = {.backend = argv[2]};
    float *data = calloc(2 * COUNT, sizeof *data);
    struct ct_group *group;
    int code = data == NULL ? -1 : warm_up(job, &options, argv[1], data, err);

    if (code != 0)
        return code;
    struct open before = count_open();
    code = ct_group_new(job, &options, &group, err);
    if (code != 0)
        return code;
    int ended = go_on(group, argv[1], data, me->rank == atoi(argv[3]));
    double after_ms = (double)(now_ns() - atomic_load(died_ns)) / 1e6;
    ct_group_free(group);
    struct open after = count_open();
    (void)printf("rank %d: %s after %.1f ms, left %d descriptors %d threads %d mappings\n",
                 me->rank, ct_error_name(ended), after_ms, after.descriptors - before.descriptors,
                 after.threads - before.threads, after.shared - before.shared);
    (void)fflush(stdout);
    free(data);
    struct ct_ready ready = {.lineage = 0};
    return ct_job_regroup(job, &ready, err);
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct ct_group *group = NULL;
    struct ct_job *job = NULL;

    if (argc < 6)
        return 2;
    delay_us = atol(argv[4]);
    int file = open(argv[5], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0)
        return 3;
    died_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int code = ct_job_open(&job, &err);
    if (code == 0)
        code = ct_job_survive(job);
    if (code == 0 && ct_job_assignment(job)->generation == 1)
        code = first_round(job, argv, &err);
    if (code == 0)
        code = ct_group_new(job, NULL, &group, &err);
    if (code == 0)
        code = ct_barrier(group, NULL);
    if (code == 0 && ct_group_rank(group) == 0)
        (void)printf("together again\n");
    if (code != 0)
        (void)fprintf(stderr, "kills: %s\n", err.text);
    ct_group_free(group);
    ct_job_close(job);
    return ct_exit_status(code);
}
