/* Fuzz: the rendezvous as the wire reaches it: frames of several links through decoder, service and
 * cores, in virtual time.
 *
 *   input -> message -> frame -> reader -> decoder -> service -> job core, store -> frames, records
 *
 * Links 0 to 4 are agents of job j (two on one host), 5 is one of job k, 6 an operator's, 7 an
 * operator's without a key. The first byte is the setting; then a byte an event: which link (bits 0
 * to 2) and what (bits 3 to 7): `enum what`. After each event every job's invariants hold, all that
 * was sent fits its frame and all records can be read; in the end a new daemon takes them all. */
#include "base/assert.h"
#include "frames.h"
#include "rdzv_check.h"
#include "rendezvous/service/admin.h"
#include "rendezvous/service/records.h"
#include "rendezvous/service/service.h"

#include <string.h>

enum { LINKS = 8, OPERATOR = 6, STRANGER = 7 };

enum what {
    OPEN,
    CLOSE, /* and the next one: nobody closed it, it was silent */
    SILENT,
    PASS,  /* time, with each tick when it is due */
    STALL, /* time, and one tick at its end */
    DISK,  /* it is full, or not any more */
    BYTES, /* no frame of ours */
    FIRST_MESSAGE,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world;

struct link {
    struct world *world;
    struct frames frames;
    uint64_t number; /* 0: closed */
    bool ends;       /* the service gave it up */
};

struct world {
    struct ct_service *service;
    struct link links[LINKS];
    struct ct_rdzv_params params;
    uint64_t now_ms;
    uint64_t seq;
    bool full_disk;
};

/* ---- what the service does ---- */

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    const struct link *link = peer;

    (void)context;
    CT_ASSERT(link->number != 0);
    frames_check(message);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    struct link *link = peer;

    (void)context;
    CT_ASSERT(code < 0 && sentence[0] != '\0');
    link->ends = true;
}

static int io_may(void *context, void *peer, enum ct_right right, const char *job,
                  struct ct_error *err)
{
    const struct world *world = context;
    const struct link *link = peer;

    (void)right;
    if (link != &world->links[STRANGER])
        return 0;
    return ct_error_set(err, CT_EAUTH, "a stranger, of job %s", job != NULL ? job : "any");
}

static int io_persist(void *context, uint64_t ticket, const void *record, size_t size,
                      bool may_compact)
{
    (void)ticket;
    const struct world *world = context;
    struct ct_record read;
    struct ct_arena arena;

    (void)may_compact;
    ct_arena_init(&arena, 16 << 20);
    CT_ASSERT(ct_record_read(record, size, &arena, &read, NULL) == 0);
    ct_arena_deinit(&arena);
    return world->full_disk ? CT_EIO : 0;
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    (void)context;
    CT_ASSERT(job[0] != '\0' && sentence[0] != '\0');
}

/* ---- what would be true ---- */

static const struct ct_rdzv *core_of(const struct world *world, const char *name)
{
    for (size_t i = 0; i < ct_service_jobs(world->service); i++)
        if (strcmp(ct_rdzv_name(rdzv_job(world->service, i)), name) == 0)
            return rdzv_job(world->service, i);
    return NULL;
}

static const char *host_of(size_t which)
{
    static const char *const hosts[LINKS] = {"a", "b", "b", "c", "d", "e", "ops", "mallory"};

    return hosts[which];
}

static const char *job_of(size_t which)
{
    return which == 5 ? "k" : "j";
}

static struct ct_message join_of(struct world *world, size_t which)
{
    const struct ct_rdzv_params *p = &world->params;

    return (struct ct_message){.type = CT_MSG_JOIN,
                               .join = {.seq = ++world->seq,
                                        .incarnation = {.low = which + 1},
                                        .slots = 1 + which % 2,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = p->nodes_min,
                                        .nodes_max = p->nodes_max,
                                        .max_restarts = p->max_restarts,
                                        .host = host_of(which),
                                        .address = host_of(which),
                                        .role = "default",
                                        .join_timeout_ms = p->join_timeout_ms,
                                        .last_call_ms = p->last_call_ms,
                                        .lease_ms = p->lease_ms,
                                        .prepare_ms = p->prepare_ms,
                                        .grow_ms = p->grow_ms,
                                        .autonomy_ms = p->autonomy_ms,
                                        .cordon_faults = p->cordon_faults,
                                        .world_divides = p->world_divides,
                                        .config_hash = 1,
                                        .settings = "--train.steps=8",
                                        .survivable = 1}};
}

/* In the order in which bits 3 to 7 choose them. */
static const enum ct_message_type types[] = {
    CT_MSG_HELLO,      CT_MSG_JOIN,        CT_MSG_HEARTBEAT,    CT_MSG_PREPARED,
    CT_MSG_FAILURE,    CT_MSG_DONE,        CT_MSG_LEAVE,        CT_MSG_PUBLISH,
    CT_MSG_PROGRESS,   CT_MSG_STORE_WAITS, CT_MSG_FLIGHT_REPLY, CT_MSG_STORE_SET,
    CT_MSG_STORE_GET,  CT_MSG_STORE_ADD,   CT_MSG_STORE_CAS,    CT_MSG_STORE_DELETE,
    CT_MSG_STORE_WAIT, CT_MSG_ADMIN,       CT_MSG_FLIGHT_QUERY, CT_MSG_LINES_QUERY,
    CT_MSG_LINES,      CT_MSG_FIGURES,
};

