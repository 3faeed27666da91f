/* See admin_uv.h. A connection for each question: HELLO and ADMIN in one go, then the answer.
 * Orders ask one rendezvous after the other until one answers; status asks all on this machine at
 * once, for one that is stopped is not to hold up the others. One that does not lead says who does,
 * and is followed there. */
#include "admin_uv.h"

#include "base/error.h"
#include "base/str.h"
#include "cmd/ctrun/agent/host/local_socket.h"
#include "cmd/ctrun/cli/key_option.h"
#include "keys/key.h"
#include "net/conn_uv.h"
#include "net/endpoint.h"
#include "rendezvous/service/admin.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
    DEFAULT_PORT = 29400,
    ANSWER_MS = 10 * 1000,
    PART_MS = 3000, /* between two parts of an answer */
    CONNECT_MS = 3000,
    GLANCE_MS = 300,
    LOCAL_MS = 3000, /* for all on this machine together */
    FIND_MS = 5000,  /* until those that hold a record have one that leads */
    PAUSE_MS = 100,  /* between two looks for it */
    HOLDERS_BYTES = 16 * CT_ENDPOINT_TEXT,
};

struct question {
    const struct admin_request *request;
    const char *job;
    uv_timer_t timer;
    struct ct_conn *conn;
    struct ct_buf *text;
    struct ct_error *err;
    uint32_t connect_ms, answer_ms;
    int code;
    uint32_t protocol; /* that HELLO offers */
    bool answered;
    bool refused;                /* by REFUSE */
    bool partial;                /* parts of the answer have come */
    char holders[HOLDERS_BYTES]; /* where one that does not lead says that it is; "": nobody did */
};

void admin_sign(struct admin_request *request)
{
    char host[128] = "";
    const struct passwd *user = getpwuid(geteuid());

    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    (void)snprintf(request->author, sizeof request->author, "%.100s@%s",
                   user != NULL ? user->pw_name : "?", host);
}

static void answer(struct question *question, int code)
{
    question->answered = true;
    question->code = code;
    if (question->conn != NULL)
        ct_conn_close(question->conn, 0, NULL);
}

static void on_open(struct ct_conn *conn)
{
    struct question *question = ct_conn_user(conn);
    struct ct_message hello = {
        .type = CT_MSG_HELLO,
        .hello = {.protocol = question->protocol,
                  .job = question->job,
                  .host = question->request->author,
                  .role = "admin"},
    };
    int rc = ct_conn_send(conn, &hello, question->err);

    if (rc == 0)
        rc = ct_conn_send(conn, &question->request->ask, question->err);
    if (rc != 0)
        answer(question, rc);
}

static void on_late(uv_timer_t *timer);

/* One of several parts of the answer has come; NULL: none did in time. */
static void receive_part(struct question *question, const struct ct_message *message)
{
    const struct admin_request *request = question->request;
    struct ct_message next = {.type = 0};
    bool is_last = request->on_answer(request->context, message, &next);
    int rc = 0;

    question->partial = true;
    while (rc == 0 && next.type != 0) {
        rc = ct_conn_send(question->conn, &next, question->err);
        next.type = 0;
        if (request->on_sent != NULL)
            request->on_sent(request->context, &next);
    }
    if (rc != 0 || is_last)
        answer(question, rc);
    else
        (void)uv_timer_start(&question->timer, on_late,
                             request->part_ms > 0 ? request->part_ms : PART_MS, 0);
}

/* One that does not lead names all that may, the likeliest first. */
static void keep_holders(struct question *question, const struct ct_msg_voters *voters)
{
    size_t used = 0;

    question->holders[0] = '\0';
    for (uint32_t i = 0; i < voters->servers.count; i++) {
        const char *address = voters->servers.data[i].address;

        if (used + strlen(address) + 2 > sizeof question->holders)
            return;
        used += (size_t)snprintf(question->holders + used, sizeof question->holders - used, "%s%s",
                                 used > 0 ? "," : "", address);
    }
}

