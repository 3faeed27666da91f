/* What collectives/backend takes for granted of NCCL without having seen it on a GPU, asked of the
 * NCCL and the GPU of this machine: two or three processes that share the GPU, each with an
 * NCCL_HOSTID of its own, so that NCCL takes them for machines.
 *
 *     nccl                    a line a fact: "holds", "does not hold" or "skipped", its name, a
 *                             sentence
 *     nccl FACT RANK ID ID    one of its processes (descriptor 3: see spawn); rank 0 prints
 *                             the line
 *
 * Status 0 whatever holds; 1 when a process could not be started. */
#include "backend/nccl/nccl_library.h"
#include "base/assert.h"
#include "base/clock.h"
#include "tensor/device.h"
#include "tensor/plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    IDS = 2,
    RANKS_MAX = 3,
    COUNT = 1024,
    LIMIT_S = 30,
    LIFE_FD = 3,
    HEX = 2 * CT_NCCL_ID_BYTES
};

enum verdict { HOLDS, FAILS, SKIPPED };
static const char *const verdicts[] = {"holds", "does not hold", "skipped"};

/* One process. */
struct rank {
    struct ct_nccl_library lib;
    const struct ct_accel *accel;
    struct ct_device *device;
    struct ct_nccl_comm *comm;
    struct ct_nccl_id ids[IDS];
    int number, size;
    void *stream, *event, *memory; /* COUNT floats */
};

/* ---- calls ---------------------------------------------------------------------------------- */

static double now_ms(void)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) / 1e6;
}

/* What the communicator comes to when it is not in progress any more; SIGALRM ends a long wait. */
static int finish_setup(struct rank *me, struct ct_nccl_comm *comm)
{
    int state = CT_NCCL_IN_PROGRESS;

    while (me->lib.ncclCommGetAsyncError(comm, &state) == CT_NCCL_SUCCESS &&
           state == CT_NCCL_IN_PROGRESS)
        (void)poll(NULL, 0, 1);
    return state;
}

static int settled(struct rank *me, int result, struct ct_nccl_comm *comm)
{
    return result == CT_NCCL_SUCCESS || result == CT_NCCL_IN_PROGRESS ? finish_setup(me, comm)
                                                                      : result;
}

static struct ct_nccl_config config(void)
{
    return (struct ct_nccl_config){.size = sizeof(struct ct_nccl_config),
                                   .magic = (unsigned)CT_NCCL_CONFIG_MAGIC,
                                   .version = CT_NCCL_CONFIG_VERSION,
                                   .cga_cluster_size = CT_NCCL_UNDEFINED,
                                   .min_ctas = CT_NCCL_UNDEFINED,
                                   .max_ctas = CT_NCCL_UNDEFINED};
}

static int reduce(struct rank *me, struct ct_nccl_comm *comm, void *memory)
{
    return settled(me,
                   me->lib.ncclAllReduce(memory, memory, COUNT, CT_NCCL_FLOAT32, CT_NCCL_SUM, comm,
                                         me->stream),
                   comm);
}

/* An all-reduce of `size` ranks that gives the right numbers; NCCL's result, or -1: it does not. */
static int sum(struct rank *me, struct ct_nccl_comm *comm, int size, void *memory)
{
    float values[COUNT];
    int result;

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(me->number + i);
    ct_device_copy_in(me->device, memory, values, sizeof values);
    result = reduce(me, comm, memory);
    if (result != CT_NCCL_SUCCESS ||
        me->accel->record(me->accel->context, me->event, me->stream) != 0)
        return result != CT_NCCL_SUCCESS ? result : -1;
    while (me->accel->query(me->accel->context, me->event) == 0)
        (void)poll(NULL, 0, 1);
    ct_device_copy_out(me->device, values, memory, sizeof values);
    for (int i = 0; i < COUNT; i++)
        if (values[i] != (float)(size * (size - 1) / 2 + size * i))
            return -1;
    return CT_NCCL_SUCCESS;
}

