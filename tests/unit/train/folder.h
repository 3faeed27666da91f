/* A temporary folder for a test, and files in it. */
#ifndef CT_TEST_TRAIN_FOLDER_H
#define CT_TEST_TRAIN_FOLDER_H

#include "base/bytes.h"

void folder_make(void);
void folder_remove(void);

/* The path of `name` in the folder; valid until the fourth next call. */
const char *folder_path(const char *name);

/* Replace the whole content of a file; read it (the buffer is the caller's to free). */
void folder_write(const char *path, const void *data, size_t size);
struct ct_buf folder_read(const char *path);

/* Return the number of entries of the directory `path` whose names contain `part`. */
int folder_count(const char *path, const char *part);

#endif
