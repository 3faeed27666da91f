/* torchelastic's error file: a worker's error report for its launcher.
 *
 * A worker whose entry point PyTorch's `record` wraps writes it to TORCHELASTIC_ERROR_FILE:
 *
 *     {"message": {"message": "ValueError: no such layer",
 *                  "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1790000000"},
 *                  "errorCode": 1}}
 *     {"message": "no such layer", "timestamp": 1790000000}                   the short shape
 *
 * errorCode is present when a launcher forwarded the file. Other members are ignored. Pure: text
 * in, text out. */
#ifndef CT_LAUNCH_ERROR_FILE_H
#define CT_LAUNCH_ERROR_FILE_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { CT_ERROR_FILE_BYTES = 1 << 20 }; /* a larger file is refused */

struct ct_error_file {
    const char *message;   /* never NULL once read */
    const char *callstack; /* "" when there is none */
    int64_t timestamp_s;   /* since 1970; -1: not said */
    int64_t error_code;    /* -1: not said */
};

/* Parse either shape; the strings lie in the arena. 0; CT_EDATA with the sentence for other
 * contents; CT_ELIMIT above a limit; CT_ENOMEM. */
int ct_error_file_parse(const char *json, size_t size, struct ct_arena *arena,
                        struct ct_error_file *ret_file, struct ct_error *err);

/* Append the long shape, which torchelastic and its users read. */
void ct_error_file_print(const struct ct_error_file *file, struct ct_buf *to);

#endif
