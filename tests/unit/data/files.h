/* Files for the data tests: a temporary folder, plain and gzip files in it. */
#ifndef CT_TEST_DATA_FILES_H
#define CT_TEST_DATA_FILES_H

#include <stddef.h>

/* Make a fresh folder and keep its name; remove it with everything in it. */
void files_make(void);
void files_remove(void);

/* The path of `name` in the folder; valid until the fourth next call. */
const char *files_path(const char *name);

/* Write a file and return its path, plain or as gzip. */
const char *files_write(const char *name, const void *data, size_t size);
const char *files_write_gz(const char *name, const void *data, size_t size);

#endif
