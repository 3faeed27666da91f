/* TensorBoard event files: protobuf `Event` messages in TFRecord frames.
 *
 *   u64 LE length | u32 LE masked CRC32C of the length | message | u32 LE masked CRC32C of it
 *
 *   Event      { double wall_time = 1; int64 step = 2; string file_version = 3;
 *                Summary summary = 5; SessionLog session_log = 7; }
 *   Summary    { repeated Value value = 1; }
 *   Value      { string tag = 1; float simple_value = 2; }
 *   SessionLog { status = 1 (START = 1) }
 *
 * Pure: everything appends to a buffer. Source: tensorboard/compat/proto/{event,summary}.proto and
 * TensorFlow's record format. */
#ifndef CT_TRAIN_EVENT_FILE_H
#define CT_TRAIN_EVENT_FILE_H

#include "base/bytes.h"
#include "base/error.h"

/* One scalar of a summary. */
struct ct_event_scalar {
    const char *tag;
    float value;
};

/* Append the first event of a file ("brain.Event:2"). */
int ct_event_version(struct ct_buf *buf, double wall_s);

/* Append the start of a session at `step`: TensorBoard drops later records of older files in the
 * folder. */
int ct_event_start(struct ct_buf *buf, double wall_s, uint64_t step);

/* Append `count` scalars of one step. 0 or CT_ENOMEM. */
int ct_event_scalars(struct ct_buf *buf, double wall_s, uint64_t step,
                     const struct ct_event_scalar *scalars, size_t count);

/* Return a CRC32C masked as in TFRecord. */
uint32_t ct_event_mask_crc(uint32_t crc);

#endif