/* An operator's question to the nodes, and what they answer. */
static void ask_or_answer(const struct world *world, uint64_t acting, struct ct_message *message)
{
    uint64_t asker = world->links[OPERATOR].number;

    if (message->type == CT_MSG_FLIGHT_QUERY)
        message->flight_query =
            (struct ct_msg_flight_query){.generation = acting, .count = 8, .rank = -1};
    else if (message->type == CT_MSG_LINES_QUERY)
        message->lines_query =
            (struct ct_msg_lines_query){.generation = acting, .count = 8, .rank = -1};
    else if (message->type == CT_MSG_FLIGHT_REPLY)
        message->flight_reply = (struct ct_msg_flight_reply){.generation = acting, .asker = asker};
    else
        message->lines = (struct ct_msg_lines){.generation = acting, .asker = asker};
}

static struct ct_message truth(struct world *world, size_t which, enum ct_message_type type)
{
    const struct ct_rdzv *core = core_of(world, job_of(which));
    uint64_t generation = core != NULL ? ct_rdzv_generation(core) : 0;
    uint64_t acting = core != NULL ? ct_rdzv_roster(core)->generation : 0;
    struct ct_message message = {.type = type};

    switch (type) {
    case CT_MSG_HELLO:
        message.hello = (struct ct_msg_hello){.protocol = CT_WIRE_PROTOCOL,
                                              .job = job_of(which),
                                              .host = host_of(which),
                                              .incarnation = {.low = which + 1},
                                              .role = which >= OPERATOR ? "admin" : "agent"};
        break;
    case CT_MSG_JOIN:
        return join_of(world, which);
    case CT_MSG_HEARTBEAT:
        message.heartbeat = (struct ct_msg_heartbeat){
            .generation = generation, .seq = ++world->seq, .acting = acting, .recovered = acting};
        break;
    case CT_MSG_PREPARED:
        message.prepared = (struct ct_msg_prepared){.generation = generation,
                                                    .seq = ++world->seq,
                                                    .acted = acting,
                                                    .lineage = acting,
                                                    .step = acting * 8};
        break;
    case CT_MSG_FAILURE:
        message.failure =
            (struct ct_msg_failure){.generation = acting,
                                    .seq = ++world->seq,
                                    .failure = {.host = host_of(which), .text = "it broke"}};
        break;
    case CT_MSG_DONE:
        message.done = (struct ct_msg_done){.generation = acting, .seq = ++world->seq};
        break;
    case CT_MSG_LEAVE:
        message.leave = (struct ct_msg_leave){.generation = acting, .seq = ++world->seq};
        break;
    case CT_MSG_PUBLISH:
        message.publish =
            (struct ct_msg_publish){.generation = acting, .seq = ++world->seq, .step = acting * 8};
        break;
    case CT_MSG_ADMIN:
        message.admin = (struct ct_msg_admin){.host = "b", .author = "o@ops"};
        break;
    case CT_MSG_FLIGHT_QUERY:
    case CT_MSG_LINES_QUERY:
    case CT_MSG_FLIGHT_REPLY:
    case CT_MSG_LINES:
        ask_or_answer(world, acting, &message);
        break;
    case CT_MSG_FIGURES:
        ct_service_look(world->service, world->now_ms);
        message.figures = (struct ct_msg_figures){.generation = acting, .trouble = ""};
        break;
    default: /* each begins with its generation, or with a request and its generation */
        if (ct_store_is_request(&message)) {
            message.store_get =
                (struct ct_msg_store_get){.request = ++world->seq, .generation = acting};
            message.store_get.key = "key";
        } else {
            message.store_waits.generation = acting;
        }
        break;
    }
    return message;
}

/* ---- events ---- */

static void on_message(void *context, const struct ct_message *message)
{
    struct link *link = context;
    struct world *world = link->world;

    if (link->number == 0 || link->ends)
        return;
    ct_service_message(world->service, world->now_ms, link->number, message);
    if (message->type == CT_MSG_JOIN && ct_service_has_joined(world->service, link->number))
        link->frames.reader.limit = CT_WIRE_VALUE;
}

static void open_link(struct link *link)
{
    if (link->number != 0)
        return;
    link->ends = false;
    frames_init(&link->frames, CT_FROM_NODE, CT_WIRE_CONTROL);
    link->number = ct_service_open(link->world->service, link);
    CT_ASSERT(link->number != 0);
}

static void close_link(struct link *link, bool silent)
{
    uint64_t number = link->number;

    if (number == 0)
        return;
    ct_service_closed(link->world->service, link->world->now_ms, number, silent);
    link->number = 0;
    frames_deinit(&link->frames);
}

static void tick_when_due(struct world *world)
{
    if (ct_service_deadline(world->service) <= world->now_ms)
        ct_service_tick(world->service, world->now_ms);
}

