/* A list of messages in a drawn order. */
#ifndef TEST_COLL_MIX_H
#define TEST_COLL_MIX_H

#include "ctrun.h"

enum { MIX_MAX = 64 };

/* Mix `count` transfers (MIX_MAX at most). With each peer messages match in list order, so each
 * place of the mixture takes the next message of its peer and direction. */
void mix_transfers(struct ct_transfer *list, int count, uint64_t seed);

#endif
