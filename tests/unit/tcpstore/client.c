#include "client.h"

#include "base/assert.h"
#include "rendezvous/tcpstore/state.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct rig rig;

/* ---- composing ---- */

static void put_number(struct ct_buf *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(value >> (8 * i) & 0xff);
        cr_assert_eq(ct_buf_append(to, &byte, 1), 0);
    }
}

static void compose_list(struct ct_buf *to, int code, const char *format, va_list fields)
{
    put_number(to, (uint64_t)code, 1);
    for (; *format != '\0'; format++) {
        if (*format == 'm') {
            put_number(to, va_arg(fields, unsigned), 4);
        } else if (*format == 'n') {
            put_number(to, (uint64_t)va_arg(fields, int64_t), 8);
        } else {
            const char *text = va_arg(fields, const char *);
            put_number(to, strlen(text), 8);
            cr_assert_eq(ct_buf_puts(to, text), 0);
        }
    }
}

void compose(struct ct_buf *to, int code, const char *format, ...)
{
    va_list fields;

    va_start(fields, format);
    compose_list(to, code, format, fields);
    va_end(fields);
}

void compose_hello(struct ct_buf *to)
{
    cr_assert_eq(ct_buf_append(to, "\x00\xCE\xF7\x85\x3C", 5), 0);
}

/* ---- a store and its clients ---- */

void rig_open(const struct ct_tcpstore_limits *limits)
{
    memset(&rig, 0, sizeof rig);
    rig.store = ct_tcpstore_new(limits);
    cr_assert_not_null(rig.store);
}

void rig_close(void)
{
    for (int i = 0; i < rig.count; i++) {
        leave(&rig.clients[i]);
        ct_buf_deinit(&rig.clients[i].got);
    }
    ct_tcpstore_free(rig.store);
}

struct client *join_silent(const char *host)
{
    struct ct_error err = {0};

    cr_assert_lt(rig.count, CLIENTS);
    struct client *client = &rig.clients[rig.count++];
    client->core = ct_tcpstore_join(rig.store, rig.now_ms, host, client, &err);
    cr_assert_not_null(client->core, "%s", err.text);
    return client;
}

struct client *join(void)
{
    return join_from("10.0.0.1");
}

struct client *join_from(const char *host)
{
    struct client *client = join_silent(host);
    struct ct_buf hello = {0};

    compose_hello(&hello);
    send_bytes(client, hello.data, hello.size);
    ct_buf_deinit(&hello);
    cr_assert(got_nothing(client));
    return client;
}

struct client *join_old(void)
{
    struct client *client = join_silent("10.0.0.2");

    ask(client, OLD_ADD, "bn", "init/", (int64_t)0);
    (void)got_i64(client);
    return client;
}

void leave(struct client *client)
{
    if (client->core != NULL)
        ct_tcpstore_leave(client->core);
    client->core = NULL;
}

void rig_collect(void)
{
    struct ct_tcpstore_client *core;

    while ((core = ct_tcpstore_next_ready(rig.store)) != NULL) {
        struct client *client = ct_tcpstore_about(core).user;
        const struct ct_error *why = ct_tcpstore_broken(core);
        if (why != NULL) {
            client->why = *why;
            leave(client);
            continue;
        }
        for (;;) {
            struct ct_tcpstore_bytes out = ct_tcpstore_output(core);
            if (out.size == 0)
                break;
            cr_assert_eq(ct_buf_append(&client->got, out.data, out.size), 0);
            ct_tcpstore_sent(core, rig.now_ms, out.size);
        }
    }
}

void send_bytes(struct client *client, const void *data, size_t size)
{
    /* Exactly these bytes, in memory of their own: reading beyond them is seen. */
    void *copy = malloc(size > 0 ? size : 1);

    cr_assert_not_null(copy);
    memcpy(copy, data, size);
    cr_assert_not_null(client->core, "the client is broken: %s", client->why.text);
    ct_tcpstore_input(client->core, rig.now_ms, copy, size);
    free(copy);
    rig_collect();
}

void ask(struct client *client, int code, const char *format, ...)
{
    struct ct_buf request = {0};
    va_list fields;

    va_start(fields, format);
    compose_list(&request, code, format, fields);
    va_end(fields);
    send_bytes(client, request.data, request.size);
    ct_buf_deinit(&request);
}

/* ---- taking answers apart ---- */

static uint64_t got_number(struct client *client, size_t bytes)
{
    uint64_t value = 0;

    cr_assert_geq(client->got.size, bytes, "%zu bytes came, %zu were awaited (%s)",
                  client->got.size, bytes, client->why.text);
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)client->got.data[i] << (8 * i);
    ct_buf_consume(&client->got, bytes);
    return value;
}

int got_u8(struct client *client)
{
    return (int)got_number(client, 1);
}

uint32_t got_u32(struct client *client)
{
    return (uint32_t)got_number(client, 4);
}

int64_t got_i64(struct client *client)
{
    return (int64_t)got_number(client, 8);
}

const char *got_bytes(struct client *client)
{
    static char texts[4][256];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    size_t size = (size_t)got_number(client, 8);

    cr_assert_lt(size, sizeof texts[0]);
    cr_assert_geq(client->got.size, size);
    if (size > 0)
        memcpy(text, client->got.data, size);
    text[size] = '\0';
    ct_buf_consume(&client->got, size);
    return text;
}

bool got_nothing(const struct client *client)
{
    return client->got.size == 0 && client->core != NULL;
}

struct counts counts_of(const struct ct_tcpstore *store)
{
    return (struct counts){
        .bytes = store->budget.used,
        .clients = store->client_count,
        .silent = store->silent.count,
        .waiting = store->waiting,
    };
}
