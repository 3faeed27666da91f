/* Ranks that are spread over several caches and sockets: which domains they make, and that what
 * goes by domains comes to the same, in the same bits, as what does not. */
#include "algorithm/domains.h"
#include "backend/local/local.h"
#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "buffer.h"
#include "conform.h"
#include "reference.h"
#include "rig.h"
#include "sanitized.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(domains, .timeout = 60);

enum { WORLD = 12, CORES = 24 };

/* ---- which domains ---------------------------------------------------------------------------*/

/* `text`: a letter a rank for its cache; those of a socket lie in the same half of the alphabet; a
 * dash: on several of both. */
static int seats_of(const char *text, struct ct_seat *seats)
{
    int size = (int)strlen(text);

    for (int i = 0; i < size; i++)
        seats[i] = text[i] == '-' ? (struct ct_seat){-1, -1}
                                  : (struct ct_seat){text[i], text[i] < 'n' ? 0 : 1};
    return size;
}

Test(domains, ranks_are_grouped_by_cache_or_else_by_socket_or_else_not)
{
    static const struct {
        const char *seats;
        int count, first[CT_DOMAINS_MAX];
    } rows[] = {
        {"aaabbbxxxyyy", 4, {0, 3, 6, 9}},
        {"aaaaaaaaaaaa", 1, {0}},
        {"aaaaaaaaaxxx", 2, {0, 9}},
        {"abcdefuvwxyz", 2, {0, 6}}, /* a cache a rank: by socket */
        {"aabbccddeexxyyzz", 8, {0, 2, 4, 6, 8, 10, 12, 14}},
        {"aabbccddeeffxxyyzz", 2, {0, 12}}, /* more caches than may be domains */
        {"axaxaxaxaxax", 1, {0}},           /* neighbours share nothing */
        {"aaaxxxaaaxxx", 4, {0, 3, 6, 9}},  /* runs: a cache twice is two domains */
        {"aaabbbxxx-yy", 1, {0}},           /* one may run anywhere */
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_seat seats[32];
        int size = seats_of(rows[i].seats, seats);
        struct ct_domains domains = ct_domains_of(seats, size);

        cr_assert_eq(domains.count, rows[i].count, "%s", rows[i].seats);
        cr_assert_eq(domains.first[domains.count], size);
        for (int d = 0; d < domains.count; d++)
            cr_assert_eq(domains.first[d], rows[i].first[d], "%s", rows[i].seats);
        for (int rank = 0; rank < size; rank++) {
            int d = ct_domains_find(&domains, rank);

            cr_assert(domains.first[d] <= rank && rank < domains.first[d + 1]);
        }
    }
}

/* ---- the machine's files ---------------------------------------------------------------------*/

static void put(const char *folder, int core, const char *file, const char *text)
{
    struct ct_error err = {0};
    char path[256], parent[256];

    (void)snprintf(path, sizeof path, "%s/cpu%d/%s", folder, core, file);
    (void)ct_str_copy(parent, sizeof parent, path);
    *strrchr(parent, '/') = '\0';
    cr_assert_eq(ct_fs_make_dirs(parent, &err), 0);
    cr_assert_eq(ct_fs_replace(path, text, strlen(text), &err), 0);
}

/* Two sockets of two caches of six cores, numbered as real ones are: the second threads of all
 * cores come behind the first ones of all. */
static void make_machine(const char *folder)
{
    for (int core = 0; core < CORES; core++) {
        int cache = core % 12 / 3;
        char own[32], shared[64];

        (void)snprintf(own, sizeof own, "%d,%d\n", core % 12, core % 12 + 12);
        (void)snprintf(shared, sizeof shared, "%d-%d,%d-%d\n", 3 * cache, 3 * cache + 2,
                       3 * cache + 12, 3 * cache + 14);
        put(folder, core, "topology/physical_package_id", core % 12 < 6 ? "0\n" : "1\n");
        put(folder, core, "cache/index0/level", "1\n");
        put(folder, core, "cache/index0/shared_cpu_list", own);
        put(folder, core, "cache/index1/level", "3\n");
        put(folder, core, "cache/index1/shared_cpu_list", shared);
        put(folder, core, "cache/index2/level", "2\n");
        put(folder, core, "cache/index2/shared_cpu_list", own);
    }
}

static struct ct_seat seat_on(const char *folder, uint64_t cores)
{
    uint64_t cpus[CT_SEAT_WORDS] = {cores};

    return ct_seat_of(folder, cpus);
}

Test(domains, a_rank_sits_where_all_its_cores_are)
{
    static const struct {
        uint64_t cores;
        struct ct_seat seat;
    } rows[] = {
        {1 << 0, {0, 0}},
        {1 << 13 | 1 << 2, {0, 0}},
        {1 << 4, {3, 0}},
        {1 << 23, {9, 1}},
        {1 << 2 | 1 << 3, {-1, 0}},
        {0xfff000, {-1, -1}},
        {1 << 5 | 1 << 6, {-1, -1}},
        {1 << 30, {-1, -1}},
        {0, {-1, -1}},
    };
    char folder[] = "/tmp/ctrun-domains-XXXXXX";

    cr_assert_not_null(mkdtemp(folder));
    make_machine(folder);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_seat seat = seat_on(folder, rows[i].cores);

        cr_assert_eq(seat.cache, rows[i].seat.cache, "row %zu: %d", i, seat.cache);
        cr_assert_eq(seat.socket, rows[i].seat.socket, "row %zu: %d", i, seat.socket);
    }
    put(folder, 7, "topology/physical_package_id", "what\n");
    cr_assert_eq(seat_on(folder, 1 << 7).socket, -1);
    cr_assert_eq(ct_fs_remove_tree(folder), 0);
}

