/* A network of a test's own, where interfaces may be added and go down. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>

/* The threads that this one makes from now on get the new network; its loopback is up. The one
 * before, for network_leave(); -1, with a line that says so: this user may not make one. */
int network_make(void);
void network_leave(int before);

/* Of the calling thread's network. */
void network_set_up(const char *interface, bool up);

/* Add `count` interfaces with an address each, for this thread and those that it makes, also in
 * their /sys. False: there is no `ip`, or this user may not. */
bool network_add(int count);

#endif
