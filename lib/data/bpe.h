/* GPT-2's byte pair encoding in two parts: its table, read from a file (gpt2_file.c), and its use
 * on words (bpe.c). */
#ifndef CT_DATA_BPE_H
#define CT_DATA_BPE_H

#include "data/stream.h"
#include "data/tokenizer_table.h"

/* Two adjacent ids that become one. */
struct ct_bpe_merge {
    int32_t left, right;
    int32_t id; /* what they become; lower ids were learned earlier */
};

/* Ids: 256 single bytes, one a merge in the order of learning, the end of a text. */
struct ct_bpe {
    int32_t size;                /* of the vocabulary */
    int32_t byte[256];           /* the id of each single byte */
    char *bytes;                 /* the text of all tokens, one behind the other */
    uint32_t *start;             /* [size + 1] where each token's text is in `bytes` */
    struct ct_bpe_merge *merges; /* open addressing by (left, right); free: left < 0 */
    size_t slots;                /* a power of two */
};

/* Read a file in the format of vocab.bpe. CT_EDATA (names the line), CT_ELIMIT, CT_ENOMEM, or the
 * stream's error; then `ret` is empty. */
int ct_bpe_load(struct ct_bpe *ret, struct ct_stream *stream, struct ct_error *err);
void ct_bpe_deinit(struct ct_bpe *bpe);

/* Return the merge of a pair, or NULL. */
const struct ct_bpe_merge *ct_bpe_find(const struct ct_bpe *bpe, int32_t left, int32_t right);

#endif
