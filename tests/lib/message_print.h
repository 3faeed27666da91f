/* A message of wire.def as a line, for transcripts, traces and expectations. The product never logs
 * whole messages: some of their bytes are secrets. */
#ifndef TESTS_LIB_MESSAGE_PRINT_H
#define TESTS_LIB_MESSAGE_PRINT_H

#include "wire/wire.h"

/* Append one line without its end: `HEARTBEAT generation=3 seq=7 step=120`. Strings are quoted and
 * escaped, long ones and lists cut with "...". */
void message_print(const struct ct_message *message, struct ct_buf *out);

#endif
