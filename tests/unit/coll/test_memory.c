/* Symmetric memory: what an owner gets, what others get of it, and that nothing is left. */
#include "job/symmetric_memory.h"

#include "base/assert.h"
#include "job/thread_world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(memory, .timeout = 30);

enum { BYTES = 100000 };

static char *alloc(struct ct_memory *memory, size_t bytes)
{
    struct ct_error err = {0};
    void *base = NULL;

    cr_assert_eq(ct_memory_alloc(memory, bytes, &base, &err), 0, "%s", err.text);
    return base;
}

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    cr_assert_not_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

Test(memory, an_allocation_is_zeroed_and_aligned)
{
    struct ct_memory memory;

    ct_memory_init(&memory);
    char *base = alloc(&memory, BYTES);
    cr_assert_eq((uintptr_t)base % 4096, 0);
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(base[i], 0);
    memset(base, 1, BYTES);
    ct_memory_free(&memory, base);
    ct_memory_free(&memory, NULL);
    ct_memory_deinit(&memory);
}

Test(memory, any_part_of_an_allocation_is_found)
{
    struct ct_memory memory;
    int stranger = 0;

    ct_memory_init(&memory);
    char *a = alloc(&memory, 4096), *b = alloc(&memory, BYTES);
    struct ct_memory_place whole = ct_memory_find(&memory, a, 4096);
    struct ct_memory_place part = ct_memory_find(&memory, b + 77, 1000);

    cr_assert_neq(whole.id, 0);
    cr_assert_eq(whole.offset, 0);
    cr_assert_neq(part.id, 0);
    cr_assert_neq(part.id, whole.id);
    cr_assert_eq(part.offset, 77);
    cr_assert_eq(ct_memory_find(&memory, a + 1, 4096).id, 0, "it reaches over the end");
    cr_assert_eq(ct_memory_find(&memory, &stranger, sizeof stranger).id, 0);
    ct_memory_free(&memory, b);
    cr_assert_eq(ct_memory_find(&memory, b, 1).id, 0);
    char *c = alloc(&memory, BYTES);
    cr_assert_gt(ct_memory_find(&memory, c, 1).id, part.id, "a number is never used again");
    ct_memory_deinit(&memory);
}

/* What one process has allocated, and another that has its handle. */
struct pair {
    struct ct_memory owner, peer;
    char *base;
    struct ct_memory_handle handle;
};

static void pair_init(struct pair *pair)
{
    ct_memory_init(&pair->owner);
    ct_memory_init(&pair->peer);
    pair->base = alloc(&pair->owner, BYTES);
    pair->handle =
        ct_memory_handle(&pair->owner, ct_memory_find(&pair->owner, pair->base, BYTES).id);
}

static void pair_deinit(struct pair *pair)
{
    ct_memory_deinit(&pair->peer);
    ct_memory_deinit(&pair->owner);
}

Test(memory, another_process_sees_the_same_bytes)
{
    struct pair pair;

    pair_init(&pair);
    char *base = pair.base;
    struct ct_mapping *mapping = ct_memory_attach(&pair.peer, &pair.handle);

    cr_assert_not_null(mapping);
    cr_assert_neq(ct_mapping_base(mapping), base);
    base[BYTES - 1] = 42;
    cr_assert_eq(ct_mapping_base(mapping)[BYTES - 1], 42);
    cr_assert_eq(ct_memory_attach(&pair.peer, &pair.handle), mapping, "mapped once");
    ct_memory_detach(&pair.peer, mapping);
    ct_mapping_base(mapping)[0] = 43;
    cr_assert_eq(base[0], 43);
    ct_memory_detach(&pair.peer, mapping);
    pair_deinit(&pair);
}

Test(memory, what_an_owner_frees_stays_safe_to_touch)
{
    struct pair pair;

    pair_init(&pair);
    char *base = pair.base;
    struct ct_mapping *mapping = ct_memory_attach(&pair.peer, &pair.handle);

    cr_assert_not_null(mapping);
    memset(base, 7, BYTES);
    cr_assert_not(ct_mapping_freed(mapping));
    ct_memory_free(&pair.owner, base);
    cr_assert(ct_mapping_freed(mapping));
    cr_assert_eq(ct_mapping_base(mapping)[BYTES / 2], 0, "its pages went back");
    cr_assert_null(ct_memory_attach(&pair.owner, &pair.handle), "it cannot be found any more");
    ct_memory_detach(&pair.peer, mapping);
    pair_deinit(&pair);
}

Test(memory, a_handle_of_something_else_is_refused)
{
    struct pair pair;

    pair_init(&pair);
    struct ct_memory_handle wrong = pair.handle;

    wrong.token[1]++;
    cr_assert_null(ct_memory_attach(&pair.peer, &wrong));
    wrong = pair.handle;
    wrong.bytes += 4096;
    cr_assert_null(ct_memory_attach(&pair.peer, &wrong));
    wrong = pair.handle;
    wrong.fd = 1000000;
    cr_assert_null(ct_memory_attach(&pair.peer, &wrong));
    pair_deinit(&pair);
}

Test(memory, a_job_gives_back_what_was_not_freed)
{
    struct ct_thread_world *world;
    int before = open_descriptors();
    void *memory;

    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    struct ct_job *job = ct_thread_world_job(world, 1);
    cr_assert_eq(ct_mem_alloc(job, BYTES, &memory, NULL), 0);
    cr_assert_eq(ct_mem_alloc(job, BYTES, &memory, NULL), 0);
    cr_assert_eq(open_descriptors(), before + 2);
    ct_mem_free(job, memory);
    cr_assert_eq(ct_mem_alloc(job, 0, &memory, NULL), CT_EUSAGE);
    ct_thread_world_free(world);
    cr_assert_eq(open_descriptors(), before);
}
