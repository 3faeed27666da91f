/* A TCPStore server on a loop, and plain sockets that talk to it. */
#ifndef TESTS_UNIT_TCPSTORE_SERVER_H
#define TESTS_UNIT_TCPSTORE_SERVER_H

#include "client.h"

#include "base/bytes.h"
#include "rendezvous/tcpstore/tcpstore_uv.h"

#include <stdbool.h>
#include <uv.h>

struct host {
    uv_loop_t loop;
    uv_timer_t guard;
    struct ct_tcpstore_server *server;
    int lost, refused;
    /* The last lost client, copied. */
    struct ct_tcpstore_lost last;
    struct ct_error why; /* code 0: an orderly end */
    char last_host[64], refused_host[64];
};

extern struct host host;

/* A fresh loop without a server; the end stops it and checks that nothing is left in the loop. */
void host_set_up(void);
void host_tear_down(void);

/* Start the server on 127.0.0.1, any port; `limits` may be NULL. */
void host_start(const struct ct_tcpstore_limits *limits);

/* Start it on an address, for hosts; the code of ct_tcpstore_server_start. */
int host_start_at(const char *address, const char *const allowed[], size_t count,
                  struct ct_error *err);

/* Start it with options of which the callbacks are filled in here. */
int host_start_with(const char *address, struct ct_tcpstore_server_options *options,
                    struct ct_error *err);

/* A connected socket that does not block. */
int dial(void);
int dial_from(const char *address, const char *source);
int dial_port(uint16_t port);

/* Send all of it, turning the loop while the socket is full. */
void write_fd(int fd, const void *data, size_t size);

/* Read exactly so many bytes, turning the loop; appended to `to`, or dropped when it is NULL. */
void receive(int fd, size_t size, struct ct_buf *to);

/* Turn the loop until the server has closed the connection. */
void receive_end(int fd);

/* Turn the loop until the condition holds; the test fails after 20 s. */
#define HOST_UNTIL(condition)                          \
    do {                                               \
        while (!(condition))                           \
            host_turn(__FILE__, __LINE__, #condition); \
    } while (0)
void host_turn(const char *file, int line, const char *condition);

/* One request of a key and, or not, a value (see compose). */
void ask_at(int fd, int code, const char *format, const char *key, const char *value);

/* GET, and the answer is this. */
void expect_value_at(int fd, const char *key, const char *value);

/* Set the largest value there may be and ask for it three times, without reading; then read it as
 * often. */
void ask_for_large(int fd);
void expect_large(int fd);

/* As many descriptors as this process may have. */
void allow_descriptors(void);

struct counts counts(void);

#endif
