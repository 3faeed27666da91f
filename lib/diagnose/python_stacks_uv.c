/* See python_stacks_uv.h. */
#include "diagnose/python_stacks_uv.h"

#include "base/assert.h"
#include "base/capture.h"
#include "base/clock.h"
#include "base/error.h"
#include "diagnose/python_stack.h"
#include "diagnose/torch_flight.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DUMP_BYTES = PATH_MAX + 16 /* PREFIX and a rank */ };

struct collection {
    uv_work_t work;
    char program[PATH_MAX];
    char dumps[PATH_MAX]; /* PREFIX; "": there are none */
    struct ct_python_stack *stacks;
    size_t count;
    uint64_t deadline_ms;
    void (*done)(void *context, struct ct_python_stack *stacks, size_t count);
    void *context;
};

/* Run py-spy once. False: it has printed no frame of the process. `*ret_rc` is of ct_capture. */
static bool dump(const struct collection *collection, pid_t pid, bool paused, struct ct_buf *to,
                 int *ret_rc)
{
    char number[16], what[] = "dump", full[] = "--full-filenames", all[] = "--subprocesses",
                     p[] = "--pid", loose[] = "--nonblocking";
    char program[PATH_MAX];
    char *argv[] = {program, what, full, all, p, number, paused ? NULL : loose, NULL};
    struct ct_python_place place;

    memcpy(program, collection->program, sizeof program);
    (void)snprintf(number, sizeof number, "%d", (int)pid);
    ct_buf_clear(to);
    *ret_rc = ct_capture(program, argv, collection->deadline_ms, NULL, to);
    return ct_python_place_find(ct_buf_str(to), (int)pid, &place);
}

static void dump_file(const struct collection *collection, size_t i, char path[DUMP_BYTES])
{
    (void)snprintf(path, DUMP_BYTES, "%s%u", collection->dumps, collection->stacks[i].rank);
}

/* All who take requests are asked first, so that they write side by side. */
static void ask_for_dumps(const struct collection *collection, bool *asked)
{
    char path[DUMP_BYTES];

    for (size_t i = 0; i < collection->count; i++) {
        dump_file(collection, i, path);
        asked[i] = !collection->stacks[i].stopped && ct_torch_flight_ask(path);
    }
}

static void read_dumps(const struct collection *collection, const bool *asked)
{
    char path[DUMP_BYTES];

    for (size_t i = 0; i < collection->count; i++) {
        struct ct_python_stack *stack = &collection->stacks[i];
        struct ct_buf text;

        dump_file(collection, i, path);
        ct_buf_init(&text, CT_PYTHON_STACKS_BYTES);
        ct_torch_flight_read(path, stack->pid, asked[i] ? CT_FLIGHT_PATIENCE_MS : 0,
                             collection->deadline_ms, &text);
        stack->flight = text.size > 0 ? strdup(ct_buf_str(&text)) : NULL;
        ct_buf_deinit(&text);
    }
}

static void collect_stacks(const struct collection *collection)
{
    int rc = 0;

    for (size_t i = 0; i < collection->count && rc != CT_ENOINPUT; i++) {
        struct ct_python_stack *stack = &collection->stacks[i];
        struct ct_buf text;

        ct_buf_init(&text, CT_PYTHON_STACKS_BYTES);
        bool found = !stack->stopped && dump(collection, stack->pid, true, &text, &rc);
        if (!found && rc != CT_ENOINPUT)
            found = dump(collection, stack->pid, false, &text, &rc);
        stack->text = found ? strdup(ct_buf_str(&text)) : NULL;
        ct_buf_deinit(&text);
    }
}

static void collect(uv_work_t *work)
{
    const struct collection *collection = work->data;
    bool *asked = calloc(collection->count, sizeof *asked);

    if (asked != NULL && collection->dumps[0] != '\0')
        ask_for_dumps(collection, asked);
    collect_stacks(collection);
    if (asked != NULL && collection->dumps[0] != '\0')
        read_dumps(collection, asked);
    free(asked);
}

static void on_collected(uv_work_t *work, int status)
{
    struct collection *collection = work->data;

    (void)status; /* never cancelled */
    collection->done(collection->context, collection->stacks, collection->count);
    free(collection);
}

static void free_texts(struct ct_python_stack *stack)
{
    free(stack->text);
    free(stack->flight);
}

void ct_python_stacks_free(struct ct_python_stack *stacks, size_t count)
{
    for (size_t i = 0; stacks != NULL && i < count; i++)
        free_texts(&stacks[i]);
    free(stacks);
}

int ct_python_stacks(uv_loop_t *loop, const struct ct_python_stacks_request *request,
                     void (*done)(void *context, struct ct_python_stack *stacks, size_t count),
                     void *context)
{
    struct collection *collection = calloc(1, sizeof *collection);

    CT_ASSERT(request->count > 0);
    if (collection == NULL)
        return CT_ENOMEM;
    collection->stacks = calloc(request->count, sizeof *request->stacks);
    if (collection->stacks == NULL) {
        free(collection);
        return CT_ENOMEM;
    }
    memcpy(collection->stacks, request->stacks, request->count * sizeof *request->stacks);
    collection->count = request->count;
    collection->done = done;
    collection->context = context;
    collection->deadline_ms = ct_clock_mono_ms(&ct_clock_system) + CT_PYTHON_STACKS_MS;
    collection->work.data = collection;
    (void)snprintf(collection->dumps, sizeof collection->dumps, "%s", request->dumps);
    (void)snprintf(collection->program, sizeof collection->program, "%s/py-spy", request->beside);
    if (request->beside[0] == '\0' || access(collection->program, X_OK) != 0)
        (void)snprintf(collection->program, sizeof collection->program, "py-spy");
    int rc = uv_queue_work(loop, &collection->work, collect, on_collected);
    if (rc != 0) {
        ct_python_stacks_free(collection->stacks, request->count);
        free(collection);
    }
    return rc;
}
