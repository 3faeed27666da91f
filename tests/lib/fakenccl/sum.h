/* Sums of the fake NCCL, in rank order, each element in double precision or in 64 bits. */
#ifndef FAKENCCL_SUM_H
#define FAKENCCL_SUM_H

#include <stddef.h>

size_t fake_width(int type);

/* to[0 .. count) of the slots of `size` ranks; `to` may be any memory but the slots. */
void fake_sum(int type, int reduction, void *to, char *const *slots, int size, size_t count);

#endif