static int form(struct rank *me)
{
    struct ct_nccl_config request = config();
    int result =
        me->lib.ncclCommInitRankConfig(&me->comm, me->size, me->ids[0], me->number, &request);

    result = settled(me, result, me->comm);
    return result == CT_NCCL_SUCCESS ? sum(me, me->comm, me->size, me->memory) : result;
}

/* ---- facts ---------------------------------------------------------------------------------- */

/* The line's end; `result` is NCCL's, -1 wrong numbers. */
static enum verdict judge(struct rank *me, int result, char *text, size_t room, const char *what)
{
    if (result == CT_NCCL_SUCCESS)
        return HOLDS;
    (void)snprintf(text, room, "%s: %s", what,
                   result < 0 ? "wrong numbers" : me->lib.ncclGetErrorString(result));
    return FAILS;
}

static enum verdict several_ids(struct rank *me, char *text, size_t room)
{
    struct ct_nccl_config request = config();

    if (me->lib.ncclCommInitRankScalable == NULL)
        return SKIPPED;
    int result =
        me->lib.ncclCommInitRankScalable(&me->comm, me->size, me->number, IDS, me->ids, &request);
    result = settled(me, result, me->comm);
    if (result == CT_NCCL_SUCCESS)
        result = sum(me, me->comm, me->size, me->memory);
    (void)snprintf(text, room, "a communicator of %d ranks from %d ids adds right", me->size, IDS);
    return judge(me, result, text, room, "ncclCommInitRankScalable");
}

static enum verdict windows(struct rank *me, char *text, size_t room)
{
    struct ct_nccl_window *window = NULL;
    void *memory = NULL;

    if (me->lib.ncclCommWindowRegister == NULL)
        return SKIPPED;
    int result = form(me);
    if (result == CT_NCCL_SUCCESS)
        result = me->lib.ncclMemAlloc(&memory, COUNT * sizeof(float));
    if (result == CT_NCCL_SUCCESS)
        result = settled(me,
                         me->lib.ncclCommWindowRegister(me->comm, memory, COUNT * sizeof(float),
                                                        &window, CT_NCCL_WIN_SYMMETRIC),
                         me->comm);
    if (result == CT_NCCL_SUCCESS)
        result = sum(me, me->comm, me->size, memory);
    (void)snprintf(text, room, "memory of ncclMemAlloc is %s, and adds right",
                   window != NULL ? "registered" : "not registered, without an error");
    if (result == CT_NCCL_SUCCESS && window != NULL)
        result = me->lib.ncclCommWindowDeregister(me->comm, window);
    return judge(me, result, text, room, "windows");
}

/* A collective that the others never enter. */
static int hang(struct rank *me)
{
    int result = form(me);

    if (me->number > 0) /* it is alive, and does nothing, until it is killed */
        for (;;)
            (void)pause();
    return result == CT_NCCL_SUCCESS ? reduce(me, me->comm, me->memory) : result;
}

static enum verdict abort_in_flight(struct rank *me, char *text, size_t room)
{
    int result = hang(me);
    double begin = now_ms();

    if (result == CT_NCCL_SUCCESS)
        result = me->lib.ncclCommAbort(me->comm);
    (void)snprintf(text, room, "with a collective in flight ncclCommAbort returned in %.0f ms",
                   now_ms() - begin);
    return judge(me, result, text, room, "ncclCommAbort");
}

static enum verdict revoke_alone(struct rank *me, char *text, size_t room)
{
    if (me->lib.ncclCommRevoke == NULL)
        return SKIPPED;
    int result = hang(me);
    double begin = now_ms();

    if (result == CT_NCCL_SUCCESS)
        result = settled(me, me->lib.ncclCommRevoke(me->comm, 0), me->comm);
    (void)snprintf(text, room, "with a collective in flight it ended in %.0f ms, no peer helping",
                   now_ms() - begin);
    return judge(me, result, text, room, "ncclCommRevoke");
}

