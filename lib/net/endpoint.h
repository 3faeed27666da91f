/* Endpoints: addresses to listen on or connect to, as users write them.
 *
 *   host:port   [2001:db8::1]:port   host (with a default port)   :port or *:port (all interfaces)
 *   unix:PATH   /PATH                                             an AF_UNIX stream socket
 *
 * Pure text: names are resolved when connecting or listening. */
#ifndef CT_NET_ENDPOINT_H
#define CT_NET_ENDPOINT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_ENDPOINT_HOST = 256, /* longest name and its terminator */
    CT_ENDPOINT_PATH = 108, /* sun_path */
    CT_ENDPOINT_TEXT = CT_ENDPOINT_HOST + 16,
};

struct ct_endpoint {
    bool is_unix;
    uint16_t port;               /* 0: the listener chooses */
    char host[CT_ENDPOINT_HOST]; /* without brackets; "" for all interfaces */
    char path[CT_ENDPOINT_PATH]; /* of a unix endpoint */
};

/* Read `text`. A missing port is `default_port`; negative: a port must be given. 0 or CT_EUSAGE. */
int ct_endpoint_parse(const char *text, int default_port, struct ct_endpoint *ret_endpoint,
                      struct ct_error *err);

/* Print the endpoint as text that parses to the same; returns `text`. */
const char *ct_endpoint_print(const struct ct_endpoint *endpoint, char text[CT_ENDPOINT_TEXT]);

/* Copy the first endpoint of a list, "a:29400,b:29400", truncated above the length of an endpoint;
 * `list` is advanced past it, to "" after the last. */
void ct_endpoint_next(const char **list, char one[CT_ENDPOINT_TEXT]);

#endif
