/* See tree.h. */
#include "tree.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tree_init(struct tree *tree)
{
    strcpy(tree->root, "/tmp/ctrun-tree-XXXXXX");
    cr_assert_not_null(mkdtemp(tree->root));
}

void tree_deinit(struct tree *tree)
{
    cr_assert_eq(ct_fs_remove_tree(tree->root), 0);
}

const char *tree_path(const struct tree *tree, const char *path)
{
    static char ring[8][256];
    static unsigned next;
    char *full = ring[next++ % 8];

    cr_assert_lt(snprintf(full, sizeof ring[0], "%s%s", tree->root, path), (int)sizeof ring[0]);
    return full;
}

void tree_file(const struct tree *tree, const char *path, const char *content)
{
    char folder[256];
    const char *full = tree_path(tree, path);

    strcpy(folder, full);
    *strrchr(folder, '/') = '\0';
    cr_assert_eq(ct_fs_make_dirs(folder, NULL), 0);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ct_fs_write_all(fd, content, strlen(content)), 0);
    cr_assert_eq(close(fd), 0);
}
