/* See weak_order.h. Executions are enumerated: for each load one of the stores to its place (or the
 * 0 that was there first), for each place an order of its stores; the axioms then speak. */
#include "weak_order.h"

#include "base/assert.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 20, PLACES = 4, REGISTERS = 10 };
enum kind { LOAD, STORE, FENCE };
enum order { RELAXED, ACQUIRE, RELEASE, SEQ_CST }; /* a relaxed fence is none */

struct event {
    enum kind kind;
    enum order order;
    int thread, place;
    int result;  /* a load: the register */
    int value;   /* a store: what is stored, or added to register `operand` */
    int operand; /* -1: none */
    int half;    /* a read-modify-write: its other event; -1: none */
};

struct program {
    struct event event[EVENTS];
    int count;
    char places[PLACES];
    int place_count;
};

struct execution {
    const struct program *program;
    int from[EVENTS];  /* of a load: a store, or -1 */
    int place[EVENTS]; /* of a store: its position among those to its place */
    uint32_t edges[EVENTS];
};

/* ---- the text --------------------------------------------------------------------------------*/

static int place_of(struct program *p, char name)
{
    int i = 0;

    CT_ASSERT(islower((unsigned char)name));
    while (i < p->place_count && p->places[i] != name)
        i++;
    CT_ASSERT(i < PLACES);
    p->place_count += i == p->place_count;
    p->places[i] = name;
    return i;
}

static bool is_register(const char *at)
{
    return at[0] == 'r' && isdigit((unsigned char)at[1]);
}

static struct event *add(struct program *p, enum kind kind, int thread)
{
    CT_ASSERT(p->count < EVENTS);
    p->event[p->count] =
        (struct event){.kind = kind, .thread = thread, .result = -1, .operand = -1, .half = -1};
    return &p->event[p->count++];
}

static enum order order_of(const char *at)
{
    if (strncmp(at, ".acq", 4) == 0)
        return ACQUIRE;
    if (strncmp(at, ".rel", 4) == 0)
        return RELEASE;
    if (strncmp(at, ".sc", 3) == 0)
        return SEQ_CST;
    CT_ASSERT(*at == '\0' || strchr(" ;|", *at) != NULL);
    return RELAXED;
}

static void read_load(struct program *p, const char *at, int thread)
{
    struct event *load = add(p, LOAD, thread);

    load->result = at[1] - '0';
    CT_ASSERT(at[2] == '=');
    load->place = place_of(p, at[3]);
    if (strncmp(at + 4, "++", 2) != 0) {
        load->order = order_of(at + 4);
        return;
    }
    load->order = SEQ_CST;
    load->half = p->count;
    struct event *store = add(p, STORE, thread);
    store->place = load->place;
    store->order = SEQ_CST;
    store->value = 1;
    store->operand = load->result;
    store->half = p->count - 2;
}

static void read_store(struct program *p, const char *at, int thread)
{
    struct event *store = add(p, STORE, thread);

    store->place = place_of(p, at[0]);
    CT_ASSERT(at[1] == '=');
    if (is_register(at + 2))
        store->operand = at[3] - '0';
    else
        store->value = at[2] - '0';
    store->order = order_of(at + (is_register(at + 2) ? 4 : 3));
}

static void read_program(struct program *p, const char *text)
{
    int thread = 0;

    *p = (struct program){.count = 0};
    for (const char *at = text; at != NULL && *at != '\0';) {
        at += strspn(at, " ;");
        if (*at == '|') {
            thread++;
            at++;
            continue;
        }
        if (strncmp(at, "fence", 5) == 0)
            add(p, FENCE, thread)->order = order_of(at + 5) == ACQUIRE ? ACQUIRE : SEQ_CST;
        else if (is_register(at))
            read_load(p, at, thread);
        else
            read_store(p, at, thread);
        at = strpbrk(at, ";|");
    }
}

/* ---- the axioms ------------------------------------------------------------------------------*/

static void edge(struct execution *x, int a, int b)
{
    x->edges[a] |= 1u << b;
}

/* Leave out what nothing comes before, again and again. */
static bool has_cycle(const struct execution *x)
{
    uint32_t left = (1u << x->program->count) - 1, before;

    do {
        uint32_t reached = 0;

        before = left;
        for (int i = 0; i < x->program->count; i++)
            if ((left >> i & 1) != 0)
                reached |= x->edges[i];
        left &= reached;
    } while (left != before);
    return left != 0;
}

static bool same_place(const struct event *a, const struct event *b)
{
    return a->kind != FENCE && b->kind != FENCE && a->place == b->place;
}

/* Reads-from, coherence and from-reads; `outside`: between threads alone. */
static void add_communication(struct execution *x, bool outside)
{
    const struct program *p = x->program;

    for (int a = 0; a < p->count; a++)
        for (int b = 0; b < p->count; b++) {
            const struct event *ea = &p->event[a], *eb = &p->event[b];

            if (a == b || !same_place(ea, eb) || (outside && ea->thread == eb->thread))
                continue;
            if (ea->kind == STORE && eb->kind == LOAD && x->from[b] == a)
                edge(x, a, b);
            if (ea->kind == STORE && eb->kind == STORE && x->place[a] < x->place[b])
                edge(x, a, b);
            if (ea->kind == LOAD && eb->kind == STORE &&
                (x->from[a] < 0 || x->place[x->from[a]] < x->place[b]))
                edge(x, a, b);
        }
}

