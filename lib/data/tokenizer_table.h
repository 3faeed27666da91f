/* The inside of tokenizers: one table of functions per kind, and shared declarations. */
#ifndef CT_DATA_TOKENIZER_TABLE_H
#define CT_DATA_TOKENIZER_TABLE_H

#include "data/tokenizer.h"

struct ct_tokenizer_table {
    /* Append; the caller truncates what a failure left. `text` is UTF-8 where `utf8` is set. */
    int (*encode)(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                  struct ct_token_list *into, struct ct_error *err);
    /* Return the bytes of one id. */
    const char *(*text_of)(const struct ct_tokenizer *tokenizer, int32_t id, size_t *ret_size);
    void (*free)(struct ct_tokenizer *tokenizer);
    bool utf8;
};

/* The head of every tokenizer; the fields of its kind follow. */
struct ct_tokenizer {
    const struct ct_tokenizer_table *table;
    int32_t size;
    int32_t end;
};

/* Check that a text is UTF-8. 0, or CT_EDATA with the place of the first invalid byte. */
int ct_text_check_utf8(const char *text, size_t size, struct ct_error *err);

/* Return the code point that starts at `text`, which is valid UTF-8, and its length in bytes. */
uint32_t ct_utf8_decode(const char *text, size_t *ret_size);

#endif
