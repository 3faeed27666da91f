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

/* Return whether line[0 .. size) contains one of the texts. */
bool ct_filter_matches(const struct ct_filter *filter, const char *line, size_t size);

/* Return whether `local_rank` is on the list of shown ranks; all are when it is empty. */
bool ct_filter_shows(const int64_t *local_ranks, size_t count, uint32_t local_rank);

#endif