static bool is_internal(struct execution *x)
{
    const struct program *p = x->program;

    memset(x->edges, 0, sizeof x->edges);
    add_communication(x, false);
    for (int a = 0; a < p->count; a++)
        for (int b = a + 1; b < p->count; b++)
            if (p->event[a].thread == p->event[b].thread && same_place(&p->event[a], &p->event[b]))
                edge(x, a, b);
    return !has_cycle(x);
}

static bool fenced(const struct program *p, int a, int b)
{
    for (int i = a + 1; i < b; i++)
        if (p->event[i].kind == FENCE && p->event[i].order != RELAXED &&
            (p->event[i].order == SEQ_CST || p->event[a].kind == LOAD))
            return true;
    return false;
}

/* Whether a stays before b, later in the same thread, for all others. */
static bool is_ordered(const struct execution *x, int a, int b)
{
    const struct program *p = x->program;
    const struct event *ea = &p->event[a], *eb = &p->event[b];
    bool acquires = ea->kind == LOAD && ea->order != RELAXED;
    bool releases = eb->kind == STORE && eb->order != RELAXED;
    bool both =
        ea->kind == STORE && ea->order != RELAXED && eb->kind == LOAD && eb->order == SEQ_CST;
    bool data = ea->kind == LOAD && eb->kind == STORE && eb->operand == ea->result;
    bool forwarded = ea->kind == STORE && ea->half >= 0 && eb->kind == LOAD && x->from[b] == a &&
                     eb->order != RELAXED;

    return acquires || releases || both || data || forwarded || ea->half == b || fenced(p, a, b);
}

static bool is_external(struct execution *x)
{
    const struct program *p = x->program;

    memset(x->edges, 0, sizeof x->edges);
    add_communication(x, true);
    for (int a = 0; a < p->count; a++)
        for (int b = a + 1; b < p->count; b++)
            if (p->event[a].kind != FENCE && p->event[b].kind != FENCE &&
                p->event[a].thread == p->event[b].thread && is_ordered(x, a, b))
                edge(x, a, b);
    return !has_cycle(x);
}

static bool is_atomic(const struct execution *x)
{
    const struct program *p = x->program;

    for (int a = 0; a < p->count; a++) {
        if (p->event[a].kind != LOAD || p->event[a].half < 0)
            continue;
        int before = x->from[a] < 0 ? -1 : x->place[x->from[a]];

        if (x->place[p->event[a].half] != before + 1)
            return false;
    }
    return true;
}

/* ---- executions ------------------------------------------------------------------------------*/

/* The registers at the end. A value depends on those before it: as many rounds as events. */
static void evaluate(const struct execution *x, int *registers)
{
    const struct program *p = x->program;
    int stored[EVENTS] = {0};

    memset(registers, 0, REGISTERS * sizeof *registers);
    for (int round = 0; round <= p->count; round++)
        for (int i = 0; i < p->count; i++) {
            const struct event *e = &p->event[i];

            if (e->kind == LOAD)
                registers[e->result] = x->from[i] < 0 ? 0 : stored[x->from[i]];
            else if (e->kind == STORE)
                stored[i] = e->value + (e->operand < 0 ? 0 : registers[e->operand]);
        }
}

static bool is_outcome(const int *registers, const char *outcomes)
{
    bool holds = true;

    for (const char *at = outcomes;; at++) {
        if (is_register(at))
            holds = holds && registers[at[1] - '0'] == at[3] - '0';
        if (*at != '/' && *at != '\0')
            continue;
        if (holds)
            return true;
        if (*at == '\0')
            return false;
        holds = true;
    }
}

static bool try_loads(struct execution *x, int load, const char *outcomes)
{
    const struct program *p = x->program;
    int registers[REGISTERS];

    while (load < p->count && p->event[load].kind != LOAD)
        load++;
    if (load == p->count) {
        evaluate(x, registers);
        return is_outcome(registers, outcomes) && is_atomic(x) && is_internal(x) && is_external(x);
    }
    for (int from = -1; from < p->count; from++) {
        if (from >= 0 &&
            (p->event[from].kind != STORE || !same_place(&p->event[from], &p->event[load])))
            continue;
        x->from[load] = from;
        if (try_loads(x, load + 1, outcomes))
            return true;
    }
    return false;
}

/* Each store takes each position that is free among those to its place. */
static bool try_stores(struct execution *x, int store, const char *outcomes)
{
    const struct program *p = x->program;
    int others = 0;
    uint32_t taken = 0;

    while (store < p->count && p->event[store].kind != STORE)
        store++;
    if (store == p->count)
        return try_loads(x, 0, outcomes);
    for (int i = 0; i < p->count; i++) {
        if (p->event[i].kind != STORE || p->event[i].place != p->event[store].place)
            continue;
        others++;
        taken |= i < store ? 1u << x->place[i] : 0;
    }
    for (int at = 0; at < others; at++) {
        if ((taken >> at & 1) != 0)
            continue;
        x->place[store] = at;
        if (try_stores(x, store + 1, outcomes))
            return true;
    }
    return false;
}

bool weak_order_reaches(const char *program, const char *outcomes)
{
    struct program p;
    struct execution x = {.program = &p};

    read_program(&p, program);
    return try_stores(&x, 0, outcomes);
}

bool weak_order_reaches_without(const char *program, int index, const char *outcomes,
                                bool *ret_there)
{
    struct program p;
    struct execution x = {.program = &p};

    read_program(&p, program);
    *ret_there = false;
    for (int i = 0; i < p.count && !*ret_there; i++) {
        struct event *e = &p.event[i];

        if (e->order == RELAXED || e->half >= 0 || index-- > 0)
            continue;
        *ret_there = true;
        e->order = RELAXED;
    }
    return *ret_there && try_stores(&x, 0, outcomes);
}