/* One of many answers: those that come later take their time. */
static void receive_text(struct question *question, const struct ct_bytes *text)
{
    const struct admin_request *request = question->request;
    int rc =
        request->on_text(request->context, (const char *)text->data, text->size, question->err);

    (void)uv_timer_stop(&question->timer);
    question->answered = true;
    question->code = rc;
    if (rc != 0)
        answer(question, rc);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct question *question = ct_conn_user(conn);

    if (message->type == CT_MSG_VOTERS)
        keep_holders(question, &message->voters);
    else if (message->type == CT_MSG_REFUSE) {
        question->refused = true;
        answer(question,
               ct_error_set(question->err, message->refuse.code, "%s", message->refuse.text));
    } else if (message->type == CT_MSG_ADMIN_REPLY) {
        const struct ct_msg_admin_reply *reply = &message->admin_reply;

        if (reply->code == 0 && question->request->on_text != NULL) {
            receive_text(question, &reply->text);
            return;
        }
        if (reply->code != 0)
            (void)ct_error_set(question->err, reply->code, "%.*s", (int)reply->text.size,
                               (const char *)reply->text.data);
        else if (ct_buf_append(question->text, reply->text.data, reply->text.size) != 0)
            (void)ct_error_set(question->err, CT_ENOMEM, "no memory for the answer");
        answer(question, reply->code);
    } else if (question->request->on_answer != NULL && !question->answered) {
        receive_part(question, message);
    }
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct question *question = ct_conn_user(conn);

    if (!question->answered) {
        *question->err = *why;
        question->code = why->code;
    }
    question->conn = NULL;
    uv_close((uv_handle_t *)&question->timer, NULL);
}

static void on_late(uv_timer_t *timer)
{
    struct question *question = timer->data;

    if (question->answered)
        return;
    if (question->partial)
        receive_part(question, NULL);
    else
        answer(question, ct_error_set(question->err, CT_ETIMEOUT, "%s did not answer within %u s",
                                      ct_conn_peer(question->conn), question->answer_ms / 1000));
}

static const struct ct_conn_callbacks callbacks = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close};

/* Begin to ask one rendezvous; the loop does the rest. */
static int start(struct question *question, uv_loop_t *loop, const char *text,
                 const struct ct_key *key)
{
    struct ct_endpoint endpoint;
    struct ct_conn_options options = {.from = CT_FROM_SERVER,
                                      .key = key,
                                      .job = key != NULL ? question->job : NULL,
                                      .connect_ms = question->connect_ms};
    int rc = ct_endpoint_parse(text, DEFAULT_PORT, &endpoint, question->err);

    question->answered = question->partial = question->refused = false;
    if (rc != 0)
        return question->code = rc;
    (void)uv_timer_init(loop, &question->timer);
    question->timer.data = question;
    (void)uv_timer_start(&question->timer, on_late, question->answer_ms, 0);
    rc = ct_conn_connect(loop, &endpoint, &options, &callbacks, question, &question->conn,
                         question->err);
    if (rc != 0)
        uv_close((uv_handle_t *)&question->timer, NULL);
    return question->code = rc;
}

/* A rendezvous of an older release may know an older protocol that is spoken here too. */
static bool speak_older(struct question *question)
{
    if (!question->refused || question->code != CT_EPROTOCOL)
        return false;
    question->protocol = ct_wire_next_older(question->protocol);
    return question->protocol != CT_WIRE_PROTOCOL;
}

/* Ask one rendezvous. */
static int ask(struct question *question, const char *text, const struct ct_key *key)
{
    uv_loop_t loop;
    int rc = uv_loop_init(&loop);

    if (rc != 0)
        return rc;
    question->protocol = CT_WIRE_PROTOCOL;
    do {
        (void)start(question, &loop, text, key);
        (void)uv_run(&loop, UV_RUN_DEFAULT);
    } while (speak_older(question));
    (void)uv_loop_close(&loop);
    return question->code;
}

/* Each endpoint of the list until one answers. */
static int go_round(struct question *question, const char *list, const struct ct_key *key)
{
    char one[CT_ENDPOINT_TEXT];
    int rc = CT_EUSAGE;

    while (*list != '\0' && !question->answered) {
        ct_endpoint_next(&list, one);
        rc = ask(question, one, key);
    }
    return rc;
}

/* Ask the one that leads, if the answer was where to look for it. They may be electing one. */
static int follow(struct question *question, int rc, const struct ct_key *key)
{
    uint64_t until_ns = uv_hrtime() + (uint64_t)FIND_MS * 1000000;
    char list[HOLDERS_BYTES];

    for (int i = 0; rc == CT_EUNAVAILABLE && question->answered && question->holders[0] != '\0' &&
                    uv_hrtime() < until_ns;
         i++) {
        if (i > 0)
            uv_sleep(PAUSE_MS);
        (void)ct_str_copy(list, sizeof list, question->holders);
        question->holders[0] = '\0';
        question->answered = false;
        rc = go_round(question, list, key);
    }
    return rc;
}