/* All but the last rank make a smaller communicator, of the right numbers. */
static enum verdict shrink(struct rank *me, char *text, size_t room)
{
    struct ct_nccl_config request = config();
    struct ct_nccl_comm *child = NULL;
    int lost = me->size - 1;
    int result = settled(
        me, me->lib.ncclCommShrink(me->comm, &lost, 1, &child, &request, CT_NCCL_SHRINK_DEFAULT),
        me->comm);

    if (result == CT_NCCL_SUCCESS)
        result = sum(me, child, me->size - 1, me->memory);
    (void)snprintf(text, room, "%d of %d ranks shrank their communicator, which adds right",
                   me->size - 1, me->size);
    return judge(me, result, text, room, "ncclCommShrink");
}

static enum verdict shrink_after_revoke(struct rank *me, char *text, size_t room)
{
    if (me->lib.ncclCommShrink == NULL || me->lib.ncclCommRevoke == NULL)
        return SKIPPED;
    int result = form(me);
    while (me->number == me->size - 1)
        (void)pause();
    if (result == CT_NCCL_SUCCESS)
        result = settled(me, me->lib.ncclCommRevoke(me->comm, 0), me->comm);
    return result == CT_NCCL_SUCCESS ? shrink(me, text, room)
                                     : judge(me, result, text, room, "ncclCommRevoke");
}

static enum verdict shrink_after_death(struct rank *me, char *text, size_t room)
{
    char byte;

    if (me->lib.ncclCommShrink == NULL)
        return SKIPPED;
    int result = form(me);
    if (me->number == me->size - 1)
        (void)raise(SIGKILL);
    while (read(LIFE_FD, &byte, 1) > 0) /* it ends with the last rank */
        continue;
    return result == CT_NCCL_SUCCESS ? shrink(me, text, room)
                                     : judge(me, result, text, room, "a communicator");
}

static const struct fact {
    const char *name;
    int ranks;
    enum verdict (*ask)(struct rank *me, char *text, size_t room);
} facts[] = {
    {"several_ids", 2, several_ids},
    {"windows", 2, windows},
    {"abort_in_flight", 2, abort_in_flight},
    {"revoke_alone", 2, revoke_alone},
    {"shrink_after_revoke", 3, shrink_after_revoke},
    {"shrink_after_death", 3, shrink_after_death},
};

static void print(const char *verdict, const char *name, const char *text)
{
    (void)printf("%-13s  %s: %s\n", verdict, name, text);
    (void)fflush(stdout);
}

/* ---- a process ------------------------------------------------------------------------------ */

/* 0, or the sentence of what is not here. */
static int open_all(struct rank *me, struct ct_error *err)
{
    const struct ct_device_request request = {.kind = CT_DEVICE_CUDA, .threads = 1};
    struct ct_error why = {0};
    int code = ct_nccl_library_load(&me->lib, err);

    if (code == 0)
        code = ct_device_open(&request, &me->device, &why, err);
    if (code == 0)
        me->accel = ct_device_accel(me->device);
    return code;
}

