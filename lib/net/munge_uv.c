/* munged is asked by a worker of libuv's pool, as it may keep one waiting for seconds.
 *
 *   client: ct_conn_begin -> seal ---------------> a TLS end -> ct_conn_shake_on
 *   server: the hello is there -> [queue] -> open -> ct_tls_opened -> ct_conn_shake_on
 *
 * Meanwhile nothing is read from the peer, and the handshake's deadline goes on. A connection that
 * ends forgets its work, which ends alone. */
#include "net/conn_inner_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "keys/munge.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 2 }; /* opened for one listener: two of libuv's four workers */

struct ct_munge_work {
    uv_work_t request;
    struct ct_conn *conn;         /* NULL: it has ended */
    struct ct_listener *listener; /* NULL: a client's */
    struct ct_munge_work *next;   /* in the queue */
    struct ct_key key;            /* a client's; the socket counts on a server, too */
    struct ct_munge_credential credential;
    struct ct_error err;
    int code;
};

void ct_munge_queue_init(struct ct_munge_queue *queue)
{
    *queue = (struct ct_munge_queue){.end = &queue->first};
}

static void free_work(struct ct_munge_work *work)
{
    explicit_bzero(work, sizeof *work);
    free(work);
}

static void on_work(uv_work_t *request)
{
    struct ct_munge_work *work = request->data;

    work->code = work->listener == NULL
                     ? ct_munge_seal(&work->key, &work->credential, &work->err)
                     : ct_munge_open(work->key.munge.socket, &work->credential, &work->err);
}

/* A client's credential is there, or will not be. */
static void finish_sealing(struct ct_conn *conn, struct ct_munge_work *work)
{
    if (work->code == 0)
        work->code =
            ct_tls_new_munge_client(&conn->tls, &work->credential, conn->options.job, &work->err);
    if (work->code == 0)
        ct_conn_shake_on(conn);
    else if (work->code == CT_EUNAVAILABLE && conn->dial != NULL)
        ct_dial_retry(conn->dial, &work->err);
    else
        ct_conn_end(conn, &work->err);
}

static void start(struct ct_munge_work *work);

static void start_next(struct ct_munge_queue *queue)
{
    while (queue->first != NULL && queue->under_way < AT_ONCE) {
        struct ct_munge_work *work = queue->first;

        queue->first = work->next;
        if (queue->first == NULL)
            queue->end = &queue->first;
        work->next = NULL;
        queue->under_way++;
        start(work);
    }
}

static void on_done(uv_work_t *request, int status)
{
    struct ct_munge_work *work = request->data;
    struct ct_listener *listener = work->listener;
    struct ct_conn *conn = work->conn;

    CT_ASSERT(status == 0 || conn == NULL); /* only a forgotten one is cancelled */
    if (listener != NULL) {
        ct_listener_munge(listener)->under_way--;
        start_next(ct_listener_munge(listener));
    }
    if (conn != NULL) {
        conn->munge = NULL;
        if (listener == NULL) {
            finish_sealing(conn, work);
        } else {
            ct_tls_opened(conn->tls, &work->credential, work->code != 0 ? &work->err : NULL);
            ct_conn_shake_on(conn);
        }
    }
    free_work(work);
    if (listener != NULL)
        ct_listener_release(listener);
}

static void start(struct ct_munge_work *work)
{
    work->request.data = work;
    int status = uv_queue_work(work->conn->loop, &work->request, on_work, on_done);
    CT_ASSERT(status == 0); /* it fails without a callback alone */
    if (work->listener != NULL)
        ct_listener_hold(work->listener);
}

static struct ct_munge_work *new_work(struct ct_conn *conn, struct ct_error *err)
{
    struct ct_munge_work *work = calloc(1, sizeof *work);

    if (work == NULL) {
        ct_error_set(err, CT_ENOMEM, "no memory for a munge credential");
        return NULL;
    }
    work->conn = conn;
    conn->munge = work;
    (void)uv_read_stop(&conn->io.stream);
    return work;
}

int ct_conn_seal(struct ct_conn *conn, const struct ct_key *key, struct ct_error *err)
{
    struct ct_munge_work *work = new_work(conn, err);

    if (work == NULL)
        return CT_ENOMEM;
    work->key = *key;
    start(work);
    return 0;
}

int ct_conn_unseal(struct ct_conn *conn, struct ct_error *err)
{
    const char *socket = "", *text = ct_tls_credential(conn->tls, &socket);
    struct ct_munge_work *work = new_work(conn, err);

    if (work == NULL)
        return CT_ENOMEM;
    struct ct_munge_queue *queue = ct_listener_munge(conn->listener);
    work->listener = conn->listener;
    (void)ct_str_copy(work->key.munge.socket, sizeof work->key.munge.socket, socket);
    (void)ct_str_copy(work->credential.text, sizeof work->credential.text, text);
    *queue->end = work;
    queue->end = &work->next;
    start_next(queue);
    return 0;
}

/* False: it is under way. */
static bool take_from_queue(struct ct_munge_queue *queue, const struct ct_munge_work *work)
{
    for (struct ct_munge_work **at = &queue->first; *at != NULL; at = &(*at)->next)
        if (*at == work) {
            *at = work->next;
            if (queue->end == &work->next)
                queue->end = at;
            return true;
        }
    return false;
}

void ct_conn_forget_munge(struct ct_conn *conn)
{
    struct ct_munge_work *work = conn->munge;

    if (work == NULL)
        return;
    conn->munge = NULL;
    work->conn = NULL;
    if (work->listener != NULL && take_from_queue(ct_listener_munge(work->listener), work))
        free_work(work);
    else
        (void)uv_cancel((uv_req_t *)&work->request); /* on_done frees it in any case */
}
