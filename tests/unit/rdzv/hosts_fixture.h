/* The hosts of a test: TestSuite(..., .init = hosts_set_up, .fini = hosts_tear_down). */
#ifndef TESTS_RDZV_HOSTS_FIXTURE_H
#define TESTS_RDZV_HOSTS_FIXTURE_H

#include "hosts.h"

extern struct hosts *world; /* not initialised */

void hosts_set_up(void);
void hosts_tear_down(void);

#endif
