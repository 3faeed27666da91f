/* See filter.h. */
#include "output/filter.h"

#include <string.h>

bool ct_filter_matches(const struct ct_filter *filter, const char *line, size_t size)
{
    for (size_t i = 0; i < filter->count; i++)
        if (memmem(line, size, filter->texts[i], strlen(filter->texts[i])) != NULL)
            return true;
    return false;
}

bool ct_filter_shows(const int64_t *local_ranks, size_t count, uint32_t local_rank)
{
    for (size_t i = 0; i < count; i++)
        if (local_ranks[i] == (int64_t)local_rank)
            return true;
    return count == 0;
}
