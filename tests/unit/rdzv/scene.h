/* A job core in virtual time, driven by hand, with a transcript that reads as documentation:
 *
 *      [  100] > b JOIN slots=2              an event
 *      [  100] < all PREPARE g1 (...)        an action
 *
 * Records are kept at once unless the scene's disk says otherwise. After each step the invariants
 * are checked, and between steps what must hold over the history. Announcements, acknowledgements,
 * welcomes, records and ticks are left out of the transcript unless `verbose`. */
#ifndef CT_TEST_RDZV_SCENE_H
#define CT_TEST_RDZV_SCENE_H

#include "base/bytes.h"
#include "rendezvous/core/core.h"
#include "rendezvous/service/service.h"

enum { SCENE_HOSTS = 64, SCENE_RECORDS = 8 };

enum scene_disk { DISK_GOOD, DISK_SLOW, DISK_FULL };

struct scene_host {
    char name[16];
    uint64_t link; /* 0: not connected */
    uint32_t member;
    uint64_t seq;
    struct ct_id id;
    uint64_t acting;
    uint64_t promised;
    uint64_t begun;     /* the last round that it was in */
    uint64_t recovered; /* the last whose base it said to hold */
    bool slow;          /* it does not say so */
    bool released;
    bool closed;
    bool silent;       /* no heartbeats */
    uint8_t fatal;     /* its failures are, and why */
    bool orphan;       /* as it says when it joins */
    int refused;       /* the code, 0: not */
    uint32_t retry_ms; /* of the refusal */
    char refusal[512];
};

struct scene {
    struct ct_rdzv *job;
    struct ct_rdzv_params params;
    uint64_t now_ms;
    uint64_t next_link;
    struct scene_host hosts[SCENE_HOSTS];
    size_t host_count;
    enum scene_disk disk;
    uint64_t records[SCENE_RECORDS]; /* that wait on a slow disk */
    size_t record_count;
    bool verbose;
    bool quiet; /* no transcript at all */
    struct ct_buf transcript;

    /* The history: values that may never change or shrink. */
    uint64_t last_generation;
    uint32_t last_restarts;
    uint64_t committed; /* generation whose roster is remembered */
    size_t roster_count;
    struct ct_id roster[SCENE_HOSTS];
    uint64_t rounds_seen;
};

void scene_init(struct scene *s, uint32_t nodes_min, uint32_t nodes_max, uint32_t max_restarts);
/* Set terms that the defaults leave alone, before the first join. */
void scene_terms(struct scene *s, uint32_t cordon_faults, uint32_t world_divides);
void scene_deinit(struct scene *s);

/* The host of that name, made when it is new. */
struct scene_host *scene_host(struct scene *s, const char *name);

/* Let time pass until `now_ms`, with a tick at each deadline; hosts that are connected send
 * heartbeats at the job's period when `heartbeats`. */
void scene_at(struct scene *s, uint64_t now_ms, bool heartbeats);

/* Events. A host that joins again after scene_restart is a new incarnation. */
void scene_join(struct scene *s, const char *host);
void scene_join_as(struct scene *s, const char *host, uint32_t slots, int32_t node_rank);
void scene_heartbeat(struct scene *s, const char *host);
void scene_prepared(struct scene *s, const char *host, uint64_t lineage, uint64_t step);
void scene_all_prepared(struct scene *s);
void scene_fail(struct scene *s, const char *host, int status, int signal);
void scene_fail_since(struct scene *s, const char *host, int status, uint64_t at_ms);
void scene_done(struct scene *s, const char *host);
void scene_publish(struct scene *s, const char *host, uint64_t generation, uint64_t at,
                   uint64_t digest);
void scene_order(struct scene *s, enum ct_rdzv_event_kind kind, const char *host, uint64_t for_ms);
void scene_leave(struct scene *s, const char *host, enum ct_rdzv_leave how);
void scene_cut(struct scene *s, const char *host);
void scene_silence(struct scene *s, const char *host);  /* it sends no more heartbeats */
void scene_new_self(struct scene *s, const char *host); /* the next join is another incarnation */
void scene_disk(struct scene *s, enum scene_disk disk); /* GOOD answers what waits */

/* The same for a service: a tick at each of its deadlines after `from_ms`, and at `until_ms`. */
void scene_pass(struct ct_service *service, uint64_t from_ms, uint64_t until_ms);

/* Let these hosts (a space between names) join with 2 slots each and form a round; the transcript
 * of that is forgotten. */
void scene_run(struct scene *s, const char *hosts);

/* "a:0 b:2": hosts of the committed round with their first ranks. */
const char *scene_roster(const struct scene *s, char text[512]);

/* The transcript since the last call is exactly this. */
void scene_expect(struct scene *s, const char *golden);
void scene_forget(struct scene *s);

#endif
