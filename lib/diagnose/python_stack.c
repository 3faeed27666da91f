/* See python_stack.h. A line is a header (a process, a thread) or a frame, or nothing of interest;
 * frames come with the innermost first. */
#include "diagnose/python_stack.h"

#include "base/assert.h"
#include "launch/failure/python_file.h"

#include <ctype.h>
#include <string.h>

enum { DIGITS = 9 /* of a line's number, of a pid */ };

/* A part of the text. */
struct span {
    const char *at;
    size_t size;
};

struct frame {
    struct span file, function;
    uint32_t line;
};

/* One thread as far as it was read. */
struct thread {
    struct ct_python_place place;
    char call[CT_PLACE_NAME]; /* inside of the next frame of the user */
    bool named;               /* `call` is a function of the public API */
    bool own;                 /* the place is the user's code */
    bool closed;              /* further frames are not looked at */
    bool main;
};

struct reader {
    int pid;     /* that is looked for */
    bool child;  /* any other one, with code of the user */
    int current; /* of the section; 0: the text has no sections */
    struct thread thread, best;
    int best_pid;
};

/* ---- text ----------------------------------------------------------------------------------- */

static bool has(struct span span, const char *words)
{
    return memmem(span.at, span.size, words, strlen(words)) != NULL;
}

static bool is(struct span span, const char *words)
{
    return span.size == strlen(words) && memcmp(span.at, words, span.size) == 0;
}

static bool begins(struct span span, const char *words)
{
    size_t size = strlen(words);

    return span.size >= size && memcmp(span.at, words, size) == 0;
}

static bool ends(struct span span, const char *words)
{
    size_t size = strlen(words);

    return span.size >= size && memcmp(span.at + span.size - size, words, size) == 0;
}

static struct span skip(struct span span, size_t size)
{
    return (struct span){span.at + size, span.size - size};
}

/* Digits at the front; false when there are none, or too many. */
static bool read_number(struct span span, uint32_t *ret_number, size_t *ret_size)
{
    uint32_t number = 0;
    size_t size = 0;

    for (; size < span.size && isdigit((unsigned char)span.at[size]); size++) {
        if (size == DIGITS)
            return false;
        number = number * 10 + (uint32_t)(span.at[size] - '0');
    }
    *ret_number = number;
    *ret_size = size;
    return size > 0;
}

/* Copy the end of it, without what could disturb a line or a terminal. */
static void copy(char *to, size_t room, struct span from)
{
    size_t size = CT_MIN(from.size, room - 1);

    from = skip(from, from.size - size);
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)from.at[i];

        to[i] = byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;
    }
    to[size] = '\0';
}

/* ---- frames --------------------------------------------------------------------------------- */

/* "    step (/home/me/train.py:31)" */
static bool read_spy_frame(struct span line, struct frame *ret_frame)
{
    uint32_t number;
    size_t size;

    if (!begins(line, "    ") || line.at[line.size - 1] != ')')
        return false;
    line = skip(line, 4);
    const char *open = memmem(line.at, line.size, " (", 2);
    const char *colon = memrchr(line.at, ':', line.size);
    if (open == NULL || colon == NULL || colon < open + 2)
        return false;
    struct span digits = {colon + 1, (size_t)(line.at + line.size - 1 - (colon + 1))};
    if (!read_number(digits, &number, &size) || size != digits.size)
        return false;
    *ret_frame = (struct frame){.file = {open + 2, (size_t)(colon - (open + 2))},
                                .function = {line.at, (size_t)(open - line.at)},
                                .line = number};
    return ret_frame->file.size > 0;
}

/* "  File "/home/me/train.py", line 31 in step" */
static bool read_fault_frame(struct span line, struct frame *ret_frame)
{
    static const char last[] = " in ";
    struct ct_python_line place;
    uint32_t number;
    size_t size;

    if (!begins(line, "  File \"") || !ct_python_line_find(line.at, line.size, &place))
        return false;
    line = skip(line, (size_t)(place.digits - line.at));
    if (!read_number(line, &number, &size))
        return false;
    line = skip(line, size);
    if (!begins(line, last))
        return false;
    *ret_frame = (struct frame){.file = {place.file, place.file_size},
                                .function = skip(line, strlen(last)),
                                .line = number};
    return true;
}

