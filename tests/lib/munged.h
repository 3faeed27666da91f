/* A real munged, on a socket and with a key of its own, which ends with the test. */
#ifndef TESTS_MUNGED_H
#define TESTS_MUNGED_H

#include "proc.h"

#include <stdbool.h>

enum { MUNGED_SOCKET = 108 };

struct munged {
    struct proc proc;
    char socket[MUNGED_SOCKET];
};

/* Skip the test where munged is not installed. */
void munged_demand(void);

/* Start one whose files are in `folder` ("munge.socket", "munge.key", which is made unless it is
 * there, ...), and wait until it can be asked. */
void munged_start(struct munged *munged, const char *folder);

/* End it. One that never ran is ignored. */
void munged_stop(struct munged *munged);

#endif
