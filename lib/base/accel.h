/* The device interface of collectives: streams, events and copies behind one table of functions, so
 * that only the device's plug-in knows its driver.
 *
 *     stream   work in order: copies, and operations of a communication library
 *     event    record(event, stream): complete when all earlier work of the stream is
 *
 * Functions return 0, or a negative code. Only `zero` waits for the device; any thread may call
 * them; each thread that submits work to streams calls `enter` first. The table outlives its
 * streams and events. */
#ifndef CT_BASE_ACCEL_H
#define CT_BASE_ACCEL_H

#include <stddef.h>
#include <stdint.h>

struct ct_accel {
    const char *name;   /* for sentences: "cuda:0 (NVIDIA H200)" */
    uint8_t unique[16]; /* the card's own, the same in all processes: who shares one has the same */
    void *context;      /* of the functions */

    /* Make the device the calling thread's current one. */
    int (*enter)(void *context);

    int (*stream_new)(void *context, void **ret_stream);
    void (*stream_free)(void *context, void *stream); /* what it still has is done first */
    int (*event_new)(void *context, void **ret_event);
    void (*event_free)(void *context, void *event);

    int (*record)(void *context, void *event, void *stream);
    /* Make later work of `stream` wait for the last record of `event`. */
    int (*wait)(void *context, void *stream, void *event);
    /* Return 1 if the event is complete or was never recorded, 0 if not, negative if the device
     * failed. */
    int (*query)(void *context, void *event);

    /* Copy asynchronously, in the stream's order; each end may lie in device or host memory. */
    int (*copy)(void *context, void *to, const void *from, size_t bytes, void *stream);

    /* Fill memory of the device with zeroes; they are there on return. */
    int (*zero)(void *context, void *memory, size_t bytes);

    /* Pin host memory, so that copies need no staging buffer. Only a hint: its result may be
     * ignored. */
    int (*pin)(void *context, void *memory, size_t bytes);
    void (*unpin)(void *context, void *memory);
};

#endif
