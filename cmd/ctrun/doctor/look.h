/* Looking at this machine for `ctrun doctor`: what doctor_judge (core/doctor.h) is told. */
#ifndef CT_CTRUN_DOCTOR_LOOK_H
#define CT_CTRUN_DOCTOR_LOOK_H

#include "cmd/ctrun/doctor/core/doctor.h"
#include "config/config.h"

#include <sys/socket.h>

/* Look at limits, folders, memory, clock, key, CPUs and GPUs (look_machine.c). Files are made
 * nowhere. GPUs of a driver that hangs take 3 s. */
void doctor_look_machine(const struct ct_config *cfg, struct doctor_facts *ret_facts);

/* Look at programs and libraries (look_programs.c): starts ctworker and Python for their versions,
 * 3 s at most each. */
void doctor_look_programs(const struct ct_config *cfg, struct doctor_facts *ret_facts);

/* A name to be resolved (resolve.c), and its addresses, with this port. */
struct doctor_resolution {
    struct doctor_lookup *lookup; /* `name` is given, the rest is found */
    uint16_t port;
    struct sockaddr_storage at[DOCTOR_ADDRESSES];
};

/* Resolve all at once, within `limit_ms`; what has not come by then has failed. */
void doctor_resolve(struct doctor_resolution *names, size_t count, unsigned limit_ms);

#endif
