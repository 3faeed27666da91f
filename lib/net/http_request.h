/* The head of an HTTP/1.1 request, and the body of a POST, as they lie in a buffer. Pure; what a
 * stranger may send (RFC 9112, as much of it as a page needs). */
#ifndef CT_NET_HTTP_REQUEST_H
#define CT_NET_HTTP_REQUEST_H

#include "keys/grant.h"
#include "net/web_tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_http_request {
    const char *path;    /* without the query */
    uint64_t last_event; /* Last-Event-ID, of a stream that is opened again; 0: none */
    const char *body;    /* of a POST, not terminated; NULL: a GET */
    size_t body_size;
    uint64_t number;               /* of this request, for ct_http_answer_later */
    const char *peer;              /* whose it is: an address, or "unix" */
    int64_t uid;                   /* of one on this machine; -1: not known */
    const struct ct_grant *reader; /* what his key lets him see; NULL: everything */
};

struct ct_http_rules {
    bool may_post; /* GET only, otherwise */
    bool any_host; /* the Host must be an address or "localhost", otherwise */
    size_t room;   /* for the whole request */
    /* May who sends this token (terminated; "" for none) ask? NULL: everybody may. */
    bool (*admits)(void *context, const char *token, size_t size);
    void *context;
};

/* Read the request in `text`: `size` bytes, terminated, with the blank line in them. Returns 200
 * with `ret_request`, which points into `text`; 0 while the rest of its body is to come; else the
 * status that says what is wrong. `text` is changed with 200 alone. */
int ct_http_parse(char *text, size_t size, const struct ct_http_rules *rules,
                  struct ct_http_request *ret_request);

/* Return the words of a status. */
const char *ct_http_reason(int status);

#endif
