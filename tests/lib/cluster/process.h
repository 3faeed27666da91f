/* A program that a harness runs: start it, take what it says, wait for words or for its end.
 *
 * It is started in a process group of its own and dies with the harness's thread that started it
 * (a parent-death signal); its standard output and error go to one pipe. Waiting has a deadline
 * and says by its result whether it was in vain: tests of Criterion use proc.h, which then fails
 * the test. */
#ifndef TESTS_CLUSTER_PROCESS_H
#define TESTS_CLUSTER_PROCESS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <sys/types.h>

struct proc;

/* How to start it. Zero is right for most. */
struct process_how {
    const char *name;       /* whose words these are, in reports: "agent 3"; NULL: "" */
    const char *const *env; /* "NAME=value" over the environment, NULL-terminated, or NULL */
    const char *cwd;        /* NULL: where the harness is */
    const char *log;        /* a file that all of its output is appended to, or NULL */
    /* Called for each whole line, which then is not kept in `text`. */
    void (*on_line)(void *context, struct proc *proc, const char *line);
    void *context;
};

struct proc {
    char name[32];
    pid_t pid;          /* it is this one's while process_runs */
    int output;         /* the read end of the pipe, -1 at its end */
    int log;            /* the log file; 0: none */
    struct ct_buf text; /* all that was read so far, as process_speech puts it */
    struct ct_buf line; /* what has no end yet */
    char last[512];     /* with on_line: the newest line that is no progress */
    int speaks;         /* for process_speech: how its output is read */
    int status;         /* the exit status, or 128 + signal; -1 while it runs */
    double seconds;     /* how long it ran */
    double started_s;
    void (*on_line)(void *context, struct proc *proc, const char *line);
    void *context;
};

/* Another way for programs to speak, and what their output means; NULL: what they write is the
 * text. tests/e2e/speech.c sets it. */
struct process_speech {
    /* Before a start: words and variables to add, both NULL-terminated; words at most one pair. */
    void (*begin)(struct proc *proc, const char *const argv[], const char *words[3],
                  const char **variable);
    /* `size` bytes came; at the end of the output none. */
    void (*take)(struct proc *proc, const char *data, size_t size);
};
extern const struct process_speech *process_speech;

/* Start `argv` (NULL-terminated; argv[0] is looked up in PATH unless it has a slash). `how` may be
 * NULL. 0, or a negative errno; *proc may be freed in either case. */
int process_spawn(struct proc *proc, const char *const argv[], const struct process_how *how);

/* True while it has not been seen to end. */
bool process_runs(const struct proc *proc);

/* Read what comes within `milliseconds`; false at the end of the output, or when it is more than
 * the buffers hold (`failed` of one is set). */
bool process_pump(struct proc *proc, int milliseconds);

/* Take all that is there now. */
void process_drain(struct proc *proc);

/* True once when it has ended: `status` is set. Never blocks. */
bool process_reap(struct proc *proc);

/* Read until the output has `needle`: its place in the text, NULL after `seconds` or at the end of
 * the output. Without on_line only. */
const char *process_await_text(struct proc *proc, const char *needle, double seconds);

/* Read until it has ended, and what it has said until then; false after `seconds`. */
bool process_await_end(struct proc *proc, double seconds);

/* SIGKILL unless it has ended, wait, give everything back; a zeroed or freed one is left alone. */
void process_free(struct proc *proc);

/* Wait until `condition(context)` holds, asked every few milliseconds; false after `seconds`. */
bool process_until(bool (*condition)(void *context), void *context, double seconds);

/* Seconds of the monotonic clock. */
double process_now_s(void);

/* ---- words ---------------------------------------------------------------------------------- */

enum { WORDS_ROOM = 80 };

/* A command line under construction, with NULL at its end. The words are borrowed. */
struct words {
    const char *list[WORDS_ROOM];
    size_t count;
};

void words_add(struct words *words, const char *word);
void words_append(struct words *words, const char *const list[]); /* NULL: nothing */

#endif
