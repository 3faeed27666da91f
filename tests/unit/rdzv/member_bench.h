/* A test bench of the member's state machine: its messages are counted, its callbacks recorded. */
#ifndef CT_TEST_RDZV_MEMBER_BENCH_H
#define CT_TEST_RDZV_MEMBER_BENCH_H

#include "rendezvous/client/member.h"

enum { SENT = 64 };

struct bench {
    struct ct_member member;
    uint64_t now_ms;
    struct ct_message sent[SENT]; /* only their numbers count */
    size_t sent_count;
    unsigned connects, disconnects;
    uint64_t give_up_ms;
    uint64_t prepared_for; /* of the last on_prepare */
    bool at_boundary;
    unsigned prepares, revokes, rounds, closes, fails, replies;
    uint64_t revoked;
    struct ct_round round;
    struct ct_rdzv_result result;
    struct ct_wire_failure other; /* the first of the result */
    struct ct_error error;
    int reply_code;
    uint64_t reply_request;
    char waiting[256];
    unsigned waits; /* how often that was told */
    bool link_down;
    unsigned links_down; /* how often that was told */
    unsigned publishes;  /* answered */
    int publish_code;
};

void bench_begin(struct bench *b);

void bench_send(struct bench *b, const struct ct_message *message);

void bench_send_welcome(struct bench *b, uint64_t generation);

void bench_send_prepare(struct bench *b, uint64_t generation, bool at_boundary);

/* A round of two nodes in two parts; this node is the second. */
void bench_send_round_part(struct bench *b, uint64_t generation, uint32_t first);

void bench_promise(struct bench *b, uint64_t generation);

/* Joined, and in round 1. */
void bench_run(struct bench *b);

void bench_end(struct bench *b);

size_t bench_count_sent(const struct bench *b, enum ct_message_type type);

void bench_answer_heartbeat(struct bench *b, enum ct_rdzv_member_state state);

#endif
