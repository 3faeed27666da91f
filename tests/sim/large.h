/* Thousands of agents form a round, lose a third of them at once and form the next: what it costs.
 *
 * The real service, agents and codec, as in sim.h, on a network without faults. */
#ifndef CT_TEST_SIM_LARGE_H
#define CT_TEST_SIM_LARGE_H

#include <stdint.h>

/* Prints the figures. 0; 1 when it did not come to the end (a sentence says why). */
int sim_large(uint32_t agents, uint64_t seed);

#endif
