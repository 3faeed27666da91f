/* What a GPT writes after each evaluation (log.sample): the prompt and so many tokens more, as
 * `ctrun sample` writes from a checkpoint of that step with the training's seed.
 *
 *     executor's parameters -> a decoder on the CPU -> token by token -> metrics.jsonl, the log
 *
 * Rank 0 does it, which must hold the whole model, while the others wait. The decoder has a copy of
 * the weights of its own, made at the first use. */
#ifndef CT_WORKER_TEXT_SAMPLE_H
#define CT_WORKER_TEXT_SAMPLE_H

#include "data/tokenizer.h"

struct ct_worker;

struct ct_text_sample {
    struct ct_token_list head; /* the prompt */
    struct ct_device *device;
    struct ct_decoder *decoder; /* NULL before the first use */
    struct ct_chooser *chooser;
};

/* Read the prompt, when there is to be a text; the data are loaded. CT_EDATA: it has a character
 * that the training text lacks; CT_ENOMEM. */
int ct_text_sample_prepare(struct ct_worker *worker, struct ct_error *err);

/* Write a text of the present parameters, on rank 0 and when there is to be one. One that cannot be
 * written is a line in the log. Errors are those of metrics.jsonl. */
int ct_text_sample_write(struct ct_worker *worker, struct ct_error *err);

void ct_text_sample_deinit(struct ct_text_sample *sample);

#endif
