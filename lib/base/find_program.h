/* Where a program is that somebody named. */
#ifndef CT_BASE_FIND_PROGRAM_H
#define CT_BASE_FIND_PROGRAM_H

#include "base/arena.h"

#include <stdbool.h>

/* Return whether this process may execute the file, which is no directory. */
bool ct_is_executable(const char *path);

/* Return the file that `name` means: itself when it has a slash, else the first executable one in
 * the directories of `path` (NULL: those of a bare system). It lives as long as `name` or in
 * `arena`. NULL when there is none. */
const char *ct_find_program(const char *name, const char *path, struct ct_arena *arena);

#endif
