/* Which lines of a worker are worth a second copy: those that contain one of some texts. Pure. */
#ifndef CT_OUTPUT_FILTER_H
#define CT_OUTPUT_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list of texts in borrowed memory; count 0 matches nothing. */
struct ct_filter {
    const char *const *texts;
    size_t count;
};

/* Does line[0 .. size) contain one of them? */
bool ct_filter_matches(const struct ct_filter *filter, const char *line, size_t size);

/* Is `local_rank` on the list of those that are shown? All are when it is empty. */
bool ct_filter_shows(const int64_t *local_ranks, size_t count, uint32_t local_rank);

#endif
