/* See tcp.h: the moves of a collective, over connections. */
#include "backend/tcp.h"
#include "backend/tcp_mesh.h"

/* The greeting that goes to `peer` (out), or that must come from it. */
static struct ct_greeting greet(const struct ct_tcp *tcp, const struct ct_task *task, int peer,
                                bool out)
{
    return (struct ct_greeting){.call = tcp->call,
                                .signature =
                                    ct_call_signature_with(&task->call, task->signature, peer, out),
                                .scale = task->call.scale};
}

static void list_move(struct ct_tcp *tcp, const struct ct_task *task,
                      const struct ct_wave_move *what)
{
    struct ct_tcp_move *move = &tcp->moves[tcp->move_count++];
    uint64_t *greeted = &tcp->greeted[(what->out ? 0 : tcp->size) + what->peer];

    *move = (struct ct_tcp_move){
        .peer = what->peer, .out = what->out, .data = what->data, .left = what->bytes};
    if (*greeted != tcp->call) {
        *greeted = tcp->call;
        move->header_left = CT_GREETING_BYTES;
        struct ct_greeting greeting = greet(tcp, task, what->peer, what->out);
        if (what->out)
            ct_greeting_write(move->header, &greeting);
    }
}

static void list_moves(struct ct_tcp *tcp, const struct ct_task *task)
{
    struct ct_wave_move move;
    int step = 0;

    tcp->move_count = 0;
    while (ct_wave_next_move(&tcp->wave, &task->call, task->at, &step, &move))
        list_move(tcp, task, &move);
}

/* Has an earlier message of this connection and direction still to go? */
static bool behind_another(const struct ct_tcp *tcp, int index)
{
    const struct ct_tcp_move *move = &tcp->moves[index];

    for (int i = 0; i < index; i++)
        if (!tcp->moves[i].over && tcp->moves[i].peer == move->peer &&
            tcp->moves[i].out == move->out)
            return true;
    return false;
}

static int advance_move(struct ct_tcp *tcp, struct ct_task *task, struct ct_tcp_move *move,
                        struct ct_error *err)
{
    size_t before = move->header_left + move->left;
    bool header_comes = !move->out && move->header_left > 0;
    int code = ct_tcp_attempt(tcp, CT_LANE_COLLECTIVE, move, err);

    task->moves += move->header_left + move->left != before;
    if (header_comes && move->header_left == 0) {
        struct ct_greeting greeting = greet(tcp, task, move->peer, false);
        int differs = ct_greeting_check(move->header, tcp->rank, move->peer, &greeting, err);

        if (differs != 0)
            return differs;
        tcp->wave.factors[move->peer] = greeting.scale;
    }
    move->over = code == 1;
    return code;
}

/* 1 when all moves of the wave are over. */
static int advance_moves(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    int open = 0;

    for (int i = 0; i < tcp->move_count; i++) {
        if (tcp->moves[i].over)
            continue;
        int code = behind_another(tcp, i) ? 0 : advance_move(tcp, task, &tcp->moves[i], err);

        if (code < 0)
            return code;
        open += code == 0;
    }
    return open == 0;
}

static void begin(struct ct_tcp *tcp, struct ct_task *task)
{
    ct_wave_begin(&tcp->wave, &task->call);
    tcp->busy = true;
    tcp->call++;
    task->at = 0;
    task->stage = 1;
    list_moves(tcp, task);
}

int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    if (task->stage == 0)
        begin(tcp, task);
    for (;;) {
        int code = advance_moves(tcp, task, err);

        if (code != 1)
            return code;
        ct_wave_compute(&tcp->wave, &task->call, task->at);
        task->at++;
        if (task->at == ct_wave_count(&tcp->wave))
            break;
        list_moves(tcp, task);
    }
    tcp->busy = false;
    return 1;
}
