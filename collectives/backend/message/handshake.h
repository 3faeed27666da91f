/* The handshake of two ranks before the data of a call: its signature, so that both detect a
 * mismatch; or the sender's reason for ending the group. */
#ifndef CT_COLL_MESSAGE_HANDSHAKE_H
#define CT_COLL_MESSAGE_HANDSHAKE_H

#include "algorithm/call.h"

enum { CT_GREETING_BYTES = 40 };

struct ct_greeting {
    int code;      /* not 0: the sender's group has failed with it */
    uint64_t call; /* which collective, counted; 0: a message */
    struct ct_signature signature;
    double scale;
};

void ct_greeting_write(unsigned char *bytes, const struct ct_greeting *greeting);

/* Compare what came from `peer` with the own call at `rank`: 0, CT_EMISMATCH, or the peer's code.
 * Then `greeting` has the peer's factor. */
int ct_greeting_check(const unsigned char *bytes, int rank, int peer, struct ct_greeting *greeting,
                      struct ct_error *err);

#endif
