/* PyTorch's own client sees the same whoever serves: this server, also through a tunnel, or
 * PyTorch's.
 *
 * Debian's python3-torch is tried, and the interpreter that TEST_TORCH names (a newer PyTorch
 * in a virtual environment). */
#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"
#include "server.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(torch, .init = host_set_up, .fini = host_tear_down, .timeout = 300);

enum { NOT_HERE = 77 };

struct run {
    uv_process_t process;
    uv_pipe_t pipe;
    struct ct_buf text;
    bool ended, read_all;
    int64_t status;
};

static void on_exit_of(uv_process_t *process, int64_t status, int signal)
{
    struct run *run = process->data;

    run->ended = true;
    run->status = signal != 0 ? 128 + signal : status;
    uv_close((uv_handle_t *)process, NULL);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[65536];

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct run *run = stream->data;

    if (count > 0)
        cr_assert_eq(ct_buf_append(&run->text, buf->base, (size_t)count), 0);
    if (count >= 0)
        return;
    run->read_all = true;
    uv_close((uv_handle_t *)stream, NULL);
}

/* Run the client to its end; the loop, and the server in it, runs meanwhile. */
static void run_client(struct run *run, char *python, char *address, char *port)
{
    char script[] = "tests/unit/tcpstore/torch_client.py";
    char *args[] = {python, script, address, port, NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE},
                                     {.flags = UV_INHERIT_FD, .data.fd = 2}};
    const uv_process_options_t options = {
        .file = python, .args = args, .stdio = stdio, .stdio_count = 3, .exit_cb = on_exit_of};

    memset(run, 0, sizeof *run);
    cr_assert_eq(uv_pipe_init(&host.loop, &run->pipe, 0), 0);
    stdio[1].data.stream = (uv_stream_t *)&run->pipe;
    run->process.data = run->pipe.data = run;
    cr_assert_eq(uv_spawn(&host.loop, &run->process, &options), 0, "%s", python);
    cr_assert_eq(uv_read_start((uv_stream_t *)&run->pipe, on_alloc, on_read), 0);
    /* The guard of the loop is for sockets; a Python that loads PyTorch needs longer. */
    uv_timer_stop(&host.guard);
    while (!run->ended || !run->read_all)
        uv_run(&host.loop, UV_RUN_ONCE);
}

enum way { DIRECT, TUNNEL };

/* The same client at this server. */
static void run_here(struct run *run, char *python, enum way way)
{
    const struct ct_endpoint loopback = {.host = "127.0.0.1"};
    struct ct_tcpstore_hub_options hub_options = {.generation = 1, .job = "torch"};
    struct ct_tcpstore_relay_options options = {.generation = 1, .job = "torch"};
    struct ct_tcpstore_relay *relay = NULL;
    struct ct_tcpstore_hub *hub = NULL;
    struct ct_error err = {0};
    char address[] = "127.0.0.1", text[16];

    host_start(NULL);
    uint16_t port = ct_tcpstore_server_endpoint(host.server)->port;
    if (way == TUNNEL) {
        hub_options.server = host.server;
        cr_assert_eq(ct_tcpstore_hub_start(&host.loop, &loopback, &hub_options, &hub, &err), 0,
                     "%s", err.text);
        options.hub = *ct_tcpstore_hub_endpoint(hub);
        cr_assert_eq(ct_tcpstore_relay_start(&host.loop, &options, &relay, &err), 0, "%s",
                     err.text);
        port = ct_tcpstore_relay_endpoint(relay)->port;
    }
    (void)snprintf(text, sizeof text, "%u", port);
    run_client(run, python, address, text);
    cr_assert_eq(counts_of(ct_tcpstore_server_store(host.server)).waiting, 0);
    ct_tcpstore_relay_stop(relay);
    ct_tcpstore_hub_stop(hub);
    ct_tcpstore_server_stop(host.server);
    host.server = NULL;
}

static void compare(char *python)
{
    struct run theirs, ours;
    char own[] = "own";

    run_client(&theirs, python, own, NULL);
    if (theirs.status == NOT_HERE)
        cr_skip_test("%s has no PyTorch", python);
    cr_assert_eq(theirs.status, 0, "%s", ct_buf_str(&theirs.text));
    for (enum way way = DIRECT; way <= TUNNEL; way++) {
        run_here(&ours, python, way);
        cr_assert_eq(ours.status, 0, "%s", ct_buf_str(&ours.text));
        cr_assert_str_eq(ct_buf_str(&ours.text), ct_buf_str(&theirs.text));
        cr_assert(strstr(ct_buf_str(&ours.text), "at the end: (b'other', ") != NULL, "%s",
                  ct_buf_str(&ours.text));
        ct_buf_deinit(&ours.text);
    }
    ct_buf_deinit(&theirs.text);
}

Test(torch, debians_client_sees_what_it_sees_at_its_own_server)
{
    char python[] = "/usr/bin/python3";

    compare(python);
}

Test(torch, a_newer_client_sees_what_it_sees_at_its_own_server)
{
    char *python = getenv("TEST_TORCH");

    if (python == NULL)
        cr_skip_test("TEST_TORCH names no interpreter");
    compare(python);
}
