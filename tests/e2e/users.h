/* `ctrun` as other users of this machine, for tests that run as root.
 *
 * Each user has a folder "<test's folder>/<uid>" as its home. The program is copied into the test's
 * folder, which others may pass: they may not enter the tree that it was built in. */
#ifndef TESTS_E2E_USERS_H
#define TESTS_E2E_USERS_H

#include "proc.h"

/* Let others pass the test's folder, and put `ctrun` there for them. */
void users_begin(void);

/* Make a user's home, unless it is there. */
void users_make_home(unsigned uid);

/* Start or run `ctrun` as a user, with the NULL-terminated words. */
void users_start(struct proc *proc, unsigned uid, const char *const *words);
int users_run(struct proc *proc, unsigned uid, const char *const *words);

#endif
