/* Error files on the disk: their moment, and what is no error file. */
#include "launch/failure/error_note.h"

#include "tree.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tree tree;
static struct ct_arena arena;

static void set_up(void)
{
    tree_init(&tree);
    ct_arena_init(&arena, 4 << 20);
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
    tree_deinit(&tree);
}

TestSuite(error_note, .init = set_up, .fini = tear_down, .timeout = 30);

/* The file says second `told_s`, the disk `changed_s` and 250 ms. */
static struct ct_error_note read_note(const char *told_s, int64_t changed_s)
{
    const struct timespec times[2] = {{changed_s, 250000000}, {changed_s, 250000000}};
    struct ct_error_note note = {.time_ms = -1};
    struct ct_error why;
    char text[128];

    (void)snprintf(text, sizeof text, "{\"message\": \"m\"%s%s}",
                   told_s[0] != '\0' ? ", \"timestamp\": " : "", told_s);
    tree_file(&tree, "/error.json", text);
    cr_assert_eq(utimensat(AT_FDCWD, tree_path(&tree, "/error.json"), times, 0), 0);
    cr_assert(ct_error_note_read(tree_path(&tree, "/error.json"), &arena, &note, &why), "%s",
              why.text);
    cr_assert_str_eq(note.file.message, "m");
    return note;
}

Test(error_note, the_disk_tells_the_moment_within_the_second_that_the_text_tells)
{
    cr_assert_eq(read_note("1790000000", 1790000000).time_ms, 1790000000250);
    cr_assert_eq(read_note("1790000000", 1790000001).time_ms, 1790000001250, "written a bit later");
    cr_assert_eq(read_note("", 1790000005).time_ms, 1790000005250, "no second is told");
}

Test(error_note, a_disk_with_another_clock_tells_nothing)
{
    cr_assert_eq(read_note("1790000000", 1790000002).time_ms, 1790000000000);
    cr_assert_eq(read_note("1790000000", 1789999999).time_ms, 1790000000000);
}

static void refuse(const char *path, const char *expected)
{
    struct ct_error_note note;
    struct ct_error why = {0};

    cr_assert_not(ct_error_note_read(tree_path(&tree, path), &arena, &note, &why));
    if (expected == NULL)
        cr_assert_eq(why.code, 0, "%s", why.text);
    else
        cr_assert(why.code != 0 && strstr(why.text, expected) != NULL, "%s", why.text);
}

Test(error_note, only_plain_files_of_a_known_shape_are_read)
{
    tree_file(&tree, "/half.json", "{\"message\": ");
    tree_file(&tree, "/real.json", "{\"message\": \"m\"}");
    cr_assert_eq(symlink("real.json", tree_path(&tree, "/link.json")), 0);
    cr_assert_eq(mkfifo(tree_path(&tree, "/pipe.json"), 0600), 0);
    refuse("/absent.json", NULL);
    refuse("/half.json", "no JSON");
    refuse("/link.json", "symbolic");
    refuse("/pipe.json", "no plain file");
    int fd = open(tree_path(&tree, "/real.json"), O_WRONLY);
    cr_assert_eq(ftruncate(fd, CT_ERROR_FILE_BYTES + 1), 0);
    (void)close(fd);
    refuse("/real.json", "is not read");
}
