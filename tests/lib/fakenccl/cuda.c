/* See fake.h: on streams and memory of the CUDA runtime that runs on the host, in stream.c's place
 * where that is a library beside this one (tests/lib/hostcuda/runtime.h). */
#include "fake.h"

#include "runtime.h"

#include <stdlib.h>

void fake_stream_push(void *stream, void (*work)(void *argument), void *argument)
{
    (void)hostcuda_push(stream, (struct hostcuda_work){.release = work, .context = argument});
}

void *fake_near(const void *memory)
{
    return hostcuda_near(memory);
}

/* Pages. */
void *fake_memory_new(size_t bytes)
{
    void *memory = NULL;

    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

void fake_memory_free(void *memory)
{
    (void)cudaFree(memory);
}
