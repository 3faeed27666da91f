/* See python_stacks_uv.h. */
#include "diagnose/python_stacks_uv.h"

#include "base/assert.h"
#include "base/capture.h"
#include "base/clock.h"
#include "base/error.h"
#include "diagnose/python_stack.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct collection {
    uv_work_t work;
    char program[PATH_MAX];
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

static void collect(uv_work_t *work)
{
    struct collection *collection = work->data;
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

static void on_collected(uv_work_t *work, int status)
{
    struct collection *collection = work->data;

    (void)status; /* never cancelled */
    collection->done(collection->context, collection->stacks, collection->count);
    free(collection);
}

void ct_python_stacks_free(struct ct_python_stack *stacks, size_t count)
{
    for (size_t i = 0; stacks != NULL && i < count; i++)
        free(stacks[i].text);
    free(stacks);
}

int ct_python_stacks(uv_loop_t *loop, const struct ct_python_stack *stacks, size_t count,
                     const char *beside,
                     void (*done)(void *context, struct ct_python_stack *stacks, size_t count),
                     void *context)
{
    struct collection *collection = calloc(1, sizeof *collection);

    CT_ASSERT(count > 0);
    if (collection == NULL)
        return CT_ENOMEM;
    collection->stacks = calloc(count, sizeof *stacks);
    if (collection->stacks == NULL) {
        free(collection);
        return CT_ENOMEM;
    }
    memcpy(collection->stacks, stacks, count * sizeof *stacks);
    collection->count = count;
    collection->done = done;
    collection->context = context;
    collection->deadline_ms = ct_clock_mono_ms(&ct_clock_system) + CT_PYTHON_STACKS_MS;
    collection->work.data = collection;
    (void)snprintf(collection->program, sizeof collection->program, "%s/py-spy", beside);
    if (beside[0] == '\0' || access(collection->program, X_OK) != 0)
        (void)snprintf(collection->program, sizeof collection->program, "py-spy");
    int rc = uv_queue_work(loop, &collection->work, collect, on_collected);
    if (rc != 0) {
        ct_python_stacks_free(collection->stacks, count);
        free(collection);
    }
    return rc;
}
