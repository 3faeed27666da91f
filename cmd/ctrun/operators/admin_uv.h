/* One question to the rendezvous of a running job, for status, the orders, events, flight and logs.
 *
 * The rendezvous is the one of --rdzv_endpoint (each of a list in turn). Without one it is any that
 * a ctrun of this user hosts on this machine (local_socket.h): status asks all of them at once and
 * for 3 s, flight, events and orders those of the named job; an order without a name goes to the
 * only one. */
#ifndef CT_CTRUN_ADMIN_UV_H
#define CT_CTRUN_ADMIN_UV_H

#include "base/bytes.h"
#include "config/config.h"
#include "wire/wire.h"

/* A parsed command line: where the job is found, and the request. */
struct admin_request {
    struct ct_config cfg;
    struct ct_message
        ask;    /* ADMIN, FLIGHT_QUERY or LINES_QUERY; its strings are argv's or literals */
    bool watch; /* status: again and again */
    char author[256];

    /* Receive an answer other than ADMIN_REPLY and REFUSE; NULL: none arrived for `part_ms`.
     * Returns true after the last. `ret_next` is sent next, unless its type is 0; then `on_sent`
     * (may be NULL) may name another. */
    bool (*on_answer)(void *context, const struct ct_message *answer, struct ct_message *ret_next);
    void (*on_sent)(void *context, struct ct_message *ret_next);
    uint32_t part_ms; /* 0: 3 s */
    void *context;

    /* With the verb FOLLOW: receive the text of one of any number of answers; the question goes on
     * until the connection closes. Returns 0, or a code that ends it, with the sentence. */
    int (*on_text)(void *context, const char *text, size_t size, struct ct_error *err);
};

/* Set the author of the request: USER@HOST. */
void admin_sign(struct admin_request *request);

/* Ask and append the answer's text to `ret_text`, unless on_text has it. 0, or the code of the
 * answer or of the connection with its sentence. */
int admin_ask(const struct admin_request *request, struct ct_buf *ret_text, struct ct_error *err);

#endif
