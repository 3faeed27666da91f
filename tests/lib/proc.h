/* Running the real binaries from a test of Criterion: cluster/process.h, where whoever waits in
 * vain fails the test with what the process had said. */
#ifndef TESTS_PROC_H
#define TESTS_PROC_H

#include "cluster/process.h"

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
