/* Token streams: ids in shards, read as windows.
 *
 *   shard   t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9            context 4: floor((10 - 1) / 4) = 2 windows
 *   row 0   x = t0..t3, labels = t1..t4
 *   row 1               x = t4..t7, labels = t5..t8
 *
 * A window never crosses shards. Shards are mapped files, read as they are used, or memory. */
#ifndef CT_DATA_TOKENS_H
#define CT_DATA_TOKENS_H

#include "base/error.h"
#include "data/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest window. */
#define CT_TOKENS_MAX_CONTEXT ((size_t)1 << 20)

struct ct_tokens;

/* How the ids of a file are written, all little-endian.
 *   AUTO  llm.c's header of 1024 bytes (256 i32: 20240520, 1, number of ids; then u16 ids; or
 *         20240801, 7, number of ids; then u32 ids)
 *   U16   no header, as nanoGPT writes them; U32 likewise */
enum ct_token_format { CT_TOKENS_AUTO, CT_TOKENS_U16, CT_TOKENS_U32 };

/* Map the files that match `pattern` (a path, or one with * ? [ ]), in the order of their names.
 * CT_ENOINPUT (no file, not readable), CT_EDATA (not this format, shorter than its header, not one
 * window), CT_ENOMEM. A file must not shrink while it is mapped. */
int ct_tokens_open(struct ct_tokens **ret, const char *pattern, enum ct_token_format format,
                   size_t context, struct ct_error *err);

/* Take over the ids of `list`, which is empty afterwards. `name` is for messages. */
int ct_tokens_from_list(struct ct_tokens **ret, const char *name, struct ct_token_list *list,
                        size_t context, struct ct_error *err);

/* Free; NULL is ignored. */
void ct_tokens_free(struct ct_tokens *tokens);

uint64_t ct_tokens_windows(const struct ct_tokens *tokens);

/* Copy a window: x [context], labels [context]. When an id is not in 0 .. vocabulary - 1 the row is
 * ids 0 with labels -1, and false is returned. Any thread. */
bool ct_tokens_window(const struct ct_tokens *tokens, uint64_t window, int32_t vocabulary,
                      int32_t *x, int32_t *labels);

/* Set the sentence about the first such id in `window`; returns CT_EDATA. */
int ct_tokens_explain(const struct ct_tokens *tokens, uint64_t window, int32_t vocabulary,
                      struct ct_error *err);

/* Return a digest of the number and sizes of the shards and of both ends of each (64 KiB), which
 * identifies the data without reading all of it. */
uint64_t ct_tokens_digest(const struct ct_tokens *tokens);

#endif
