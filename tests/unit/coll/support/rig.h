/* A rig: a group on a given backend, made by ranks that are threads of the test.
 *
 * A body runs once a rank and returns 0, or the line where it found something wrong (criterion's
 * assertions belong to the test's own thread). */
#ifndef TEST_COLL_RIG_H
#define TEST_COLL_RIG_H

#include "algorithm/domains.h"
#include "collectives/group/group.h"
#include "ctrun.h"
#include "fakenccl/counts.h"
#include "job/thread_world.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

struct rig {
    const char *backend; /* NULL: auto */
    bool device;         /* on devices of tests/lib/fakenccl, one a rank */
    bool one_device;     /* one for all */
    int world;
    int nodes;           /* as if on so many; 0: one */
    uint64_t timeout_ms; /* of the group's calls; 0: half a minute */
    struct ct_tuning tuning;
    const struct ct_seat *seats;     /* a rank; NULL: all in one domain */
    void *shared;                    /* for the body */
    struct ct_thread_world *threads; /* while the bodies run */
};

/* Sizes so small that a few hundred elements take every path. */
extern const struct ct_tuning tiny;

/* A device without a GPU, whose memory is the host's; CTRUN_NCCL names its library from here on. */
const struct ct_accel *rig_accel(int index);

/* What its NCCL was asked for in this process. */
struct fakenccl_counts rig_nccl(void);

/* Make the world and the group, run `body`, take all down. The first non-zero return by rank; a
 * group that does not form is a line of this file. */
int rig_run(struct rig *rig, int (*body)(struct ct_group *group, struct rig *rig));

/* The backends that several ranks can have, and the worlds of the conformance test. */
enum { RIG_SHARED = 2, RIG_BACKENDS = 4 }; /* the first two share memory */
extern const char *const rig_backends[RIG_BACKENDS];

/* How many of them there are here: the last, ucx, only where its library is. Says so if not. */
int rig_backend_count(void);

extern const int rig_worlds[6];

/* Each of these with each of those, and backend hier on some layouts: the parameters of a test, and
 * what one of them stands for. Sanitizers get worlds of two and four. */
enum { RIG_LAYOUTS = 4 };
enum { RIG_CASES = RIG_LAYOUTS + RIG_BACKENDS * 6 };
struct criterion_test_params rig_cases(void);
struct rig rig_case(int index);

/* Those whose ranks can share memory. */
struct criterion_test_params rig_shared_cases(void);

#endif
