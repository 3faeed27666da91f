/* Running the real binaries from a test: start, wait for text, signal, collect.
 *
 * A process is started in a process group of its own with a parent-death signal, its standard
 * output and error go to one pipe. Everything waits with a deadline and fails the test with what
 * the process had said. */
#ifndef TESTS_PROC_H
#define TESTS_PROC_H

#include "base/bytes.h"

#include <stdbool.h>
#include <sys/types.h>

struct proc {
    pid_t pid;
    int output;         /* the read end of the pipe, -1 at its end */
    struct ct_buf text; /* all that was read so far, as proc_speech puts it */
    struct ct_buf line; /* for proc_speech: what it has not put there yet */
    int speaks;         /* likewise: how its output is read */
    int status;         /* the exit status, or 128 + signal; -1 while it runs */
    double seconds;     /* how long it ran */
    double started_s;
};

/* Another output format of programs and its parser; NULL: plain text. tests/e2e/speech.c sets
 * it. */
struct proc_speech {
    /* Before a start: words and variables to add, both NULL-terminated; words at most one pair. */
    void (*begin)(struct proc *proc, const char *const argv[], const char *arguments[3],
                  const char **variable);
    /* `size` bytes came; at the end of the output none. */
    void (*receive)(struct proc *proc, const char *data, size_t size);
};
extern const struct proc_speech *proc_speech;

/* Path of a program under test ("ctrun"); from TEST_PROGRAMS or build/release/bin. Static. */
const char *proc_program(const char *name);

/* Start `argv` (NULL-terminated; argv[0] is looked up in PATH unless it has a slash). `env` are
 * extra "NAME=value" words, NULL-terminated, or NULL. */
void proc_start(struct proc *proc, const char *const argv[], const char *const env[]);

/* Read until the output has `needle` (returns its place) or ends, or fail after `seconds`. */
const char *proc_wait_text(struct proc *proc, const char *needle, double seconds);

/* Wait for the end; the exit status. Fails after `seconds`, having killed it. */
int proc_finish(struct proc *proc, double seconds);

/* proc_start and proc_finish. */
int proc_run(struct proc *proc, const char *const argv[], const char *const env[], double seconds);

void proc_free(struct proc *proc);

/* A number that follows `label` in the text ("accuracy" -> 98.3), or fail. */
double proc_number_after(const struct proc *proc, const char *label);

/* Wait until `condition(context)` holds, asked every few milliseconds, or fail after `seconds`. */
void proc_until(bool (*condition)(void *context), void *context, double seconds, const char *what);

/* True while a process that is not a zombie has this pid. */
bool proc_alive(pid_t pid);

/* A new empty directory under /tmp; proc_remove_tree for the end. Static storage, one at a time. */
const char *proc_temp_dir(void);
void proc_remove_tree(const char *path);

double proc_now_s(void);

#endif
