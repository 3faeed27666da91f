/* What the oracle remembers of all daemons and nodes, and what is counted. */
#ifndef CT_TEST_SIM_ORACLE_H
#define CT_TEST_SIM_ORACLE_H

/* A committed round. A state descends from another if the way back through the
 * bases leads there.
 */
struct past {
    uint64_t roster; /* hash of what a node saw of it, 0: nothing */
    uint64_t lineage;
    uint64_t base_step;
    bool overlaps; /* it has a member of the one committed before it */
};

struct oracle {
    uint64_t generation; /* highest told */
    uint64_t committed;  /* highest told in a ROUND */
    bool close_reported;
    uint64_t close_reported_ms; /* for the first time */
    bool close_failed;          /* ... but the disk did not take the result (yet) */
    uint64_t epoch;             /* of the newest daemon */
    struct past past[SIM_ROUNDS];
    uint32_t order_count;
    struct ct_id order[SIM_MEMBERS]; /* the last committed roster */
    uint32_t order_slots[SIM_MEMBERS];
    uint64_t order_generation;
    uint32_t restarts; /* when it was committed */
    bool closed;       /* some node was told the result */
    struct ct_rdzv_result result;
    char cause_room[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)]; /* of the result's */
    uint64_t cut_generation;  /* the newest round without anybody of the one before it */
    uint64_t step_generation; /* the newest round that made a step */
    uint64_t stable;          /* its newest stable step */
    uint64_t digest;          /* of its newest completed step */
    uint64_t digest_step;
    bool has_digest;
    struct ct_rdzv_publication published; /* the newest on record, whichever daemon's */
    uint64_t counted_generation;          /* the newest that was told to count */
    uint64_t counted_step;
    uint32_t cordoned; /* nodes whose hosts are, as operators were told: a bit set */
    uint64_t cordoned_generation[SIM_NODES]; /* the round that was known then */
    uint64_t quiet_generation;               /* at 3/4 of the phase without faults */
    uint64_t wall_reads;                     /* by cores, of a clock that jumps */
    uint64_t starts;                         /* of nodes */
    uint64_t breaks;                         /* of connections */
    bool was_closed;                         /* the newest daemon's job was, at its last step */
};

struct coverage {
    uint64_t events;
    uint64_t rounds;
    uint64_t steps;
    uint64_t faults;
    uint64_t published;
    uint64_t restarts;   /* of the daemon */
    uint64_t leads;      /* embedded: somebody began to lead */
    uint64_t anew;       /* ... founded the record anew */
    uint64_t lost;       /* ... a new job took the name of one whose nodes had all died */
    uint64_t rebuilt;    /* ... of these, rebuilt from what nodes said */
    uint64_t partial;    /* ... somebody led with what a minority held, */
    uint64_t lossy;      /* ... which was not all */
    uint64_t second;     /* ... while the first one lived, behind a cut */
    uint64_t united;     /* ... of which one was left at the end */
    uint64_t ended;      /* runs that ended with that */
    uint64_t taken_over; /* by an operator's word */
    uint64_t not_taken;  /* likewise, refused: the job lives */
    uint64_t waits;      /* ... in which nodes wait at the end, as they must */
    uint64_t takeovers;  /* a daemon found that a newer one has the journal */
    uint64_t moves[CT_RDZV_PHASES][CT_RDZV_PHASES];
    uint64_t member_moves[CT_RDZV_MEMBER_STATES][CT_RDZV_MEMBER_STATES];
    uint64_t messages[80];
    uint64_t ends[NODE_ENDS];
    uint64_t phase_moves[AGENT_PHASES][AGENT_PHASES];
    uint64_t life_moves[AGENT_LIVES][AGENT_LIVES];
    uint64_t actions[AGENT_ACTIONS];
    uint64_t fault_kinds[32];
    uint64_t virtual_ms;
};

#endif
