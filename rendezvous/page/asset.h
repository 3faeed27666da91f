/* The files of the page, as they lie in this folder, within the program. */
#ifndef CT_RENDEZVOUS_ASSET_H
#define CT_RENDEZVOUS_ASSET_H

#include <stddef.h>

/* Return the bytes of the file that is served at `path`, its size and media type; NULL: there is
 * none. */
const char *ct_asset_find(const char *path, size_t *ret_size, const char **ret_type);

#endif
