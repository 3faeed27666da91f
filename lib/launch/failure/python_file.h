/* Places in stacks and tracebacks of Python: where they stand in a line, and whose code is there.
 * Pure. */
#ifndef CT_LAUNCH_PYTHON_FILE_H
#define CT_LAUNCH_PYTHON_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Return whether a file is not the user's own code: one of an installed package, of the standard
 * library, or of the interpreter itself ("<frozen runpy>"). `size` > 0. */
bool ct_python_is_library(const char *file, size_t size);

/* `File "/home/me/train.py", line 31`: its parts in the text, neither is empty. */
struct ct_python_line {
    const char *file, *digits;
    size_t file_size, digit_count;
};

/* Find the first one in a line of `size` bytes. */
bool ct_python_line_find(const char *text, size_t size, struct ct_python_line *ret_line);

#endif
