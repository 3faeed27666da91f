/* How members tell each other about themselves while a group forms, through the store.
 *
 *      member i waits for those below it, i * FAN + 1 ... i * FAN + FAN, sets what it and they
 *      have to say as one value, and waits for the value of all, which member 0 sets
 *
 * So each sets and reads a few values, member 0 no more than others, and what all have to say comes
 * as one value. All calls can be repeated, as the store requires (kv.h). */
#ifndef CT_COLL_MEMBER_EXCHANGE_H
#define CT_COLL_MEMBER_EXCHANGE_H

#include "backend/backend.h"

/* Exchange how it went so far (`code`, with its sentence in `err` when it is not 0), and with
 * `blobs` [size] what each publishes: this member's own blob is there already, the others are
 * filled in. `wanted` is the backend that was asked for: all must ask for the same. Waits, to the
 * setup's deadline. Returns 0 when all went well; else the failure of the first member that has
 * one, in its words, CT_EMISMATCH, or one of the store, as CT_ETIMEOUT with the name of a member
 * that did not come, CT_ELIMIT when what all publish is too long for the store. */
int ct_member_exchange(const struct ct_setup *setup, const char *step, const char *wanted, int code,
                       struct ct_blob *blobs, struct ct_error *err);

/* The store has failed with `code`; at CT_ETIMEOUT it waited for `member`. Returns the code. */
int ct_setup_store_error(const struct ct_setup *setup, int code, int member, struct ct_error *err);

/* Milliseconds until the setup's deadline; 0: it is over. */
uint64_t ct_setup_remaining_ms(const struct ct_setup *setup);

#endif
