/* Schedules, carried out on symbols: a value is the expression by which it came about, and equal
 * expressions are one number.
 *
 * All ranks run in the steps of a pipeline over several chunks, as backends do, with a queue for
 * each ordered pair. Whose turn it is, is drawn; so ranks are in different steps at the same time.
 * Slots are as many sets as backends have. */
#ifndef TEST_COLL_SYMBOLS_H
#define TEST_COLL_SYMBOLS_H

#include "algorithm/step_schedule.h"

#include <stdbool.h>

enum { SYMBOLS_CHUNKS = 6, SYMBOLS_SETS = 4, SYMBOLS_WORLD_MAX = 128 };

typedef int symbol; /* 0: nothing has been written */

/* Forget all expressions. */
void symbols_reset(void);

/* What rank r gives as block b of chunk c; a + b; and the next of a sum of all at once. */
symbol symbol_leaf(int rank, int block, int chunk);
symbol symbol_sum(symbol a, symbol b);
symbol symbol_sum_all(symbol before, symbol next);

/* Return whether it is a sum in which each of the ranks stands once, all with the same block and
 * chunk. */
bool symbol_takes_all_once(symbol sum, int world, int block, int chunk);

struct symbol_rank {
    struct ct_schedule schedule;
    symbol *input, *output, *slots; /* [chunk][block], [set][slot] */
    int step;
    bool sent;
    int sent_blocks;
};

struct symbol_world {
    int size;
    bool in_place;
    struct symbol_rank *ranks;
    struct symbol_queue *queues; /* [from][to] */
};

/* Run all ranks to the end; a standstill before it, a source that changes while it is being sent, a
 * block that another one was awaited for, fail the test. */
struct symbol_world *symbols_run(enum ct_algorithm algorithm, int size, int root, bool in_place);
void symbols_free(struct symbol_world *world);

/* Return how many ranks this one sends to or receives from. */
int schedule_peers(const struct ct_schedule *schedule);

/* A block of a rank's output. */
symbol symbols_output(const struct symbol_world *world, int rank, int chunk, int block);

#endif
