/* Groups: members, names, backends, creation that fails, and nothing left behind. */
#include "base/assert.h"
#include "base/str.h"
#include "job/job.h"
#include "rig.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

TestSuite(group, .timeout = 60);

static int run_world(int size, int (*body)(struct ct_job *job, void *context), void *context)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(size, &world), 0);
    int line = thread_ranks_run(world, body, context);
    ct_thread_world_free(world);
    return line;
}

/* The sum of the members' ranks in the job. */
static int sum_of_ranks(struct ct_group *group, int rank)
{
    int sum = rank;

    return ct_all_reduce(group, ct_inplace(&sum, 1, CT_I32), CT_REDUCE_SUM, NULL) == 0 ? sum : -1;
}

/* ---- members ---------------------------------------------------------------------------------*/

static int split_by_parity(struct ct_job *job, void *context)
{
    static const int members[2][3] = {{0, 2, 4}, {1, 3, -1}};
    int rank = ct_job_assignment(job)->rank, half = rank % 2;
    struct ct_group_options options = {.name = half == 0 ? "even" : "odd",
                                       .ranks = members[half],
                                       .nranks = half == 0 ? 3 : 2,
                                       .backend = context};
    struct ct_group *all = NULL, *part = NULL;
    int line = 0;

    if (ct_group_new(job, &options, &part, NULL) != 0 || ct_group_new(job, NULL, &all, NULL) != 0)
        line = __LINE__;
    else if (ct_group_size(part) != (half == 0 ? 3 : 2) || ct_group_rank(part) != rank / 2)
        line = __LINE__;
    else if (sum_of_ranks(part, rank) != (half == 0 ? 6 : 4) || sum_of_ranks(all, rank) != 10)
        line = __LINE__;
    ct_group_free(part);
    ct_group_free(all);
    return line;
}

Test(group, a_subset_of_ranks_is_a_group_of_its_own)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        cr_assert_eq(run_world(5, split_by_parity, (void *)(uintptr_t)rig_backends[i]), 0);
}

static int choose_backend(struct ct_job *job, void *context)
{
    int me = ct_job_assignment(job)->rank;
    struct ct_group_options alone = {.ranks = &me, .nranks = 1, .name = "alone", .backend = "tcp"};
    struct ct_group *group = NULL, *own = NULL;
    int line = 0;

    (void)context;
    if (ct_group_new(job, NULL, &group, NULL) != 0 || ct_group_new(job, &alone, &own, NULL) != 0)
        line = __LINE__;
    else if (strcmp(ct_group_backend(group), "thread") != 0)
        line = __LINE__;
    else if (strcmp(ct_group_backend(own), "self") != 0 || sum_of_ranks(own, me) != me)
        line = __LINE__;
    ct_group_free(group);
    ct_group_free(own);
    return line;
}

Test(group, the_first_backend_that_suits_is_taken)
{
    cr_assert_eq(run_world(2, choose_backend, NULL), 0);
}

/* Two groups of one job, each with a thread of its own, at the same time. */
struct worker {
    struct ct_group *group;
    int rank;
    int64_t bad;
};

static void *count_up(void *argument)
{
    struct worker *worker = argument;

    for (int i = 0; i < 200; i++)
        worker->bad += sum_of_ranks(worker->group, worker->rank) != 3;
    return NULL;
}

static int two_at_once(struct ct_job *job, void *context)
{
    struct ct_group_options first = {.name = "first", .backend = context};
    struct ct_group_options second = {.name = "second", .backend = context};
    struct worker workers[2] = {{.rank = ct_job_assignment(job)->rank},
                                {.rank = ct_job_assignment(job)->rank}};
    pthread_t thread;

    if (ct_group_new(job, &first, &workers[0].group, NULL) != 0 ||
        ct_group_new(job, &second, &workers[1].group, NULL) != 0 ||
        pthread_create(&thread, NULL, count_up, &workers[1]) != 0)
        return __LINE__;
    (void)count_up(&workers[0]);
    (void)pthread_join(thread, NULL);
    ct_group_free(workers[0].group);
    ct_group_free(workers[1].group);
    return workers[0].bad + workers[1].bad == 0 ? 0 : __LINE__;
}

Test(group, groups_are_independent_of_each_other)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        cr_assert_eq(run_world(3, two_at_once, (void *)(uintptr_t)rig_backends[i]), 0);
}

