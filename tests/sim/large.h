/* The cost of large rounds: thousands of agents form a round, lose a third of them at once and form
 * the next.
 *
 * The real service, agents and codec, as in sim.h, on a network without faults. */
#ifndef CT_TEST_SIM_LARGE_H
#define CT_TEST_SIM_LARGE_H

#include <stdint.h>

/* Run and print the figures. 0; 1 with a sentence when it did not reach its end. */
int sim_large(uint32_t agents, uint64_t seed);

#endif
