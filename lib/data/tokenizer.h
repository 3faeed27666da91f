/* Tokenizers: text to token ids and back.
 *
 *   byte   each byte is its own id, 0 .. 255                                any bytes
 *   char   the distinct characters of one text, in the order of their code points     UTF-8
 *   gpt2   GPT-2's byte-level pair encoding, from its vocab.bpe                       UTF-8
 *
 * gpt2 follows Radford et al. 2019 ("Language Models are Unsupervised Multitask Learners", 2.2) and
 * gives the ids of OpenAI's encoder for every text: words by its regular expression, then in each
 * word the adjacent pair that was learned first becomes one token, leftmost first, until none is
 * left. Special tokens ("<|endoftext|>") in a text are plain text here; documents are separated by
 * the id that ct_tokenizer_end gives.
 *
 * A tokenizer is immutable: threads may share it. */
#ifndef CT_DATA_TOKENIZER_H
#define CT_DATA_TOKENIZER_H

#include "base/bytes.h"
#include "base/error.h"
#include "data/stream.h"

#include <stddef.h>
#include <stdint.h>

struct ct_tokenizer;

/* Ids in order, grown by appending; zero is empty. */
struct ct_token_list {
    int32_t *ids;
    size_t count;
    size_t room;
};

/* Create a byte tokenizer. 0 or CT_ENOMEM. */
int ct_tokenizer_byte_new(struct ct_tokenizer **ret, struct ct_error *err);

/* Create a tokenizer of the characters of `text` (`size` bytes, not empty). CT_EDATA where it is
 * not UTF-8, CT_ENOMEM. */
int ct_tokenizer_char_new(struct ct_tokenizer **ret, const char *text, size_t size,
                          struct ct_error *err);

/* Load the file as OpenAI published it, plain or gzip. CT_EDATA (names file and line), CT_ELIMIT,
 * CT_ENOMEM, or the stream's error. */
int ct_tokenizer_gpt2_new(struct ct_tokenizer **ret, struct ct_stream *merges,
                          struct ct_error *err);

/* Free; NULL is ignored. */
void ct_tokenizer_free(struct ct_tokenizer *tokenizer);

/* Return the number of ids, 0 .. size - 1. */
int32_t ct_tokenizer_size(const struct ct_tokenizer *tokenizer);

/* Return the id that separates documents, -1 if none. */
int32_t ct_tokenizer_end(const struct ct_tokenizer *tokenizer);

/* Append the ids of `text`. On failure `into` is as it was. CT_EDATA names the byte: not UTF-8, or
 * a character that the vocabulary lacks. CT_ENOMEM. */
int ct_tokenizer_encode(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                        struct ct_token_list *into, struct ct_error *err);

/* Append the ids of a prompt, as above. One that is empty begins behind another text's end, or in a
 * new line. */
int ct_tokenizer_prompt(const struct ct_tokenizer *tokenizer, const char *prompt,
                        struct ct_token_list *into, struct ct_error *err);

/* Append the text of `ids`, each in range. Bytes of gpt2's tokens need not be whole characters.
 * CT_ENOMEM, CT_ELIMIT. */
int ct_tokenizer_decode(const struct ct_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        struct ct_buf *into, struct ct_error *err);

/* Reserve room for `count` more ids; 0 or CT_ENOMEM. */
int ct_token_list_reserve(struct ct_token_list *list, size_t count, struct ct_error *err);

void ct_token_list_deinit(struct ct_token_list *list);

#endif
