/* Other machines, for `ctrun doctor`: name, route, and who answers at the port of the
 * rendezvous. */
#ifndef CT_CTRUN_DOCTOR_HOSTS_UV_H
#define CT_CTRUN_DOCTOR_HOSTS_UV_H

#include "cmd/ctrun/doctor/core/doctor.h"
#include "keys/key.h"

struct doctor_question {
    const struct ct_key *key; /* NULL: in clear */
    const char *job;          /* "" for any, where that is allowed */
    const char *author;       /* user@host */
};

/* Look at all hosts side by side: less than 5 s for all together. `given`, `port` and `name.name`
 * are given, the rest is found. Nothing is sent but to the resolver, and one connection to each
 * address. 0 or a negative errno. */
int doctor_look_hosts(struct doctor_host *hosts, size_t count,
                      const struct doctor_question *question);

#endif