static int work(const struct fact *fact, char **words)
{
    static struct rank me;
    char text[512] = "this NCCL has no such function", host[32];
    struct ct_error err = {0};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LIMIT_S);
    me.number = atoi(words[0]);
    me.size = fact->ranks;
    for (int i = 0; i < IDS; i++)
        for (int at = 0; at < CT_NCCL_ID_BYTES; at++) {
            unsigned byte = 0;
            (void)sscanf(words[1 + i] + 2 * (size_t)at, "%2x", &byte);
            me.ids[i].internal[at] = (char)byte;
        }
    (void)snprintf(host, sizeof host, "ctrun-%d", me.number);
    (void)setenv("NCCL_HOSTID", host, 1);
    if (open_all(&me, &err) != 0 || me.accel->enter(me.accel->context) != 0 ||
        me.accel->event_new(me.accel->context, &me.event) != 0 ||
        ct_device_alloc(me.device, COUNT * sizeof(float), &me.memory, &err) != 0) {
        print(verdicts[FAILS], fact->name, err.text);
        _exit(1);
    }
    me.stream = ct_device_stream(me.device); /* copies are in order with collectives */
    enum verdict verdict = fact->ask(&me, text, sizeof text);
    if (me.number == 0)
        print(verdicts[verdict], fact->name, text);
    while (me.number > 0) /* a process that ends would be seen by the others */
        (void)pause();
    _exit(0); /* what is under way is nobody's business any more */
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* One rank; descriptor 3 is an end of a pipe: its other end lives as long as the last rank. */
static pid_t spawn(const struct fact *fact, int number, const int life[2], char hex[IDS][HEX + 1])
{
    char self[] = "/proc/self/exe", rank[16];
    char *argv[] = {self, (char *)(uintptr_t)fact->name, rank, hex[0], hex[1], NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;

    (void)snprintf(rank, sizeof rank, "%d", number);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, life[number == fact->ranks - 1], LIFE_FD);
    if (posix_spawn(&pid, self, &actions, NULL, argv, environ) != 0)
        pid = -1;
    (void)posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* Its line, by its rank 0, or by this process when that one did not come to it. */
static bool ask(const struct fact *fact, const struct ct_nccl_library *lib)
{
    char hex[IDS][HEX + 1], text[128];
    pid_t pids[RANKS_MAX] = {-1, -1, -1};
    struct ct_nccl_id id;
    int life[2] = {-1, -1}, status = 0;
    bool started = pipe2(life, O_CLOEXEC) == 0;

    for (int i = 0; i < IDS && started; i++) {
        started = lib->ncclGetUniqueId(&id) == CT_NCCL_SUCCESS;
        for (int at = 0; at < CT_NCCL_ID_BYTES; at++)
            (void)snprintf(hex[i] + 2 * (size_t)at, 3, "%02x", (unsigned char)id.internal[at]);
    }
    for (int i = 0; i < fact->ranks; i++) {
        pids[i] = started ? spawn(fact, i, life, hex) : -1;
        started = started && pids[i] > 0;
    }
    (void)close(life[0]);
    (void)close(life[1]);
    if (started)
        (void)waitpid(pids[0], &status, 0);
    for (int i = started ? 1 : 0; i < fact->ranks; i++)
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
            (void)waitpid(pids[i], NULL, 0);
        }
    if (started && WIFSIGNALED(status)) {
        (void)snprintf(text, sizeof text, "rank 0 was killed by signal %d%s", WTERMSIG(status),
                       WTERMSIG(status) == SIGALRM ? ": it has waited for 30 s" : "");
        print(verdicts[FAILS], fact->name, text);
    }
    return started;
}

/* As the ranks of one GPU need it; the user's own words count more. */
static void prepare(void)
{
    static const char *const words[][2] = {
        {"NCCL_P2P_DISABLE", "1"},    {"NCCL_SHM_DISABLE", "1"},  {"NCCL_NET", "Socket"},
        {"NCCL_IB_DISABLE", "1"},     {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NVLS_ENABLE", "0"},
        {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_RAS_ENABLE", "0"},   {"NCCL_MAX_CTAS", "2"},
    };

    for (size_t i = 0; i < CT_COUNT(words); i++)
        (void)setenv(words[i][0], words[i][1], 0);
}

int main(int argc, char **argv)
{
    static struct rank here;
    struct ct_error err = {0};
    bool started = true;

    for (size_t i = 0; i < CT_COUNT(facts) && argc == 3 + IDS; i++)
        if (strcmp(argv[1], facts[i].name) == 0)
            return work(&facts[i], argv + 2);
    if (argc > 1) {
        (void)fprintf(stderr, "usage: nccl\n");
        return 2;
    }
    prepare();
    bool skipped = open_all(&here, &err) != 0;
    for (size_t i = 0; i < CT_COUNT(facts); i++)
        if (skipped)
            print(verdicts[SKIPPED], facts[i].name, err.text);
        else
            started = ask(&facts[i], &here.lib) && started;
    return started ? 0 : 1;
}
