/* Slurm's host lists, written out and refused. */
#include "slurm/hostlist.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct ct_arena arena;

static void set_up(void)
{
    ct_arena_init(&arena, 64 << 20);
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
}

TestSuite(hostlist, .init = set_up, .fini = tear_down, .timeout = 30);

static const char *expanded(const char *text)
{
    struct ct_buf all = {0};
    const char *const *hosts;
    size_t count;
    struct ct_error err = {0};

    cr_assert_eq(ct_hostlist_expand(text, &arena, &hosts, &count, &err), 0, "%s", err.text);
    for (size_t i = 0; i < count; i++)
        ct_buf_printf(&all, "%s%s", i > 0 ? " " : "", hosts[i]);
    const char *copy = ct_arena_strdup(&arena, ct_buf_str(&all));
    ct_buf_deinit(&all);
    return copy;
}

Test(hostlist, names_come_in_the_order_of_the_list)
{
    static const struct {
        const char *text, *hosts;
    } rows[] = {
        {"n1", "n1"},
        {"n2,n1", "n2 n1"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[001-003,7,010]", "n001 n002 n003 n7 n010"},
        {"n[3,1]", "n3 n1"},
        {"n[1-2]-ib", "n1-ib n2-ib"},
        {"r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1"},
        {"r[1-2]n[0,5]x[07-08]y", "r1n0x07y r1n0x08y r1n5x07y r1n5x08y r2n0x07y r2n0x08y r2n5x07y "
                                  "r2n5x08y"},
        {"[1-2]", "1 2"},
        {"gpu[1-2],login,cpu-[10-11].cluster", "gpu1 gpu2 login cpu-10.cluster cpu-11.cluster"},
        {"a[9-10],b[99-100]", "a9 a10 b99 b100"},
        {"n[000000001]", "n000000001"},
        {"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_assert_str_eq(expanded(rows[i].text), rows[i].hosts);
}

Test(hostlist, what_is_no_list_is_refused_with_its_place)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", "name is missing at character 1"},
        {",", "name is missing at character 1"},
        {"a,", "name is missing at character 3"},
        {"a,,b", "name is missing at character 3"},
        {"n[1-3", "not closed at character 2"},
        {"n]", "without \"[\" at character 2"},
        {"n[]", "number is missing at character 3"},
        {"n[1-]", "number is missing at character 5"},
        {"n[-1]", "number is missing at character 3"},
        {"n[1,]", "number is missing at character 5"},
        {"n[1 ]", "missing at character 4"},
        {"n[a-b]", "number is missing at character 3"},
        {"n[3-1]", "backwards at character 3"},
        {"n[1-2-3]", "missing at character 6"},
        {"n[1[2]]", "not closed"},
        {"n[1234567890]", "too long at character 3"},
        {"a[1]a[1]a[1]a[1]a[1]a[1]a[1]a[1]a[1]", "too many"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const char *const *hosts;
        size_t count;
        struct ct_error err = {0};
        cr_assert_eq(ct_hostlist_expand(rows[i].text, &arena, &hosts, &count, &err), CT_EUSAGE,
                     "%s", rows[i].text);
        cr_assert(strstr(err.text, rows[i].expected) != NULL, "%s: %s", rows[i].text, err.text);
    }
}

Test(hostlist, its_size_is_bounded_whatever_is_written)
{
    static const char *const rows[] = {"n[0-65536]", "n[0-999999999]", "a[0-999]b[0-999]",
                                       "a[1-9]b[1-9]c[1-9]d[1-9]e[1-9]f[1-9]"};
    const char *const *hosts;
    struct ct_error err = {0};
    size_t count = 0;
    char longest[400];

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_assert_eq(ct_hostlist_expand(rows[i], &arena, &hosts, &count, &err), CT_ELIMIT, "%s",
                     rows[i]);
    cr_assert_eq(ct_hostlist_expand("n[0-65535]", &arena, &hosts, &count, &err), 0);
    cr_assert_eq(count, CT_HOSTLIST_MAX);
    cr_assert_str_eq(hosts[65535], "n65535");
    memset(longest, 'n', sizeof longest);
    strcpy(longest + 253, "[0-9]");
    cr_assert_eq(ct_hostlist_expand(longest, &arena, &hosts, &count, &err), 0);
    strcpy(longest + 253, "[00-09]x");
    cr_assert_eq(ct_hostlist_expand(longest, &arena, &hosts, &count, &err), CT_EUSAGE);
    strcpy(longest + 256, "");
    cr_assert_eq(ct_hostlist_expand(longest, &arena, &hosts, &count, &err), CT_EUSAGE);
}
