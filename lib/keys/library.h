/* A shared library that is loaded when it is first needed, for who links it costs each start of a
 * program, and a job that needs none of it should not have to have it. */
#ifndef CT_KEYS_LIBRARY_H
#define CT_KEYS_LIBRARY_H

#include <stddef.h>

/* A function of it, and where its address goes in the table. */
struct ct_library_function {
    const char *name;
    size_t offset;
};

enum { CT_LIBRARY_TEXT = 256 };

/* Load `file`, which stays loaded, and write the addresses of `count` functions into `table`.
 * `ret_missing`: why that failed, "" when it did not. */
void ct_library_load(const char *file, const struct ct_library_function *functions, size_t count,
                     void *table, char ret_missing[CT_LIBRARY_TEXT]);

#endif
