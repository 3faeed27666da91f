/* How many descriptors a program that has many connections may have. */
#ifndef CT_NET_DESCRIPTORS_H
#define CT_NET_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Raise this process's limit to the highest that the system allows. True when that changed it:
 * children are to get `ret_before` back, as select(2) breaks above 1024. */
bool ct_descriptors_raise(struct rlimit *ret_before);

/* Return the number of connections that may be open when `reserved` descriptors are kept for other
 * uses; at most `most`, never 0. */
uint32_t ct_descriptors_for_links(uint32_t reserved, uint32_t most);

/* Return how many of `needed` further descriptors this process may open now. */
uint32_t ct_descriptors_left(uint32_t needed);

/* Return this process's limit; UINT64_MAX if none. */
uint64_t ct_descriptors_limit(void);

enum { CT_DESCRIPTORS_TEXT = 128 };

/* Describe what allows `links` connections, for a sentence; returns `text`. */
const char *ct_descriptors_describe(uint32_t links, char text[CT_DESCRIPTORS_TEXT]);

#endif