/* ---- what goes by domains --------------------------------------------------------------------*/

/* Two sockets of two caches, unevenly shared; evenly; one socket of more caches than the other; by
 * sockets alone. Sanitizers get the first. */
static const char *const layouts[] = {"aabbbbbxxyyy", "aaabbbxxxyyy", "aabbccddxyyy",
                                      "abcdefuvwxyz"};
enum { LAYOUTS = SANITIZED ? 1 : CT_COUNT(layouts) };

static struct rig rig_at(const char *layout, struct ct_seat *seats)
{
    struct rig rig = {.backend = "thread", .world = seats_of(layout, seats), .seats = seats};

    return rig;
}

static int check_all(struct ct_group *group, struct rig *rig)
{
    const struct ct_local *local = group->state;
    int line = local->domains.count > 1 ? 0 : __LINE__;

    (void)rig;
    line = line != 0 ? line : conform_reductions(group);
    line = line != 0 ? line : conform_moves(group);
    return line != 0 ? line : conform_parts(group);
}

static int check_all_symmetric(struct ct_group *group, struct rig *rig)
{
    void *memory;

    if (ct_mem_alloc(group->job, 1 << 20, &memory, NULL) != 0)
        return __LINE__;
    buffers_from(memory, 1 << 20);
    int line = check_all(group, rig);
    buffers_from(NULL, 0);
    ct_mem_free(group->job, memory);
    return line;
}

ParameterizedTestParameters(domains, twelve_ranks_on_two_sockets_equal_the_reference)
{
    static int numbers[] = {0, 1, 2, 3};

    return cr_make_param_array(int, numbers, LAYOUTS);
}
ParameterizedTest(int *index, domains, twelve_ranks_on_two_sockets_equal_the_reference)
{
    struct ct_seat seats[WORLD];
    struct rig rig = rig_at(layouts[*index], seats);

    rig.tuning = tiny;
    rig.tuning.local_domains_bytes = 64;
    cr_assert_eq(rig_run(&rig, check_all), 0);
    cr_assert_eq(rig_run(&rig, check_all_symmetric), 0);
}

/* ---- the same bits ---------------------------------------------------------------------------*/

enum { COUNT = 20011 };

struct sums {
    float of[3][COUNT]; /* a mode */
    bool symmetric;
    enum ct_algorithm way[3];
};

static int add_up(struct ct_group *group, struct rig *rig)
{
    struct sums *sums = rig->shared;
    int rank = ct_group_rank(group), line = 0;
    void *memory = NULL;
    float *data;

    if (ct_mem_alloc(group->job, COUNT * sizeof *data, &memory, NULL) != 0)
        return __LINE__;
    data = sums->symmetric ? memory : malloc(COUNT * sizeof *data);
    for (int mode = 0; mode < 3 && line == 0; mode++) {
        struct ct_options options = {.mode = (enum ct_reduce_mode)mode};

        for (size_t i = 0; i < COUNT; i++)
            reference_input(CT_F32, rank, i, &data[i]);
        if (ct_all_reduce(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_AVG, &options) != 0)
            line = __LINE__;
        if (rank == WORLD / 2)
            memcpy(sums->of[mode], data, COUNT * sizeof *data);
        if (rank == WORLD / 2)
            sums->way[mode] = group->last;
        if (line == 0 && ct_barrier(group, NULL) != 0)
            line = __LINE__;
    }
    if (!sums->symmetric)
        free(data);
    ct_mem_free(group->job, memory);
    return line;
}

/* By domains, and with so many ranks that are none too many for one. */
Test(domains, sums_have_the_bits_of_ranks_in_one_domain)
{
    static struct sums apart, together;
    struct ct_seat seats[WORLD];

    for (size_t i = 0; i < 2 * (size_t)LAYOUTS; i++) {
        struct rig rig = rig_at(layouts[i / 2], seats);

        apart.symmetric = together.symmetric = i % 2 == 1;
        rig.tuning.local_chunk_bytes = 16 << 10;
        rig.shared = &apart;
        cr_assert_eq(rig_run(&rig, add_up), 0);
        rig.tuning.local_domains_world = WORLD;
        rig.shared = &together;
        cr_assert_eq(rig_run(&rig, add_up), 0);
        cr_assert_arr_eq(apart.of, together.of, sizeof apart.of, "%s", layouts[i / 2]);
        cr_assert_eq(apart.way[CT_MODE_REPRODUCIBLE],
                     i % 2 == 1 ? CT_ALGO_DOMAINS_IN_PLACE : CT_ALGO_DOMAINS);
        cr_assert_eq(together.way[CT_MODE_REPRODUCIBLE],
                     i % 2 == 1 ? CT_ALGO_IN_PLACE : CT_ALGO_PIPELINE);
        cr_assert_eq(apart.way[CT_MODE_INVARIANT], together.way[CT_MODE_INVARIANT]);
    }
}

/* ---- what is called differently --------------------------------------------------------------*/

/* Ranks 0 to 4 find a barrier where the others find a broadcast. */
static int disagree(struct ct_group *group, struct rig *rig)
{
    char data[100] = {0};
    int code;

    (void)rig;
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    if (ct_group_rank(group) < 5)
        code = ct_barrier(group, NULL);
    else
        code = ct_all_gather(group, ct_from_to(data, data + 8, 1, CT_U8), NULL);
    return code == CT_EMISMATCH ? 0 : __LINE__;
}

Test(domains, a_domain_that_calls_something_else_is_found)
{
    struct ct_seat seats[WORLD];
    struct rig rig = rig_at(layouts[0], seats);

    cr_assert_eq(rig_run(&rig, disagree), 0);
}