/* Most of several daemons do not serve: look at all of them before waiting for any. */
static int ask_list(struct question *question, const char *list, const struct ct_key *key)
{
    int rc = CT_EUNAVAILABLE;

    question->connect_ms = GLANCE_MS;
    if (strchr(list, ',') != NULL)
        rc = go_round(question, list, key);
    question->connect_ms = CONNECT_MS;
    if (!question->answered)
        rc = go_round(question, list, key);
    return follow(question, rc, key);
}

/* An order is for one job: which, when several are hosted here? */
static int too_many(char paths[][LOCAL_SOCKET_BYTES], size_t count, struct ct_error *err)
{
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < count && used + LOCAL_SOCKET_BYTES + 8 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, " unix:%s", paths[i]);
    return ct_error_set(err, CT_EUSAGE,
                        "several jobs of yours are hosted on this machine; name one with "
                        "--rdzv_endpoint, as `ctrun status` shows it:%s",
                        list);
}

/* ---- what is hosted on this machine ---------------------------------------------------------- */

/* One of several that are asked at once. */
struct part {
    struct question question;
    char endpoint[LOCAL_SOCKET_BYTES + 8];
    struct ct_buf text;
    struct ct_error err;
};

/* Ask all: each has its own words, and all have the same time. */
static int ask_together(const struct question *question, struct part *parts, size_t count)
{
    uv_loop_t loop;
    int rc = uv_loop_init(&loop);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        parts[i].question = *question;
        parts[i].question.text = &parts[i].text;
        parts[i].question.err = &parts[i].err;
        parts[i].question.connect_ms = parts[i].question.answer_ms = LOCAL_MS;
        parts[i].question.protocol = CT_WIRE_PROTOCOL;
        (void)start(&parts[i].question, &loop, parts[i].endpoint, NULL);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < count; i++)
            if (speak_older(&parts[i].question))
                again = start(&parts[i].question, &loop, parts[i].endpoint, NULL) == 0 || again;
        (void)uv_run(&loop, UV_RUN_DEFAULT);
    }
    (void)uv_loop_close(&loop);
    return 0;
}

/* What one of several has said, or that it says nothing, below its endpoint. */
static void add_part(const struct part *part, bool is_only, bool json, struct ct_buf *text)
{
    bool is_silent = part->question.code == CT_ETIMEOUT && part->question.answered;

    if (part->question.code != 0 && (json || !is_silent))
        return;
    if (!is_only && !json)
        (void)ct_buf_printf(text, "%s--rdzv_endpoint %s\n", text->size > 0 ? "\n" : "",
                            part->endpoint);
    if (is_silent)
        (void)ct_buf_printf(text, "no answer within %d s: its ctrun (pid %d) is stopped or busy\n",
                            LOCAL_MS / 1000, atoi(strrchr(part->endpoint, '/') + 1));
    else
        (void)ct_buf_append(text, part->text.data, part->text.size);
}

/* Every ctrun of this user on this machine, for status. The error is that of one that answered, as
 * far as there is one. */
static int ask_all(struct question *question, char paths[][LOCAL_SOCKET_BYTES], size_t count)
{
    struct part *parts = calloc(count, sizeof *parts);
    bool json = question->request->ask.admin.json != 0;
    size_t answers = 0;
    struct ct_error none = {0};

    if (parts == NULL)
        return ct_error_set(question->err, CT_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        (void)snprintf(parts[i].endpoint, sizeof parts[i].endpoint, "unix:%.*s",
                       LOCAL_SOCKET_BYTES - 1, paths[i]);
    int rc = ask_together(question, parts, count);
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct question *asked = &parts[i].question;
        answers += asked->code == 0;
        add_part(&parts[i], count == 1, json, question->text);
        if (asked->code != 0 && asked->answered &&
            (none.code == 0 || none.code == CT_ENOTFOUND || none.code == CT_ETIMEOUT))
            none = parts[i].err;
    }
    for (size_t i = 0; i < count; i++)
        ct_buf_deinit(&parts[i].text);
    free(parts);
    if (answers == 0)
        *question->err = none;
    return rc != 0 ? rc : answers > 0 ? 0 : none.code;
}

