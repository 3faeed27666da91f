/* Answers that go on: what is sent to all who read a stream; see http_uv.h. */
#include "net/http_inner_uv.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_BYTES = 1 << 20 };

/* One piece of a stream, with its bytes behind. */
struct piece {
    uv_write_t write;
    char bytes[];
};

static void on_piece_written(uv_write_t *request, int status)
{
    struct ct_http_client *client = request->data;

    free(request);
    if (status != 0)
        ct_http_end_client(client);
}

void ct_http_send_bytes(struct ct_http_client *client, const char *data, size_t size)
{
    struct piece *piece = NULL;

    if (uv_stream_get_write_queue_size(&client->io.stream) + size <= STREAM_BYTES)
        piece = malloc(sizeof *piece + size);
    if (piece == NULL) {
        ct_http_end_client(client);
        return;
    }
    memcpy(piece->bytes, data, size);
    piece->write.data = client;
    uv_buf_t bytes = uv_buf_init(piece->bytes, (unsigned)size);
    if (uv_write(&piece->write, &client->io.stream, &bytes, 1, on_piece_written) != 0) {
        free(piece);
        ct_http_end_client(client);
    }
}

static void send_piece(struct ct_http_client *client, const char *data, size_t size)
{
    struct ct_buf sealed;

    if (client->tls == NULL) {
        ct_http_send_bytes(client, data, size);
        return;
    }
    ct_buf_init(&sealed, 0);
    if (ct_web_tls_write(client->tls, data, size, &sealed) == 0)
        ct_http_send_bytes(client, sealed.data, sealed.size);
    else
        ct_http_end_client(client);
    ct_buf_deinit(&sealed);
}

static bool is_of(const struct ct_http_client *client, const struct ct_grant *reader)
{
    return reader == NULL ? !client->is_reader
                          : client->is_reader && ct_grant_equal(&client->reader, reader);
}

static bool have_one_reader(const struct ct_http_client *a, const struct ct_http_client *b)
{
    return is_of(a, b->is_reader ? &b->reader : NULL);
}

size_t ct_http_streams(const struct ct_http_server *server)
{
    size_t count = 0;

    for (const struct ct_http_client *client = server->clients; client != NULL;
         client = client->next)
        count += client->stream;
    return count;
}

const struct ct_grant *ct_http_reader(const struct ct_http_server *server, size_t index,
                                      bool *ret_is_there)
{
    const struct ct_http_client *client = server->clients;

    for (; client != NULL; client = client->next) {
        const struct ct_http_client *before = server->clients;

        if (!client->stream)
            continue;
        while (before != client && !(before->stream && have_one_reader(before, client)))
            before = before->next;
        if (before == client && index-- == 0)
            break;
    }
    *ret_is_there = client != NULL;
    return client != NULL && client->is_reader ? &client->reader : NULL;
}

void ct_http_stream_send(struct ct_http_server *server, const struct ct_grant *reader,
                         const char *data, size_t size)
{
    for (struct ct_http_client *client = server->clients; client != NULL; client = client->next)
        if (client->stream && !uv_is_closing(&client->io.handle) && is_of(client, reader))
            send_piece(client, data, size);
}

void ct_http_end_streams(struct ct_http_server *server)
{
    for (struct ct_http_client *client = server->clients; client != NULL; client = client->next)
        if (client->stream)
            ct_http_end_client(client);
}
