/* What a program of ours says on its status socket: ctrund --status unix:PATH, ctrun --status. */
#ifndef TESTS_CLUSTER_STATUS_H
#define TESTS_CLUSTER_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* GET `what` ("/status", "/metrics") from the socket: the answer with its headers. False, and "",
 * when nobody answers within `patience_ms`. */
bool status_get(const char *socket_path, const char *what, int patience_ms, char *text,
                size_t room);

/* A figure of /metrics ("ctrun_generation"), the job's or the daemon's; `otherwise` if it has
 * none. */
double status_figure(const char *metrics, const char *name, double otherwise);

#endif