/* Each until one answers: an order goes to the only one there is, a look to that with such a job.
 */
static int ask_in_turn(struct question *question, char paths[][LOCAL_SOCKET_BYTES], size_t count,
                       const struct ct_key *key)
{
    char endpoint[LOCAL_SOCKET_BYTES + 8];
    struct ct_error none = {0};

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(endpoint, sizeof endpoint, "unix:%.*s", LOCAL_SOCKET_BYTES - 1, paths[i]);
        if (follow(question, ask(question, endpoint, NULL), key) == 0)
            return 0;
        if (question->answered && (none.code == 0 || none.code == CT_ENOTFOUND))
            none = *question->err; /* rather of one that has such a job or host */
    }
    *question->err = none;
    return none.code;
}

/* Those that host a job on this machine; those that hold its record beside others if there is none,
 * or first, where the job is to be taken over. */
static size_t find_local(bool takeover, enum local_socket *ret_kind,
                         char paths[LOCAL_SOCKETS_MAX][LOCAL_SOCKET_BYTES])
{
    size_t count;

    *ret_kind = takeover ? LOCAL_SOCKET_HOLDER : LOCAL_SOCKET_HOST;
    count = local_socket_find(environ, *ret_kind, paths);
    if (count > 0)
        return count;
    *ret_kind = takeover ? LOCAL_SOCKET_HOST : LOCAL_SOCKET_HOLDER;
    return local_socket_find(environ, *ret_kind, paths);
}

static int ask_local(struct question *question, const struct ct_key *key)
{
    char paths[LOCAL_SOCKETS_MAX][LOCAL_SOCKET_BYTES];
    const struct ct_message *asked = &question->request->ask;
    bool is_status = asked->type == CT_MSG_ADMIN && asked->admin.verb == CT_ADMIN_STATUS;
    bool is_takeover = asked->type == CT_MSG_ADMIN && asked->admin.verb == CT_ADMIN_TAKEOVER;
    bool is_named = question->job[0] != '\0' && !is_takeover;
    enum local_socket kind;
    size_t count = find_local(is_takeover, &kind, paths);
    int rc = 0;

    if (count > 1 && !is_status && !is_named)
        return too_many(paths, count, question->err);
    *question->err = (struct ct_error){0};
    if (count > 0)
        rc = is_status && kind == LOCAL_SOCKET_HOST ? ask_all(question, paths, count)
                                                    : ask_in_turn(question, paths, count, key);
    if (count > 0 && (rc == 0 || question->err->code != 0))
        return rc;
    return ct_error_set(question->err, CT_ENOTFOUND,
                        "no job of yours is hosted on this machine; name its rendezvous with "
                        "--rdzv_endpoint HOST:PORT");
}

static int ask_for_job(struct question *question, const char *job, const struct ct_key *key)
{
    const char *endpoint = question->request->cfg.launch.rdzv_endpoint;

    question->job = job;
    question->answered = false;
    return endpoint[0] != '\0' ? ask_list(question, endpoint, key) : ask_local(question, key);
}

int admin_ask(const struct admin_request *request, struct ct_buf *ret_text, struct ct_error *err)
{
    const struct ct_config *cfg = &request->cfg;
    struct question question = {
        .request = request,
        .text = ret_text,
        .err = err,
        .connect_ms = CONNECT_MS,
        .answer_ms = ANSWER_MS,
    };
    struct ct_key key = {0};
    const struct ct_key_source source = key_option_source(cfg);
    bool has_key = ct_key_source_given(&source);
    int rc = 0;

    /* A job that was given no name is called "none"; who may see all of them asks for any. A daemon
     * of the release before shows the holder of a key no job but that for which he asks. */
    const char *named = strcmp(cfg->launch.rdzv_id, "none") != 0 ? cfg->launch.rdzv_id : "";
    if (has_key)
        rc = ct_key_source_load(&source, &key, err);
    if (rc == 0)
        rc = ask_for_job(&question, named, has_key ? &key : NULL);
    if (rc == CT_ENOTFOUND && has_key && named[0] == '\0') {
        const struct ct_error first = *err;

        rc = ask_for_job(&question, cfg->launch.rdzv_id, &key);
        if (rc != 0)
            rc = ct_error_set(err, first.code, "%s", first.text);
    }
    ct_net_key_wipe(&key);
    return rc;
}
