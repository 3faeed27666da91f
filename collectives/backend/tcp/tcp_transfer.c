/* See tcp.h: send and recv, each message with its header, on the pair's second connection. */
#include "backend/tcp/tcp.h"
#include "backend/tcp/tcp_mesh.h"

#include <string.h>

/* `at` counts header and data; what has come of a header is kept, one a peer. */
int ct_tcp_transfer(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    int peer = task->call.peer;
    unsigned char *kept = tcp->headers + (size_t)peer * CT_CALL_HEADER_BYTES;
    size_t total = CT_CALL_HEADER_BYTES + ct_call_bytes(&task->call);
    size_t done = task->at > CT_CALL_HEADER_BYTES ? task->at - CT_CALL_HEADER_BYTES : 0;
    struct ct_tcp_move move = {
        .peer = peer,
        .out = task->call.kind == CT_CALL_SEND,
        .header_left = task->at < CT_CALL_HEADER_BYTES ? CT_CALL_HEADER_BYTES - task->at : 0,
        .left = ct_call_bytes(&task->call) - done};
    struct ct_call_header header = {.signature = task->signature};
    int code;

    if (move.out) {
        move.data = (char *)(uintptr_t)task->call.send + done;
        ct_call_header_write(move.header, &header);
    } else {
        move.data = task->call.recv + done;
        memcpy(move.header, kept, CT_CALL_HEADER_BYTES);
    }
    code = ct_tcp_attempt(tcp, CT_MESH_TRANSFER, &move, err);
    size_t at = total - move.header_left - move.left;
    bool header_came = !move.out && task->at < CT_CALL_HEADER_BYTES && move.header_left == 0;
    task->moves += at != task->at;
    task->at = at;
    if (!move.out)
        memcpy(kept, move.header, CT_CALL_HEADER_BYTES);
    if (header_came && code >= 0) {
        int differs = ct_call_header_check(move.header, tcp->rank, peer, &header, err);

        code = differs != 0 ? differs : code;
    }
    return code;
}