static void pass(struct world *world, uint64_t until_ms)
{
    for (int ticks = 0; ticks < 200; ticks++) {
        uint64_t due_ms = ct_service_deadline(world->service);
        if (due_ms > until_ms)
            break;
        world->now_ms = CT_MAX(world->now_ms, due_ms);
        ct_service_tick(world->service, world->now_ms);
    }
    world->now_ms = CT_MAX(world->now_ms, until_ms);
}

static void send_message(struct world *world, size_t which, enum ct_message_type type,
                         struct input *input)
{
    struct link *link = &world->links[which];
    struct ct_arena arena;

    ct_arena_init(&arena, 1 << 20);
    struct ct_message message = truth(world, which, type);
    change_fields(input, &arena, &message);
    if (link->number != 0 && !frames_send(&link->frames, &message, on_message, link))
        link->ends = true;
    ct_arena_deinit(&arena);
}

static void happen(struct world *world, struct input *input)
{
    uint8_t head = input_byte(input);
    size_t which = head & 7u, size;
    unsigned what = head >> 3;
    struct link *link = &world->links[which];
    const uint8_t *bytes;

    switch (what) {
    case OPEN:
        open_link(link);
        break;
    case CLOSE:
    case SILENT:
        close_link(link, what == SILENT);
        break;
    case PASS:
        pass(world, world->now_ms + 20 * (uint64_t)input_byte(input));
        break;
    case STALL:
        world->now_ms += 20 * (uint64_t)input_byte(input);
        break;
    case DISK:
        world->full_disk = !world->full_disk;
        break;
    case BYTES:
        bytes = input_bytes(input, input_byte(input), &size);
        if (link->number != 0 && !frames_push(&link->frames, bytes, size, on_message, link))
            link->ends = true;
        break;
    default:
        what = (what - FIRST_MESSAGE) % CT_COUNT(types);
        send_message(world, which, types[what], input);
    }
}

/* ---- what holds ---- */

static void check(const struct ct_service *service)
{
    struct ct_buf text = {0};

    ct_service_describe(service, NULL, &text);
    ct_service_metrics(service, 0, NULL, &text);
    ct_buf_deinit(&text);
    for (size_t i = 0; i < ct_service_jobs(service); i++)
        CT_ASSERT(rdzv_check(rdzv_job(service, i), NULL) == 0);
}

static void run_until_idle(struct world *world)
{
    tick_when_due(world);
    for (size_t i = 0; i < LINKS; i++)
        if (world->links[i].ends)
            close_link(&world->links[i], false);
    check(world->service);
}

static int on_snapshot(void *context, const void *record, size_t size)
{
    CT_ASSERT(ct_service_restore(context, 0, record, size, NULL) == 0);
    return 0;
}

/* A new daemon takes what the old one knows, and ends it in time. */
static void succeed(const struct world *world, const struct ct_service_io *io)
{
    struct ct_service *next = ct_service_new(NULL, io, 0);
    uint64_t now_ms = 0;

    CT_ASSERT(next != NULL);
    CT_ASSERT(ct_service_snapshot(world->service, on_snapshot, next) == 0);
    ct_service_restored(next, 2);
    check(next);
    for (int ticks = 0; ticks < 100 && ct_service_deadline(next) != UINT64_MAX; ticks++) {
        now_ms = CT_MAX(now_ms, ct_service_deadline(next));
        ct_service_tick(next, now_ms);
    }
    check(next);
    ct_service_free(next);
}

static void set(struct world *world, uint8_t setting)
{
    world->params = ct_rdzv_params_default;
    world->params.nodes_min = 1 + (setting & 1u);
    world->params.nodes_max = world->params.nodes_min + (setting >> 1 & 3u);
    world->params.max_restarts = setting >> 3 & 3u;
    world->params.world_divides = setting >> 5 & 1u ? 4 : 0;
    world->params.lease_ms = 1000;
    world->params.last_call_ms = 100;
    world->params.prepare_ms = 2000;
    world->params.grow_ms = 100;
    world->params.autonomy_ms = 4000;
    world->params.join_timeout_ms = 5000;
    world->params.cordon_faults = 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct world world = {.now_ms = 1000};
    const struct ct_service_io io = {.context = &world,
                                     .send = io_send,
                                     .close = io_close,
                                     .may = io_may,
                                     .persist = io_persist,
                                     .announce = io_announce};
    uint8_t setting = input_byte(&input);
    const struct ct_service_limits limits = {
        .jobs = 3, .links = 64, .whole_round_nodes = setting >> 6 & 1u ? 1 : 0, .open_requests = 4};

    world.service = ct_service_new(&limits, &io, 1);
    CT_ASSERT(world.service != NULL);
    set(&world, setting);
    for (size_t i = 0; i < LINKS; i++)
        world.links[i].world = &world;
    for (int events = 0; input.size > 0 && events < 2000; events++) {
        happen(&world, &input);
        run_until_idle(&world);
    }
    succeed(&world, &io);
    for (size_t i = 0; i < LINKS; i++)
        close_link(&world.links[i], false);
    ct_service_free(world.service);
    return 0;
}
