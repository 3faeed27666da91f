/* Whose code is a file of Python, by its name in a stack or traceback? Pure. */
#ifndef CT_LAUNCH_PYTHON_FILE_H
#define CT_LAUNCH_PYTHON_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Return whether a file is not the user's own code: one of an installed package, of the standard
 * library, or of the interpreter itself ("<frozen runpy>"). `size` > 0. */
bool ct_python_is_library(const char *file, size_t size);

#endif
