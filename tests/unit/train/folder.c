/* See folder.h. */
#include "folder.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[32];

void folder_make(void)
{
    (void)strcpy(folder, "/tmp/ct_train_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

void folder_remove(void)
{
    (void)ct_fs_remove_tree(folder);
}

const char *folder_path(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

void folder_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(data, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

struct ct_buf folder_read(const char *path)
{
    struct ct_buf buf;
    struct ct_error err = {0};

    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_read(path, 1 << 24, &buf, &err), 0, "%s", err.text);
    return buf;
}

int folder_count(const char *path, const char *part)
{
    int count = 0;
    const struct dirent *entry;
    DIR *dir = opendir(path);

    cr_assert_not_null(dir);
    while ((entry = readdir(dir)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strstr(entry->d_name, part) != NULL;
    (void)closedir(dir);
    return count;
}
