/* What algorithms among many ranks cost, by a model of latency and bandwidth (Hockney 1994; Thakur,
 * Rabenseifner, Gropp 2005 for the algorithms), to carry a measured cut-over to other numbers of
 * ranks.
 *
 *     time of a message of n bytes = h + n     in bytes of the wire; h: what a message costs
 *
 * All costs grow by the same factor with h and n, so a cut-over is h times what the number of ranks
 * says: the one that was measured with p ranks is value(q) = value(p) * cut(q) / cut(p) with q, and
 * h need not be known. What a machine does beside this (copies, cores that ranks share) is in the
 * measured value, and is taken to be the same with other numbers of ranks. Pure. */
#ifndef CT_COLL_ALGORITHM_COST_H
#define CT_COLL_ALGORITHM_COST_H

#include "algorithm/select.h"

/* Return the cost of a call of n bytes (of a whole buffer) among p > 1 ranks, where a message costs
 * h; 0 for an algorithm that the model does not have. */
double ct_cost(enum ct_algorithm algorithm, int p, double n, double h);

/* Return from how many bytes on, where a message costs as much as one byte, the second of two
 * algorithms costs less; `most` if not below that. */
double ct_cost_cutover(enum ct_algorithm small, enum ct_algorithm large, int p, double most);

/* Return `value`, measured with `measured` ranks, for so many ranks; as it is for a size that the
 * model does not have, and among 8 ranks or fewer. */
size_t ct_cost_extrapolate(enum ct_tunable size, size_t value, int measured, int ranks);

#endif