/* Does this frame name what the user has called? The outermost public function does. */
static void note_call(struct thread *thread, const struct frame *frame)
{
    bool is_public =
        ends(frame->file, "torch/distributed/distributed_c10d.py") && frame->function.at[0] != '_';
    bool is_inner = has(frame->file, "torch/distributed/") ||
                    ends(frame->file, "torch/nn/parallel/distributed.py");
    bool is_backward =
        ends(frame->file, "torch/autograd/__init__.py") && is(frame->function, "backward");

    if (frame->function.size == 0)
        return;
    if (is_public || ((is_inner || is_backward) && !thread->named))
        copy(thread->call, sizeof thread->call, frame->function);
    thread->named |= is_public;
}

static void add_frame(struct reader *reader, const struct frame *frame)
{
    struct thread *thread = &reader->thread;
    bool own = !ct_python_is_library(frame->file.at, frame->file.size);

    if (thread->closed)
        return;
    if (ends(frame->file, "multiprocessing/process.py")) {
        thread->closed = true; /* below are its parent's */
        return;
    }
    if (!own)
        note_call(thread, frame);
    if (own || !thread->place.known) {
        struct ct_python_place *place = &thread->place;

        place->known = true;
        place->line = frame->line;
        copy(place->file, sizeof place->file, frame->file);
        copy(place->function, sizeof place->function, frame->function);
    }
    thread->own = thread->closed = own;
}

/* ---- threads and processes ------------------------------------------------------------------ */

static bool is_wanted(const struct reader *reader)
{
    return reader->child ? reader->current != 0 && reader->current != reader->pid
                         : reader->current == 0 || reader->current == reader->pid;
}

/* The main thread counts; where none is known as such, the last one: faulthandler prints it so. */
static void end_thread(struct reader *reader)
{
    struct thread *thread = &reader->thread;

    memcpy(thread->place.call, thread->call, sizeof thread->call);
    if (thread->place.known && is_wanted(reader) && !reader->best.main &&
        (!reader->child || (thread->own && reader->best_pid == 0))) {
        reader->best = *thread;
        reader->best_pid = reader->current;
    }
    *thread = (struct thread){.main = false};
}

static void read_line(struct reader *reader, struct span line)
{
    struct frame frame;
    uint32_t number;
    size_t size;

    if (begins(line, "Process ") && read_number(skip(line, 8), &number, &size) &&
        8 + size < line.size && line.at[8 + size] == ':') {
        end_thread(reader);
        reader->current = (int)number;
    } else if (begins(line, "Thread ") || begins(line, "Current thread ")) {
        end_thread(reader);
        reader->thread.main = line.at[0] == 'C' || has(line, "\"MainThread\"");
    } else if (read_spy_frame(line, &frame) || read_fault_frame(line, &frame)) {
        add_frame(reader, &frame);
    }
}

static void read_text(struct reader *reader, const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "\n");

        if (size > 0)
            read_line(reader, (struct span){text, size});
        text += size + (text[size] == '\n');
    }
    end_thread(reader);
}

bool ct_python_place_find(const char *text, int pid, struct ct_python_place *ret_place)
{
    struct reader reader = {.pid = pid};

    read_text(&reader, text);
    if (reader.best.place.known)
        *ret_place = reader.best.place;
    return reader.best.place.known;
}

int ct_python_child_find(const char *text, int pid, struct ct_python_place *ret_place)
{
    struct reader reader = {.pid = pid, .child = true};

    read_text(&reader, text);
    if (reader.best_pid != 0)
        *ret_place = reader.best.place;
    return reader.best_pid;
}

bool ct_python_place_equal(const struct ct_python_place *a, const struct ct_python_place *b)
{
    return a->known == b->known && a->line == b->line && strcmp(a->file, b->file) == 0 &&
           strcmp(a->call, b->call) == 0;
}
