/* A directory that stands for the root of a host in tests: /dev, /proc and /sys with chosen
 * content. */
#ifndef TESTS_LAUNCH_TREE_H
#define TESTS_LAUNCH_TREE_H

struct tree {
    char root[64];
};

/* A new empty directory under /tmp, and its removal. */
void tree_init(struct tree *tree);
void tree_deinit(struct tree *tree);

/* The file `path` ("/dev/nvidia0") with `content`, its folders made. */
void tree_file(const struct tree *tree, const char *path, const char *content);

/* root + path; static storage, valid for the next seven calls. */
const char *tree_path(const struct tree *tree, const char *path);

#endif
