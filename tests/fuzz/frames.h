/* Messages out of a fuzzer's bytes, for the targets that feed a core with frames.
 *
 * A target makes the message that would be true at this moment; bytes of the input then change some
 * of its fields, so that a short input is a long life with a few lies in it. */
#ifndef CT_FUZZ_FRAMES_H
#define CT_FUZZ_FRAMES_H

#include "wire/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rest of an input; zeros follow its end. */
struct input {
    const uint8_t *data;
    size_t size;
};

uint8_t input_byte(struct input *input);

/* Read `size` bytes, or the rest; `ret_size` is their number. */
const uint8_t *input_bytes(struct input *input, size_t size, size_t *ret_size);

/* Change fields of `message`: a byte says how many (bits 0, 1), then for each a byte which, and
 * bytes to what. What is made lies in `arena`. */
void change_fields(struct input *input, struct ct_arena *arena, struct ct_message *message);

/* Called with each message that decodes. */
typedef void (*frames_fn)(void *context, const struct ct_message *message);

/* One direction of a connection. */
struct frames {
    struct ct_frame_reader reader;
    uint32_t sequence;
};

void frames_init(struct frames *frames, unsigned from, uint32_t limit);
void frames_deinit(struct frames *frames);

/* Bytes, or a message as a frame in two pieces, through the reader and the decoder. False: the
 * stream is lost, its connection ends. A message above a limit is not sent. */
bool frames_push(struct frames *frames, const void *data, size_t size, frames_fn each,
                 void *context);
bool frames_send(struct frames *frames, const struct ct_message *message, frames_fn each,
                 void *context);

/* Check that a core's message fits its frame. */
void frames_check(const struct ct_message *message);

#endif
