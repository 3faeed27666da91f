/* Which GPUs a worker sees. */
#include "hardware/devices.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(devices, .timeout = 10);

static const char *const lists[] = {"0+1", "2", "GPU-8f3a-1", "1+MIG-7"};
static const struct ct_devices given = {.lists = lists, .count = 4};

/* The list of a worker, "(same)" for the agent's own, the sentence for what is refused. */
static const char *list_of(const struct ct_devices *devices, uint32_t local_rank)
{
    static char text[512];
    struct ct_arena arena;
    struct ct_error err = {0};
    const char *list = NULL;

    ct_arena_init(&arena, 1 << 16);
    int rc = ct_devices_of(devices, local_rank, &arena, &list, &err);
    cr_assert(rc == 0 || rc == CT_EUSAGE);
    strcpy(text, rc != 0 ? err.text : list != NULL ? list : "(same)");
    ct_arena_deinit(&arena);
    return text;
}

Test(devices, a_worker_gets_the_agents_list_unless_something_is_asked_for)
{
    const struct ct_devices nothing = {.visible = "2,3"};

    cr_assert_str_eq(list_of(&nothing, 7), "(same)");
}

Test(devices, one_each_is_the_workers_number_or_its_entry_in_the_agents_list)
{
    struct ct_devices one = {.one_each = true};

    cr_assert_str_eq(list_of(&one, 3), "3");
    one.visible = "4, 5 ,GPU-9";
    cr_assert_str_eq(list_of(&one, 0), "4");
    cr_assert_str_eq(list_of(&one, 1), "5");
    cr_assert_str_eq(list_of(&one, 2), "GPU-9");
    cr_assert_str_eq(list_of(&one, 3), "gives GPU 3, which the list that ctrun was given does not "
                                       "have (CUDA_VISIBLE_DEVICES=\"4, 5 ,GPU-9\")");
    one.visible = "";
    cr_assert_str_eq(list_of(&one, 0), "", "an empty list hides all");
}

Test(devices, lists_count_in_the_agents_list_and_names_stand_for_themselves)
{
    struct ct_devices mapped = given;

    cr_assert_str_eq(list_of(&given, 0), "0,1");
    cr_assert_str_eq(list_of(&given, 1), "2");
    cr_assert_str_eq(list_of(&given, 2), "GPU-8f3a-1");
    cr_assert_str_eq(list_of(&given, 3), "1,MIG-7");
    mapped.visible = "6,7,5";
    cr_assert_str_eq(list_of(&mapped, 0), "6,7");
    cr_assert_str_eq(list_of(&mapped, 1), "5");
    cr_assert_str_eq(list_of(&mapped, 3), "7,MIG-7");
    mapped.one_each = true;
    cr_assert_str_eq(list_of(&mapped, 0), "6,7", "lists win");
}

Test(devices, what_is_no_gpu_or_missing_is_refused)
{
    static const char *const wrong[] = {"x", "", "0++1", "-1", "0+"};
    const struct ct_devices one = {.lists = lists, .count = 1};

    for (size_t i = 0; i < CT_COUNT(wrong); i++) {
        const struct ct_devices bad = {.lists = &wrong[i], .count = 1};
        cr_assert_not_null(strstr(list_of(&bad, 0), "which is no GPU"), "%s", wrong[i]);
    }
    cr_assert_str_eq(list_of(&one, 1),
                     "gives the GPUs of 1 workers, but there is a worker 1; name its GPUs, too, or "
                     "start fewer (--nproc_per_node)");
}

Test(devices, entries_of_a_list_are_found_by_their_place)
{
    char room[4];

    cr_assert(ct_devices_entry("a, b ,c", 1, room, sizeof room));
    cr_assert_str_eq(room, "b");
    cr_assert_not(ct_devices_entry("a,b", 2, room, sizeof room));
    cr_assert_not(ct_devices_entry("abcd", 0, room, sizeof room), "no room");
}
