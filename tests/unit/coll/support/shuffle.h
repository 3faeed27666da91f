/* A list of messages in a drawn order. */
#ifndef TEST_COLL_SHUFFLE_H
#define TEST_COLL_SHUFFLE_H

#include "ctrun.h"

enum { SHUFFLE_MAX = 160 };

/* Mix `count` transfers (SHUFFLE_MAX at most). With each peer messages match in list order, so each
 * place of the mixture takes the next message of its peer and direction. */
void shuffle_transfers(struct ct_transfer *list, int count, uint64_t seed);

#endif
