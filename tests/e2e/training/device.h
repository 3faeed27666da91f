/* The real programs on emulated GPUs (tests/lib/hostcuda/runtime.h): BUILD/tests/gpu holds them
 * beside a libctrun_cuda.so, a driver and an NCCL, as on a machine with GPUs. */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include "proc.h"
#include "sanitized.h"

/* Under AddressSanitizer, where every kernel takes long, those tests alone that reach most. */
enum { DEVICE_FEW = SANITIZED };

/* Path of a program there; static, for as long as proc_program's. */
const char *device_program(const char *name);

/* What its environment must have besides; static. `more` (NULL, or one or two "NAME=value" words,
 * NULL at their end) come with it. */
const char *const *device_env(const char *const more[]);

#endif