/* ---- creation that fails ---------------------------------------------------------------------*/

static int ask_for(struct ct_job *job, void *context)
{
    const struct ct_group_options *options = context;
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    int code = ct_group_new(job, options, &group, &err);

    return code == CT_EUSAGE && group == NULL && err.text[0] != '\0' ? 0 : __LINE__;
}

Test(group, wrong_options_are_refused_with_a_sentence)
{
    static const int twice[] = {0, 0}, beyond[] = {0, 1, 2}, without_0[] = {1};
    char long_name[100];
    struct ct_group_options wrong[] = {{.backend = "pigeon"},
                                       {.ranks = twice, .nranks = 2},
                                       {.ranks = beyond, .nranks = 3},
                                       {.ranks = beyond, .nranks = 0},
                                       {.name = long_name}};
    struct ct_group_options others = {.ranks = without_0, .nranks = 1};
    struct ct_thread_world *world;

    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    for (size_t i = 0; i < CT_COUNT(wrong); i++)
        cr_assert_eq(run_world(2, ask_for, &wrong[i]), 0, "options %zu", i);
    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    cr_assert_eq(ask_for(ct_thread_world_job(world, 0), &others), 0);
    ct_thread_world_free(world);
}

static int come_without_rank_1(struct ct_job *job, void *context)
{
    struct ct_group_options options = {.timeout_ms = 50, .backend = context};
    struct ct_group *group = NULL;
    struct ct_error err = {0};

    if (ct_job_assignment(job)->rank == 1)
        return 0;
    if (ct_group_new(job, &options, &group, &err) != CT_ETIMEOUT)
        return __LINE__;
    return strstr(err.text, "rank 1") != NULL ? 0 : __LINE__;
}

Test(group, a_member_that_does_not_come_is_named)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        cr_assert_eq(run_world(3, come_without_rank_1, (void *)(uintptr_t)rig_backends[i]), 0);
}

static int form_in_a_revoked_round(struct ct_job *job, void *context)
{
    struct ct_group *group = NULL;

    if (ct_job_assignment(job)->rank == 1) {
        ct_thread_world_revoke(context);
        return 0;
    }
    return ct_group_new(job, NULL, &group, NULL) == CT_EREVOKED ? 0 : __LINE__;
}

Test(group, a_revoked_round_forms_no_group)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    cr_assert_eq(thread_ranks_run(world, form_in_a_revoked_round, world), 0);
    ct_thread_world_free(world);
}

/* The same job, each of its two ranks on a node of its own. */
static struct ct_job on_two_nodes(const struct ct_job *job, const char *address_of_rank_1)
{
    static struct ct_job_node nodes[2] = {{.first_rank = 0, .slots = 1},
                                          {.first_rank = 1, .slots = 1}};
    struct ct_job moved = *job;

    moved.nodes = nodes;
    moved.assignment.nnodes = 2;
    moved.world = NULL;
    if (job->assignment.rank == 1)
        (void)ct_str_copy(moved.address, sizeof moved.address, address_of_rank_1);
    return moved;
}

/* Rank 1 believes to live on another node: it does not see the segment's backend as suitable. The
 * group must not form half; here rank 1's node has no address, so tcp fails at it, and for all. */
static int live_on_two_nodes(struct ct_job *job, void *context)
{
    struct ct_job moved = on_two_nodes(job, "");
    struct ct_group *group = NULL;
    struct ct_error err = {0};

    (void)context;
    int code = ct_group_new(&moved, NULL, &group, &err);
    return code == CT_EUNSUPPORTED && strstr(err.text, "rank 1") != NULL ? 0 : __LINE__;
}

Test(group, one_members_failure_is_everyones_in_the_same_words)
{
    cr_assert_eq(run_world(2, live_on_two_nodes, NULL), 0);
}

static int live_on_two_addresses(struct ct_job *job, void *context)
{
    struct ct_job moved = on_two_nodes(job, "127.0.0.2");
    struct ct_group *group = NULL;
    int line = 0;

    (void)context;
    if (ct_group_new(&moved, NULL, &group, NULL) != 0)
        return __LINE__;
    if (strcmp(ct_group_backend(group), "tcp") != 0 || sum_of_ranks(group, 1) != 2)
        line = __LINE__;
    ct_group_free(group);
    return line;
}

