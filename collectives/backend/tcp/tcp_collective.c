/* See tcp.h: the moves of a collective, over connections.
 *
 * The moves of several steps queue at each connection and direction in the order of the steps; the
 * first of a queue goes as soon as its chunk's phase may start (in_flight.h). A long move is split
 * into equal parts, one for each connection of the pair, which are moved at the same time. */
#include "backend/tcp/tcp.h"
#include "backend/tcp/tcp_mesh.h"

#include "base/assert.h"

/* The header that goes to `peer` (out), or that must come from it. */
static struct ct_call_header header_of(const struct ct_tcp *tcp, const struct ct_task *task,
                                       int peer, bool out)
{
    return (struct ct_call_header){
        .call = tcp->call,
        .signature = ct_call_signature_with(&task->call, task->signature, peer, out),
        .scale = task->call.scale};
}

static int queue_of(const struct ct_tcp *tcp, bool out, int rail, int peer)
{
    return ((out ? 0 : tcp->rails) + rail) * tcp->size + peer;
}

/* ---- listing ---------------------------------------------------------------------------------*/

static void enqueue(struct ct_tcp *tcp, const struct ct_tcp_move *move, int rail)
{
    int at = queue_of(tcp, move->out, rail, move->peer), index = tcp->free_move;
    struct ct_tcp_queue *queue = &tcp->queues[at];

    CT_ASSERT(index >= 0);
    tcp->free_move = tcp->moves[index].next;
    tcp->moves[index] = *move;
    tcp->moves[index].next = CT_TCP_NONE;
    if (queue->first == CT_TCP_NONE)
        queue->first = index;
    else
        tcp->moves[queue->last].next = index;
    queue->last = index;
    ct_tcp_list_add(&tcp->active, at);
    ct_in_flight_add_move(&tcp->window, move->work);
}

static void write_header(struct ct_tcp *tcp, const struct ct_task *task, struct ct_tcp_move *move)
{
    uint64_t *header_call = &tcp->header_call[(move->out ? 0 : tcp->size) + move->peer];

    if (*header_call == tcp->call)
        return;
    *header_call = tcp->call;
    move->header_left = CT_CALL_HEADER_BYTES;
    struct ct_call_header header = header_of(tcp, task, move->peer, move->out);
    if (move->out)
        ct_call_header_write(move->header, &header);
}

/* Both ends split it alike: a move has the same length at both. */
static void list_move(struct ct_tcp *tcp, const struct ct_task *task,
                      const struct ct_pipelined_move *what)
{
    size_t worth = what->bytes / tcp->pipelined.tuning.tcp_rail_bytes;
    size_t rails = CT_MAX(CT_MIN((size_t)tcp->rails, worth), (size_t)1);
    size_t share = (what->bytes / rails + 63) / 64 * 64;

    for (size_t rail = 0; rail < rails; rail++) {
        size_t at = CT_MIN(rail * share, what->bytes);
        struct ct_tcp_move move = {.peer = what->peer,
                                   .out = what->out,
                                   .work = what->work,
                                   .data = what->data != NULL ? what->data + at : NULL,
                                   .left = rail + 1 < rails ? CT_MIN(share, what->bytes - at)
                                                            : what->bytes - at};

        if (rail == 0)
            write_header(tcp, task, &move);
        enqueue(tcp, &move, (int)rail);
    }
}

static void list_steps(struct ct_tcp *tcp, const struct ct_task *task)
{
    struct ct_pipelined_move move;
    size_t at;

    while (ct_in_flight_next_step(&tcp->window, &at)) {
        int next = 0;

        while (ct_pipelined_next_move(&tcp->pipelined, &task->call, at, &next, &move))
            list_move(tcp, task, &move);
    }
}

/* ---- moving ----------------------------------------------------------------------------------*/

static int advance_move(struct ct_tcp *tcp, struct ct_task *task, int rail,
                        struct ct_tcp_move *move, struct ct_error *err)
{
    size_t before = move->header_left + move->left;
    bool header_comes = !move->out && move->header_left > 0;
    int code = ct_tcp_attempt(tcp, CT_MESH_COLLECTIVE + rail, move, err);

    task->moves += move->header_left + move->left != before;
    if (header_comes && move->header_left == 0) {
        struct ct_call_header header = header_of(tcp, task, move->peer, false);
        int differs = ct_call_header_check(move->header, tcp->rank, move->peer, &header, err);

        if (differs != 0)
            return differs;
        tcp->pipelined.factors[move->peer] = header.scale;
    }
    return code;
}

/* As many moves of a queue as can go now; 0 or an error. */
static int advance_queue(struct ct_tcp *tcp, struct ct_task *task, int rail,
                         struct ct_tcp_queue *queue, struct ct_error *err)
{
    while (queue->first != CT_TCP_NONE) {
        int index = queue->first;
        struct ct_tcp_move *move = &tcp->moves[index];

        if (!ct_in_flight_may_start(&tcp->window, move->work))
            return 0;
        int code = advance_move(tcp, task, rail, move, err);
        if (code != 1)
            return code;
        queue->first = move->next;
        move->next = tcp->free_move;
        tcp->free_move = index;
        ct_in_flight_move_done(&tcp->window, move->work);
    }
    return 0;
}

static int advance_queues(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < tcp->active.count && code == 0;) {
        int at = tcp->active.at[i];

        code = advance_queue(tcp, task, at / tcp->size % tcp->rails, &tcp->queues[at], err);
        if (tcp->queues[at].first == CT_TCP_NONE)
            ct_tcp_list_remove(&tcp->active, i);
        else
            i++;
    }
    return code;
}

static void begin(struct ct_tcp *tcp, struct ct_task *task)
{
    ct_pipelined_begin(&tcp->pipelined, &task->call);
    task->algorithm = tcp->pipelined.schedule.algorithm;
    ct_in_flight_begin(&tcp->window);
    tcp->busy = true;
    tcp->call++;
    task->stage = 1;
    list_steps(tcp, task);
}

int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    struct ct_chunk_phase work;

    if (task->stage == 0)
        begin(tcp, task);
    while (!ct_in_flight_is_complete(&tcp->window)) {
        int code = advance_queues(tcp, task, err);

        if (code != 0)
            return code;
        if (!ct_in_flight_next_ready(&tcp->window, &work))
            return 0;
        do
            ct_pipelined_compute_phase(&tcp->pipelined, &task->call, work);
        while (ct_in_flight_next_ready(&tcp->window, &work));
        list_steps(tcp, task);
    }
    tcp->busy = false;
    return 1;
}
