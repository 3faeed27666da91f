/* One question to the rendezvous of a running job, for status, drain, cordon and uncordon.
 *
 * The rendezvous is the one of --rdzv_endpoint (each of a list in turn). Without one it is what a
 * ctrun of this user hosts on this machine (meet.h): status asks all of them, an order goes to the
 * only one. */
#ifndef CT_CTRUN_ADMIN_UV_H
#define CT_CTRUN_ADMIN_UV_H

#include "base/bytes.h"
#include "config/config.h"
#include "wire/wire.h"

/* What a command line comes to: the job's whereabouts, the host, the command's own options. */
struct admin_request {
    struct ct_config cfg;
    struct ct_msg_admin message; /* what is asked; its strings are argv's or literals */
    bool watch;
    char author[256];
};

/* Ask and append the answer to `ret_text`. 0, or the code of the answer or of the connection with
 * its sentence. */
int admin_ask(const struct admin_request *request, struct ct_buf *ret_text, struct ct_error *err);

#endif