Test(group, ranks_on_several_nodes_take_tcp_on_their_addresses)
{
    cr_assert_eq(run_world(2, live_on_two_addresses, NULL), 0);
}

enum { HEAD_BYTES = 264 + 4 + 2, ADDRESS_BYTES = 16 };

/* Rank 1 reads no address of rank 0, so it cannot dial it, while rank 0 waits to be dialled. */
static int read_without_rank_0(void *context, const char *key, struct ct_kv_value *value,
                               uint64_t timeout_ms)
{
    const struct ct_kv *real = context;
    int code = real->wait(real->context, key, value, timeout_ms);

    /* Its blob is the first behind the head. */
    if (code == 0 && strstr(key, "/found/all") != NULL)
        memset((char *)value->data + HEAD_BYTES, 0, ADDRESS_BYTES);
    return code;
}

static int set_as_ever(void *context, const char *key, const void *value, size_t size)
{
    const struct ct_kv *real = context;

    return real->set(real->context, key, value, size);
}

static int fail_to_dial(struct ct_job *job, void *context)
{
    struct ct_job moved = on_two_nodes(job, "127.0.0.2");
    struct ct_kv real = job->kv;
    struct ct_group *group = NULL;
    struct ct_error err = {0};

    (void)context;
    if (ct_job_assignment(job)->rank == 1)
        moved.kv =
            (struct ct_kv){.set = set_as_ever, .wait = read_without_rank_0, .context = &real};
    if (ct_group_new(&moved, NULL, &group, &err) != CT_EUNAVAILABLE)
        return __LINE__;
    return strstr(err.text, "rank 1 cannot connect to rank 0") != NULL ? 0 : __LINE__;
}

Test(group, who_cannot_connect_keeps_nobody_waiting)
{
    cr_assert_eq(run_world(2, fail_to_dial, NULL), 0);
}

/* ---- nothing is left behind ------------------------------------------------------------------*/

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    cr_assert_not_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

static int count_segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:ctrun-group") != NULL;
    (void)fclose(maps);
    return count;
}

static int make_and_free(struct ct_job *job, void *context)
{
    struct ct_group_options options = {.backend = context};

    for (int i = 0; i < 20; i++) {
        struct ct_group *group;

        if (ct_group_new(job, &options, &group, NULL) != 0)
            return __LINE__;
        int sum = sum_of_ranks(group, 1);
        ct_group_free(group);
        if (sum != 2)
            return __LINE__;
    }
    return 0;
}

Test(group, groups_that_come_and_go_leave_no_descriptor_and_no_segment)
{
    int descriptors = count_descriptors();

    for (size_t i = 0; i < (size_t)rig_backend_count(); i++)
        cr_assert_eq(run_world(2, make_and_free, (void *)(uintptr_t)rig_backends[i]), 0);
    cr_assert_eq(count_descriptors(), descriptors);
    cr_assert_eq(count_segments(), 0);
}

static int hold_no_descriptor(struct ct_job *job, void *context)
{
    struct ct_group_options options = {.backend = "shm"};
    struct ct_group *group;
    int before = *(int *)context, line = 0;

    if (ct_group_new(job, &options, &group, NULL) != 0)
        return __LINE__;
    if (ct_barrier(group, NULL) != 0 || count_descriptors() != before)
        line = __LINE__;
    line = ct_barrier(group, NULL) == 0 ? line : __LINE__;
    ct_group_free(group);
    return line;
}

/* The folder's own descriptors of two ranks that look at once would be counted: one rank looks. */
static int only_rank_0_looks(struct ct_job *job, void *context)
{
    struct ct_group_options options = {.backend = "shm"};
    struct ct_group *group;

    if (ct_job_assignment(job)->rank == 0)
        return hold_no_descriptor(job, context);
    if (ct_group_new(job, &options, &group, NULL) != 0)
        return __LINE__;
    int bad = ct_barrier(group, NULL) | ct_barrier(group, NULL);
    ct_group_free(group);
    return bad == 0 ? 0 : __LINE__;
}

Test(group, a_segment_has_no_descriptor_once_all_have_mapped_it)
{
    int before = count_descriptors();

    cr_assert_eq(run_world(2, only_rank_0_looks, &before), 0);
}
