/* Which nodes Slurm reports down, from what `scontrol --oneliner show node LIST` prints:
 *
 *      NodeName=gpu3 Arch=x86_64 ... State=DOWN*+DRAIN ThreadsPerCore=2 ...
 *
 * A state is a base and flags. Down is the base DOWN alone, whatever its flags are: Slurm has given
 * the node up, its processes with it, either because its slurmd did not answer for SlurmdTimeout or
 * because an operator said so. Other states prove nothing:
 *
 *      IDLE*, ALLOCATED+NOT_RESPONDING    slurmd is silent for now; the processes may live
 *      DRAIN, DRAINING, FAIL, MAINT       nothing new starts there; what runs goes on
 *      UNKNOWN, FUTURE                    slurmctld has not heard of it yet
 *
 * Pure. */
#ifndef CT_SLURM_NODE_STATE_H
#define CT_SLURM_NODE_STATE_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text report every one of these nodes down? If not, `why` says of which it does not, with
 * its state: "Slurm does not report node gpu3 down (IDLE*)". */
bool ct_slurm_are_down(const char *text, const char *const *nodes, size_t count, char *why,
                       size_t room);

#endif
