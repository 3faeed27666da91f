/* Call sites: addresses of a process that lives or is gone, files that are no programs. */
#include "diagnose/sites.h"

#include "tree.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sites, .timeout = 30);

static int find_program(struct dl_phdr_info *info, size_t size, void *ret_at)
{
    (void)size;
    *(uint64_t *)ret_at = info->dlpi_addr;
    return 1;
}

/* What a worker that runs this program would have in its record. */
static struct ct_record_view view_of(uint32_t pid)
{
    struct ct_record_view view = {.pid = pid};
    ssize_t size = readlink("/proc/self/exe", view.program, sizeof view.program - 1);

    cr_assert_gt(size, 0);
    (void)dl_iterate_phdr(find_program, &view.program_at);
    return view;
}

/* Where it returns to: not the tests' own, so that it cannot be inlined away. */
static uint64_t __attribute__((noinline)) here(void)
{
    return (uint64_t)(uintptr_t)__builtin_return_address(0);
}

static uint64_t __attribute__((noinline)) a_function_with_a_name(void)
{
    volatile uint64_t site = here();

    return site;
}

static void expect_named(const char *text)
{
    const char *slash = strrchr(view_of(0).program, '/');

    cr_assert_eq(strncmp(text, "a_function_with_a_name+0x", 25), 0, "%s", text);
    cr_assert_not_null(strstr(text, " in "), "%s", text);
    cr_assert_not_null(strstr(text, slash + 1), "%s", text);
}

Test(sites, a_function_of_a_process_that_lives_is_named)
{
    struct ct_record_view view = view_of((uint32_t)getpid());
    struct ct_sites sites;

    ct_sites_init(&sites, &view);
    expect_named(ct_sites_text(&sites, a_function_with_a_name()));
}

Test(sites, a_function_of_a_process_that_is_gone_is_found_in_its_program)
{
    struct ct_record_view view = view_of(0);
    struct ct_sites sites;

    ct_sites_init(&sites, &view);
    expect_named(ct_sites_text(&sites, a_function_with_a_name()));
}

Test(sites, a_function_of_a_library_is_named_while_the_process_lives)
{
    struct ct_record_view view = view_of((uint32_t)getpid());
    uint64_t site = (uint64_t)(uintptr_t)&getenv + 1;
    struct ct_sites sites;

    ct_sites_init(&sites, &view);
    const char *text = ct_sites_text(&sites, site);
#ifndef __SANITIZE_ADDRESS__ /* has a getenv of its own */
    cr_assert_not_null(strstr(text, " in libc"), "%s", text);
#else
    cr_assert_not_null(strchr(text, '+'), "%s", text);
#endif
    view.pid = 0;
    ct_sites_init(&sites, &view);
    char address[32];
    (void)snprintf(address, sizeof address, "0x%llx", (unsigned long long)site);
    cr_assert_str_eq(ct_sites_text(&sites, site), address, "where it lay is not known any more");
}

Test(sites, texts_are_kept_while_few_others_are_asked_for)
{
    struct ct_record_view view = view_of(0);
    struct ct_sites sites;

    ct_sites_init(&sites, &view);
    const char *first = ct_sites_text(&sites, 1);
    for (uint64_t i = 2; i <= CT_SITES_KNOWN; i++)
        (void)ct_sites_text(&sites, i);
    cr_assert_eq(ct_sites_text(&sites, 1), first);
    cr_assert_eq(sites.count, CT_SITES_KNOWN);
    (void)ct_sites_text(&sites, CT_SITES_KNOWN + 1);
    cr_assert_str_eq(ct_sites_text(&sites, 1), "0x1", "it is looked up again");
    cr_assert_str_eq(ct_sites_text(&sites, 0), "", "no site");
}

/* Each prefix of a program, and a program of which each byte of the tables is wrong. */
Test(sites, files_that_are_no_programs_name_nothing_and_break_nothing)
{
    struct ct_record_view view = view_of(0);
    uint64_t site = a_function_with_a_name() - view.program_at - 1, offset;
    char path[PATH_MAX], name[64], head[4096];
    struct tree tree;

    tree_init(&tree);
    tree_file(&tree, "/program", "");
    (void)snprintf(path, sizeof path, "%s", tree_path(&tree, "/program"));
    FILE *from = fopen(view.program, "re");
    cr_assert_not_null(from);
    cr_assert_eq(fread(head, 1, sizeof head, from), sizeof head);
    (void)fclose(from);
    for (size_t i = 0; i < 1024; i++) {
        FILE *to = fopen(path, "we");

        cr_assert_not_null(to);
        head[i] ^= (char)0xff;
        (void)fwrite(head, 1, i % 2 == 0 ? sizeof head : i, to);
        head[i] ^= (char)0xff;
        (void)fclose(to);
        cr_assert_not(ct_sites_function(path, site, name, sizeof name, &offset));
    }
    cr_assert_not(ct_sites_function("/dev/zero", site, name, sizeof name, &offset));
    cr_assert_not(ct_sites_function("/nowhere", site, name, sizeof name, &offset));
    tree_deinit(&tree);
}

Test(sites, a_files_name_that_its_owner_chose_drives_no_terminal)
{
    struct ct_record_view view = view_of(0);
    struct ct_sites sites;
    struct tree tree;

    tree_init(&tree);
    const char *link = tree_path(&tree, "/a\033[2J\nb");
    cr_assert_eq(symlink(view.program, link), 0);
    (void)snprintf(view.program, sizeof view.program, "%s", link);
    ct_sites_init(&sites, &view);
    const char *text = ct_sites_text(&sites, a_function_with_a_name());
    cr_assert_eq(strncmp(text, "a_function_with_a_name+0x", 25), 0, "%s", text);
    cr_assert_not_null(strstr(text, " in a\\x1b[2J\\nb"), "%s", text);
    text = ct_sites_text(&sites, view.program_at + 1); /* the file's head is no function */
    cr_assert_eq(strncmp(text, "a\\x1b[2J\\nb+0x", 14), 0, "%s", text);
    tree_deinit(&tree);
}

/* As many tables of symbols as are read, each of them as long as a file can be. */
Test(sites, tables_without_end_are_left)
{
    static Elf64_Shdr tables[4096];
    Elf64_Ehdr head = {.e_shoff = sizeof head,
                       .e_phentsize = sizeof(Elf64_Phdr),
                       .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shnum = 4096};
    struct tree tree;
    uint64_t offset;
    char name[64];

    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    for (size_t i = 0; i < 4096; i++)
        tables[i] =
            (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_offset = 1 << 20, .sh_size = (uint64_t)1 << 40};
    tree_init(&tree);
    tree_file(&tree, "/program", "");
    const char *path = tree_path(&tree, "/program");
    FILE *to = fopen(path, "we");
    cr_assert_not_null(to);
    cr_assert_eq(fwrite(&head, sizeof head, 1, to), 1);
    cr_assert_eq(fwrite(tables, sizeof tables, 1, to), 1);
    (void)fclose(to);
    cr_assert_eq(truncate(path, 64 << 20), 0);
    cr_assert_not(ct_sites_function(path, 42, name, sizeof name, &offset));
    tree_deinit(&tree);
}
