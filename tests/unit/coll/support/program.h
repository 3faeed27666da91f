/* A random program of collectives: a world, groups split from groups, operations on any of them,
 * handles left open and waited for in drawn orders. Drawn from a seed alone, so that every rank,
 * and every later run, has the same.
 *
 * What keeps a right program from waiting for itself, by ctrun.h's rule that waits over several
 * groups have an order that is the same at all ranks:
 *   - blocking forms, and drains of one team after the other, come in the program's order; within a
 *     team each rank waits in an order of its own
 *   - a drain that tests in turn advances all teams, in any order
 *   - a message concerns two ranks alone, so it blocks them only while its team has nothing open */
#ifndef TEST_COLL_PROGRAM_H
#define TEST_COLL_PROGRAM_H

#include "collectives/backend/backend.h"
#include "operation.h"
#include "reference.h"

#include <stdio.h>

enum { PROGRAM_WORLD_MAX = 8, PROGRAM_TEAMS = 7, PROGRAM_STEPS = 40 };

/* The groups that one split makes: each rank is in one of them at most. Team 0: the world. */
struct program_team {
    int parent;
    int colour[PROGRAM_WORLD_MAX]; /* given to ct_group_split, by the job's rank */
    int key[PROGRAM_WORLD_MAX];
    int group[PROGRAM_WORLD_MAX]; /* which of the groups a rank is in; -1: in none */
    int rank[PROGRAM_WORLD_MAX];  /* expected within the group, */
    int size[PROGRAM_WORLD_MAX];  /* and its size */
};

enum program_kind {
    PROGRAM_DEED,      /* on `team` */
    PROGRAM_SPLIT,     /* makes `team` */
    PROGRAM_FREE,      /* `team`, after all that is open on it */
    PROGRAM_TEST_ALL,  /* test what is open until nothing is */
    PROGRAM_WAIT_ALL,  /* wait for it, team by team, beginning with `team` */
    PROGRAM_WAIT_TEAM, /* for that of `team` */
};

struct program_step {
    enum program_kind kind;
    int team;
    bool dropped; /* while the cause of a failure is looked for */
    struct operation op;
};

struct program {
    uint64_t seed;
    int world;
    struct ct_tuning tuning;
    struct program_team teams[PROGRAM_TEAMS];
    int team_count;
    struct program_step steps[PROGRAM_STEPS];
    int step_count;
};

/* `world` 0: it is drawn, too. */
void program_draw(struct program *program, uint64_t seed, int world);

/* A step a line, those dropped left out. */
void program_print(const struct program *program, FILE *to);

#endif
