/* See files.h. */
#include "files.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static char folder[] = "/tmp/ct_data_XXXXXX";

void files_make(void)
{
    (void)strcpy(folder, "/tmp/ct_data_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

void files_remove(void)
{
    (void)ct_fs_remove_tree(folder);
}

const char *files_path(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

const char *files_write(const char *name, const void *data, size_t size)
{
    const char *path = files_path(name);
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(data, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    return path;
}

const char *files_write_gz(const char *name, const void *data, size_t size)
{
    const char *path = files_path(name);
    gzFile file = gzopen(path, "wb");

    cr_assert_not_null(file);
    cr_assert_eq(gzwrite(file, data, (unsigned)size), (int)size);
    cr_assert_eq(gzclose(file), Z_OK);
    return path;
}
