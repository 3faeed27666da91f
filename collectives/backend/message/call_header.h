/* The header of the first message of a call between two ranks, in each direction: the call's
 * signature, so that both ranks detect a mismatch; or the error with which the sender's group has
 * failed. */
#ifndef CT_COLL_MESSAGE_CALL_HEADER_H
#define CT_COLL_MESSAGE_CALL_HEADER_H

#include "algorithm/call.h"

enum { CT_CALL_HEADER_BYTES = 40 };

struct ct_call_header {
    int code;      /* not 0: the error with which the sender's group has failed */
    uint64_t call; /* the collective's number in the group; 0: a message */
    struct ct_signature signature;
    double scale;
};

/* Encode `header` into CT_CALL_HEADER_BYTES bytes. */
void ct_call_header_write(unsigned char *bytes, const struct ct_call_header *header);

/* Compare the bytes received from `peer` with `header`, the call of `rank`, and store the peer's
 * factor in it. 0, CT_EMISMATCH, CT_EPROTOCOL, or the code of the peer's failed group. */
int ct_call_header_check(const unsigned char *bytes, int rank, int peer,
                         struct ct_call_header *header, struct ct_error *err);

#endif
