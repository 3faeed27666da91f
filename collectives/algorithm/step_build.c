/* See step_build.h. */
#include "algorithm/step_build.h"

static void add(struct ct_schedule *s, struct ct_step step)
{
    CT_ASSERT(s->steps < s->capacity);
    CT_ASSERT(s->steps == 0 || s->step[s->steps - 1].phase <= step.phase);
    s->step[s->steps++] = step;
}

static struct ct_step moving(enum ct_step_kind kind, int phase, int peer, struct ct_place a,
                             int block)
{
    return (struct ct_step){.kind = kind,
                            .phase = phase,
                            .peer = peer,
                            .block = block,
                            .a = a,
                            .b = ct_place_none(),
                            .c = ct_place_none()};
}

void ct_step_send(struct ct_schedule *s, int phase, int peer, struct ct_place from, int block)
{
    add(s, moving(CT_STEP_SEND, phase, peer, from, block));
}

void ct_step_recv(struct ct_schedule *s, int phase, int peer, struct ct_place to, int block)
{
    add(s, moving(CT_STEP_RECV, phase, peer, to, block));
}

static void join(struct ct_schedule *s, struct ct_step step)
{
    const struct ct_step *before = &s->step[s->steps - 1];

    CT_ASSERT(s->steps > 0 && before->kind == step.kind && before->phase == step.phase &&
              before->peer == step.peer && before->a.index + 1 == step.a.index);
    step.joined = true;
    add(s, step);
}

void ct_step_send_joined(struct ct_schedule *s, int phase, int peer, struct ct_place from,
                         int block)
{
    join(s, moving(CT_STEP_SEND, phase, peer, from, block));
}

void ct_step_recv_joined(struct ct_schedule *s, int phase, int peer, struct ct_place to, int block)
{
    join(s, moving(CT_STEP_RECV, phase, peer, to, block));
}

void ct_step_copy(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place from,
                  int block)
{
    struct ct_step step = moving(CT_STEP_COPY, phase, -1, to, block);

    step.b = from;
    add(s, step);
}

void ct_step_reduce(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place a,
                    struct ct_place b, int block, bool last)
{
    struct ct_step step = moving(CT_STEP_REDUCE, phase, -1, to, block);

    step.b = a;
    step.c = b;
    step.last = last;
    add(s, step);
}

void ct_step_reduce_all(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place mine,
                        int block)
{
    struct ct_step step = moving(CT_STEP_REDUCE_ALL, phase, -1, to, block);

    step.b = mine;
    step.last = true;
    add(s, step);
}
