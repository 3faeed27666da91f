/* What the end-to-end tests share: a folder for each test, and short ways to run the real `ctrun`.
 *
 * Use with TestSuite(name, .init = e2e_enter, .fini = e2e_leave): each test then works in an empty
 * temporary folder of its own, which is removed afterwards. */
#ifndef TESTS_E2E_H
#define TESTS_E2E_H

#include "proc.h"

#include <stdbool.h>
#include <stddef.h>

void e2e_enter(void);
void e2e_leave(void);

/* "<source tree>/<path>", or "<folder of this test>/<path>": eight results stay valid. */
const char *e2e_in_root(const char *path);
const char *e2e_in_folder(const char *path);

/* Write `text` to a file in the test's folder and return its path. A script is executable. */
const char *e2e_write(const char *name, const char *text);
const char *e2e_script(const char *name, const char *text);

/* The content of a file as a string (static storage of 1 MiB, one at a time), or "" without one. */
const char *e2e_read(const char *path);
bool e2e_exists(const char *path);

/* The one path that matches a shell pattern ("logs/none_*"), or fail. Static storage, one at a
 * time. */
const char *e2e_glob(const char *pattern);

/* Start or run `ctrun` with the arguments that follow, NULL at the end. */
void e2e_start(struct proc *proc, const char *first, ...) __attribute__((sentinel));
int e2e_run(struct proc *proc, const char *first, ...) __attribute__((sentinel));

/* Fail unless the process said `words`; or if it did. */
void e2e_said(const struct proc *proc, const char *words);
void e2e_not_said(const struct proc *proc, const char *words);

/* As e2e_said, of what the text format alone has (tables, prefixes, colours): nothing with
 * TEST_JSON=1 (speech.h). */
void e2e_wrote(const struct proc *proc, const char *words);

/* How often `words` occur in the text. */
int e2e_count(const char *text, const char *words);

/* Wait until a file exists and has content, then give it (as e2e_read). */
const char *e2e_wait_file(const char *path, double seconds);

/* Wait until no process of this pid lives. */
void e2e_wait_gone(pid_t pid, double seconds);

/* The pids of an agent's native workers, in the order of their start; how many, `room` at most. */
int e2e_workers(const struct proc *agent, pid_t *pids, int room);

/* A stream socket on a loopback port of its own; *ret_port is its number. */
int e2e_loopback_socket(int *ret_port);

/* A port that nobody has now; a node that hosts the rendezvous cannot bind port 0. */
int e2e_free_port(void);

/* A `ctrund` on a loopback port of its own choice; the endpoint is "127.0.0.1:PORT", static. */
const char *e2e_daemon(struct proc *daemon);

/* GET `path` from the socket of that name in the test's folder, with its headers; "" when nobody
 * answers within half a second. */
void e2e_get(const char *socket_name, const char *path, char *text, size_t room);

#endif
