/* The local sockets by which commands find the rendezvous of a running job.
 *
 *      BASE/ctrun-UID/PID.RANDOM.sock      BASE: XDG_RUNTIME_DIR, TMPDIR or /tmp
 *      BASE/ctrun-UID/PID.RANDOM.held.sock
 *      /tmp/ctrun-UID.RANDOM/...           where all of these belong to another user
 *
 * The folder has mode 0700.
 *
 * The ctrun that hosts a job listens there, on one machine instead of a port; one that holds the
 * job's record beside others on the second. A socket whose
 * process is gone (SIGKILL) is removed by the next ctrun that starts. */
#ifndef CT_CTRUN_AGENT_LOCAL_SOCKET_H
#define CT_CTRUN_AGENT_LOCAL_SOCKET_H

#include "base/error.h"

#include <stddef.h>

enum { LOCAL_SOCKET_BYTES = 104, LOCAL_SOCKETS_MAX = 64 };

enum local_socket { LOCAL_SOCKET_HOST, LOCAL_SOCKET_HOLDER };

/* Make the folder, remove what dead processes left in it, and return the path of this process's
 * socket. 0; CT_ECANTCREAT when no base has a folder that this user owns. */
int local_socket_path(char *const *env, enum local_socket kind, char ret_path[LOCAL_SOCKET_BYTES],
                      struct ct_error *err);

/* Find the sockets of living processes, at most LOCAL_SOCKETS_MAX. Returns their number. */
size_t local_socket_find(char *const *env, enum local_socket kind,
                         char ret_paths[LOCAL_SOCKETS_MAX][LOCAL_SOCKET_BYTES]);

#endif
