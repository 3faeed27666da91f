/* Decoding: a GPT reads a text token by token and predicts the next one each time.
 *
 *     ids ---> [ embedding | block 0 | ... | block L-1 | head ] ---> logits of the last one
 *                            cache 0         cache L-1
 *
 * A block keeps the keys and values of the tokens it has seen, so that a token costs the products
 * of one row. The program is the model's own, built with `decoding` (graph/model.h): its logits
 * have the bits of an evaluation of the whole sequence. It exists twice over the same weights and
 * caches: for one token, and for a block of them, which reads the weights once for all.
 *
 * The caller owns the decoder; its memory is one arena of the device, which computes on the host.
 * One thread at a time. */
#ifndef CT_DECODE_DECODE_H
#define CT_DECODE_DECODE_H

#include "graph/model.h"
#include "tensor/device.h"

/* Tokens that a stretch holds. */
enum { CT_DECODE_STRETCH = 16 };

struct ct_decoder;

/* Create a decoder of the gpt of `spec`, with zero weights and no tokens read. `device` is
 * borrowed. CT_ECONFIG (the model's sentence), CT_EUNSUPPORTED (another model, a device that lacks
 * an op), CT_ENOMEM. */
int ct_decoder_new(struct ct_decoder **ret, const struct ct_model_spec *spec,
                   struct ct_device *device, struct ct_error *err);
void ct_decoder_free(struct ct_decoder *decoder);

/* Return the number of weights; return weight `i`, to be filled by the caller before the first
 * token; its name lives as long as the decoder. */
int ct_decoder_params(const struct ct_decoder *decoder);
struct ct_tensor ct_decoder_param(const struct ct_decoder *decoder, int i, const char **ret_name);

/* Return the length of the context, the number of tokens read, the size of the vocabulary. */
int64_t ct_decoder_context(const struct ct_decoder *decoder);
int64_t ct_decoder_place(const struct ct_decoder *decoder);
int64_t ct_decoder_vocabulary(const struct ct_decoder *decoder);

/* Read `count` > 0 more tokens, all within the vocabulary and the rest of the context (asserted).
 * Returns the logits [vocabulary] of the last one, valid until the next call. */
const void *ct_decoder_read(struct ct_decoder *decoder, const int32_t *ids, size_t count);

/* Read those of `count` ids, of which the first *read were read already, that the decoder has not;
 * when the context is full, begin again with the last half of a context. Sets *read to `count` and
 * returns the logits as ct_decoder_read. */
const void *ct_decoder_follow(struct ct_decoder *decoder, const int32_t *ids, size_t count,
                              size_t *read);

/* Return to the start of the context. */
void ct_decoder_rewind(struct ct_decoder *decoder);

#endif
