/* Groups form in four steps (backend.h): everyone prints itself on a blob, the blobs are exchanged,
 * everyone connects, the results are exchanged; if anyone failed, all try the next backend. Who
 * cannot connect says so at once, for others may wait for it.
 *
 * An exchange goes through the store: each member sets its own key, member 0 collects them and sets
 * one table, all others wait for that: 2 * size requests in all. Keys carry the group's name and
 * how often it was made, so that a name can be used again. */
#include "algorithm/tuning.h"
#include "group/recorder.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 600000, GROUP_MAX = CT_KV_VALUE_MAX / 640, NAME_MAX_BYTES = 64 };

_Static_assert((int)GROUP_MAX <= (int)CT_SIGNATURE_PEERS, "every rank may be a root");

static const struct ct_backend *const backends[] = {
    &ct_backend_self, &ct_backend_thread, &ct_backend_mpi,  &ct_backend_shm,   &ct_backend_hier,
    &ct_backend_ucx,  &ct_backend_tcp,    &ct_backend_nccl, &ct_backend_staged};

/* What each member puts into an exchange. */
struct card {
    int32_t code;
    char text[240]; /* the sentence, when code is not 0 */
    struct ct_blob blob;
};
_Static_assert(GROUP_MAX * sizeof(struct card) <= CT_KV_VALUE_MAX, "a table fits a value");

/* ---- exchange --------------------------------------------------------------------------------*/

static uint64_t remaining_ms(const struct ct_setup *setup)
{
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);

    return now >= setup->deadline_ns ? 0 : (setup->deadline_ns - now + 999999) / 1000000;
}

static void key_of(char *key, size_t room, const struct ct_setup *setup, const char *step,
                   int member)
{
    if (member < 0)
        (void)snprintf(key, room, "ct/group/%s/%s/all", setup->key, step);
    else
        (void)snprintf(key, room, "ct/group/%s/%s/%d", setup->key, step, member);
}

static int store_error(const struct ct_setup *setup, int code, int member, struct ct_error *err)
{
    if (code == CT_ETIMEOUT && member != setup->rank)
        return ct_error_set(err, code, "group %s: rank %d did not come in time", setup->key,
                            setup->ranks[member]);
    return ct_error_set(err, code, "group %s cannot form: %s", setup->key, ct_strerror(code));
}

static int collect(const struct ct_setup *setup, const char *step, struct card *cards,
                   struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    char key[256];
    int code;

    for (int i = 1; i < setup->size; i++) {
        struct ct_kv_value value = {&cards[i], sizeof cards[i]};

        key_of(key, sizeof key, setup, step, i);
        code = kv->wait(kv->context, key, &value, remaining_ms(setup));
        if (code != 0)
            return store_error(setup, code, i, err);
        if (value.size != sizeof cards[i])
            return store_error(setup, CT_EPROTOCOL, i, err);
    }
    key_of(key, sizeof key, setup, step, -1);
    code = kv->set(kv->context, key, cards, (size_t)setup->size * sizeof *cards);
    return code == 0 ? 0 : store_error(setup, code, 0, err);
}

/* The table did not come: the first member whose own card is not there, or else member 0. */
static int find_missing(const struct ct_setup *setup, const char *step)
{
    const struct ct_kv *kv = &setup->job->kv;

    for (int i = 0; i < setup->size; i++) {
        struct card card;
        struct ct_kv_value value = {&card, sizeof card};
        char key[256];

        key_of(key, sizeof key, setup, step, i);
        if (kv->wait(kv->context, key, &value, 1) == CT_ETIMEOUT)
            return i;
    }
    return 0;
}

/* Give `cards[rank]`, get everyone's. */
static int exchange(const struct ct_setup *setup, const char *step, struct card *cards,
                    struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    struct ct_kv_value table = {cards, (size_t)setup->size * sizeof *cards};
    char key[256];
    int code;

    key_of(key, sizeof key, setup, step, setup->rank);
    code = kv->set(kv->context, key, &cards[setup->rank], sizeof *cards);
    if (code != 0)
        return store_error(setup, code, setup->rank, err);
    if (setup->rank == 0)
        return collect(setup, step, cards, err);
    key_of(key, sizeof key, setup, step, -1);
    code = kv->wait(kv->context, key, &table, remaining_ms(setup));
    if (code == 0 && table.size != (size_t)setup->size * sizeof *cards)
        code = CT_EPROTOCOL;
    if (code != 0)
        return store_error(setup, code, code == CT_ETIMEOUT ? find_missing(setup, step) : 0, err);
    return 0;
}

/* The first member's failure, in its words; 0 when all went well. */
static int first_failure(const struct ct_setup *setup, const struct card *cards,
                         struct ct_error *err)
{
    for (int i = 0; i < setup->size; i++)
        if (cards[i].code != 0)
            return ct_error_set(err, cards[i].code, "%.*s", (int)sizeof cards[i].text,
                                cards[i].text);
    return 0;
}

static void write_card(struct card *card, int code, const struct ct_error *err)
{
    card->code = code;
    (void)ct_str_copy(card->text, sizeof card->text, code == 0 ? "" : err->text);
}

/* The key of who could not connect first, for those who wait for it. */
static void failure_key_of(char *key, size_t room, const struct ct_setup *setup)
{
    (void)snprintf(key, room, "ct/group/%s/%s/failed", setup->key, setup->backend);
}

static void report_failure(const struct ct_setup *setup, const struct card *card)
{
    const struct ct_kv *kv = &setup->job->kv;
    char key[256];

    failure_key_of(key, sizeof key, setup);
    (void)kv->set(kv->context, key, card, sizeof *card); /* the exchange tells it, too */
}

static int failed_elsewhere(const struct ct_setup *setup, struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    struct card card;
    struct ct_kv_value value = {&card, sizeof card};
    char key[256];

    failure_key_of(key, sizeof key, setup);
    if (kv->wait(kv->context, key, &value, 1) != 0 || value.size != sizeof card || card.code == 0)
        return 0;
    return ct_error_set(err, card.code, "%.*s", (int)sizeof card.text, card.text);
}

/* ---- one backend -----------------------------------------------------------------------------*/

/* Blobs of all members out of their cards, in the space of the cards themselves. */
static int connect_all(struct ct_group *group, const struct ct_setup *setup,
                       const struct card *cards, struct ct_error *err)
{
    CT_ASSERT(setup->size > 0);
    struct ct_blob *blobs = calloc((size_t)setup->size, sizeof *blobs);

    if (blobs == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    for (int i = 0; i < setup->size; i++)
        blobs[i] = cards[i].blob;
    int code = group->backend->connect(group->state, setup, blobs, err);
    free(blobs);
    return code;
}

/* Try `group->backend`: 0, or the first failure of any member. `cards` has room for all. */
static int open_backend(struct ct_group *group, const struct ct_setup *setup, struct card *cards,
                        struct ct_error *err)
{
    struct card *mine = &cards[setup->rank];
    char step[32];
    int code;

    memset(mine, 0, sizeof *mine);
    code = group->backend->prepare(setup, &mine->blob, &group->state, err);
    if (setup->size == 1)
        return code != 0 ? code : group->backend->connect(group->state, setup, NULL, err);
    write_card(mine, code, err);
    (void)snprintf(step, sizeof step, "%s/found", group->backend->name);
    code = exchange(setup, step, cards, err);
    if (code == 0)
        code = first_failure(setup, cards, err);
    if (code != 0)
        return code;
    write_card(mine, connect_all(group, setup, cards, err), err);
    if (mine->code != 0)
        report_failure(setup, mine);
    (void)snprintf(step, sizeof step, "%s/connected", group->backend->name);
    code = exchange(setup, step, cards, err);
    if (code == 0)
        code = first_failure(setup, cards, err);
    return code;
}

/* A failure that another backend may not have. The store's own failures end the attempt. */
static bool try_next(int code)
{
    return code != CT_ETIMEOUT && code != CT_EREVOKED && code != CT_ECLOSED && code != CT_ENOMEM;
}

/* ---- the machine's table ---------------------------------------------------------------------*/

/* What member 0 hands to the others: its table as text, or why there is none. */
struct table_text {
    int32_t code;
    char text[CT_TABLE_TEXT];
};

/* Threads of one process are tests, and choose alike on every machine. */
static int load_table(const struct ct_setup *setup, struct ct_table *table,
                      struct table_text *table_text, struct ct_error *err)
{
    struct ct_buf text;

    table_text->code = setup->job->world == NULL ? ct_table_load(table, err) : 0;
    ct_buf_init(&text, sizeof table_text->text - 1);
    if (table_text->code == 0 && table->count > 0)
        ct_table_print(table, &text);
    (void)ct_str_copy(table_text->text, sizeof table_text->text,
                      table_text->code == 0 ? ct_buf_str(&text) : err->text);
    ct_buf_deinit(&text);
    return table_text->code;
}

/* Member 0's table, at each member: so all choose alike. */
static int distribute_table(const struct ct_setup *setup, struct ct_table *table,
                            struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    struct table_text *table_text = calloc(1, sizeof *table_text);
    struct ct_kv_value value = {table_text, sizeof *table_text};
    char key[320];

    if (table_text == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a tuning table");
    key_of(key, sizeof key, setup, "tuning", 0);
    int code = 0;
    if (setup->rank == 0) {
        code = load_table(setup, table, table_text, err);
        int reported = kv->set(kv->context, key, table_text,
                               offsetof(struct table_text, text) + strlen(table_text->text) + 1);
        code = code == 0 && reported != 0 ? store_error(setup, reported, 0, err) : code;
    } else {
        code = kv->wait(kv->context, key, &value, remaining_ms(setup));
        if (code != 0)
            code = store_error(setup, code, 0, err);
        else if (value.size <= offsetof(struct table_text, text) || value.size > sizeof *table_text)
            code = store_error(setup, CT_EPROTOCOL, 0, err);
        table_text->text[sizeof table_text->text - 1] = '\0';
        if (code == 0 && table_text->code != 0)
            code = ct_error_set(err, table_text->code, "rank %d: %s", setup->ranks[0],
                                table_text->text);
        else if (code == 0)
            code = ct_table_parse(table, table_text->text, strlen(table_text->text), err);
    }
    free(table_text);
    return code;
}

static int open_first(struct ct_group *group, struct ct_setup *setup, const char *wanted,
                      struct ct_error *err)
{
    struct card *cards = calloc((size_t)setup->size, sizeof *cards);
    int code = ct_error_set(err, CT_EUNSUPPORTED, "group %s: backend %s cannot serve these ranks",
                            setup->key, wanted);

    if (cards == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    for (size_t i = 0; i < CT_COUNT(backends); i++) {
        const struct ct_backend *backend = backends[i];

        if (backend->on_device != (setup->device != NULL) || !backend->suits(setup) ||
            (strcmp(wanted, "auto") != 0 && strcmp(wanted, backend->name) != 0))
            continue;
        group->backend = backend;
        group->state = NULL;
        setup->backend = backend->name;
        setup->automatic = strcmp(wanted, "auto") == 0;
        setup->tuning = ct_table_tuning(setup->table, backend->name, setup->size, &group->tuning);
        code = open_backend(group, setup, cards, err);
        if (code == 0)
            break;
        if (group->state != NULL)
            backend->close(group->state);
        group->backend = NULL;
        if (!try_next(code))
            break;
    }
    free(cards);
    if (code == 0)
        group->backend->finish_setup(group->state);
    if (code == 0 && group->backend->batches)
        group->helper.disabled = true;
    group->sizes = setup->tuning;
    return code;
}

/* ---- creation --------------------------------------------------------------------------------*/

/* By name; NULL when there is none, as for auto. */
static const struct ct_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(backends); i++)
        if (strcmp(name, backends[i]->name) == 0)
            return backends[i];
    return NULL;
}

int ct_backend_check(const char *name, bool *ret_on_device, struct ct_error *err)
{
    const struct ct_backend *backend = find_backend(name);

    if (backend == NULL && strcmp(name, "auto") != 0)
        return ct_error_set(err, CT_EUSAGE,
                            "backend \"%s\" is not known: use auto, self, thread, mpi, shm, hier, "
                            "ucx or tcp, or, for the memory of a device, nccl or staged",
                            name);
    *ret_on_device = backend != NULL && backend->on_device;
    return 0;
}

static int check_options(const struct ct_job *job, const struct ct_group_options *options,
                         struct ct_error *err)
{
    const struct ct_assignment *a = &job->assignment;
    bool on_device;
    int code = options->backend != NULL ? ct_backend_check(options->backend, &on_device, err) : 0;

    if (code != 0)
        return code;
    if (options->name != NULL && strlen(options->name) > NAME_MAX_BYTES)
        return ct_error_set(err, CT_EUSAGE, "a group's name has at most %d bytes", NAME_MAX_BYTES);
    if (options->ranks == NULL)
        return 0;
    bool found = false;
    for (int i = 0; i < options->nranks; i++) {
        int rank = options->ranks[i];

        if (rank < 0 || rank >= a->world || (i > 0 && rank <= options->ranks[i - 1]))
            return ct_error_set(err, CT_EUSAGE,
                                "rank %d of the group: ranks ascend and lie in 0 .. %d", rank,
                                a->world - 1);
        found = found || rank == a->rank;
    }
    if (!found)
        return ct_error_set(err, CT_EUSAGE, "rank %d makes a group without itself", a->rank);
    return 0;
}

/* The members, and this rank's place among them. */
static int fill_members(struct ct_group *group, const struct ct_group_options *options,
                        struct ct_error *err)
{
    const struct ct_assignment *a = &group->job->assignment;

    group->size = options->ranks != NULL ? options->nranks : a->world;
    CT_ASSERT(group->size > 0);
    if (group->size > GROUP_MAX)
        return ct_error_set(err, CT_ELIMIT, "a group of %d ranks: at most %d are possible",
                            group->size, GROUP_MAX);
    group->ranks = calloc((size_t)group->size, sizeof *group->ranks);
    group->transfer_queues = calloc(2 * (size_t)group->size, sizeof *group->transfer_queues);
    if (group->ranks == NULL || group->transfer_queues == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", group->size);
    for (int i = 0; i < group->size; i++) {
        group->ranks[i] = options->ranks != NULL ? options->ranks[i] : i;
        if (group->ranks[i] == a->rank)
            group->rank = i;
    }
    return 0;
}

static int form(struct ct_group *group, const struct ct_group_options *options,
                const struct ct_group *parent, struct ct_error *err)
{
    struct ct_table table = {.count = 0};
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);
    const char *name = options->name != NULL ? options->name : "world";
    char key[256];
    int code = fill_members(group, options, err);

    if (code != 0)
        return code;
    uint64_t count = ct_job_names_count(group->job->names, name);
    if (count == 0)
        return ct_error_set(err, CT_ENOMEM, "no memory for group %s", name);
    (void)snprintf(key, sizeof key, "%s/%llu", name, (unsigned long long)count);
    group->key = strdup(key);
    if (group->key == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group");
    ct_recorder_open(group);
    struct ct_setup setup = {.job = group->job,
                             .key = key,
                             .parent = parent,
                             .rank = group->rank,
                             .size = group->size,
                             .ranks = group->ranks,
                             .deadline_ns = start_ns + group->timeout_ms * 1000000u,
                             .encrypt = group->encrypt,
                             .device = group->device,
                             .given = &group->tuning,
                             .table = &table,
                             .failed_elsewhere = failed_elsewhere};
    code = group->size == 1 ? 0 : distribute_table(&setup, &table, err);
    return code != 0 ? code
                     : open_first(group, &setup, group->size == 1 ? "auto" : group->wanted, err);
}

/* The table's own text for a name: what the caller gave may not live as long as the group. */
static const char *static_name(const char *backend)
{
    const struct ct_backend *found = backend != NULL ? find_backend(backend) : NULL;

    return found != NULL ? found->name : "auto";
}

int ct_group_make(struct ct_job *job, const struct ct_group_options *options,
                  const struct ct_tuning *tuning, const struct ct_group *parent,
                  struct ct_group **ret_group, struct ct_error *err)
{
    struct ct_group *group = calloc(1, sizeof *group);
    int code;

    if (group == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group");
    group->job = job;
    group->wanted = static_name(options->backend);
    group->encrypt = options->encrypt;
    group->device = options->device;
    group->helper.disabled = options->no_thread;
    group->tuning = tuning != NULL ? *tuning : (struct ct_tuning){0};
    group->timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS;
    for (int i = CT_REQUESTS_MAX - 1; i >= 0; i--) {
        group->requests[i].group = group;
        group->requests[i].next_free = group->free;
        group->free = &group->requests[i];
    }
    code = form(group, options, parent, err);
    if (code != 0) {
        ct_group_free(group);
        return code;
    }
    *ret_group = group;
    return 0;
}

int ct_group_new_tuned(struct ct_job *job, const struct ct_group_options *options,
                       const struct ct_tuning *tuning, struct ct_group **ret_group,
                       struct ct_error *err)
{
    static const struct ct_group_options none = {0};
    struct ct_error unread = {0};

    err = err != NULL ? err : &unread;
    options = options != NULL ? options : &none;
    int code = check_options(job, options, err);
    return code != 0 ? code : ct_group_make(job, options, tuning, NULL, ret_group, err);
}

int ct_group_new(struct ct_job *job, const struct ct_group_options *options,
                 struct ct_group **ret_group, struct ct_error *err)
{
    return ct_group_new_tuned(job, options, NULL, ret_group, err);
}

void ct_group_free(struct ct_group *group)
{
    if (group == NULL)
        return;
    ct_helper_end(group);
    if (group->backend != NULL)
        group->backend->close(group->state);
    ct_recorder_close(group);
    free(group->ranks);
    free(group->transfer_queues);
    free(group->key);
    free(group);
}

int ct_group_rank(const struct ct_group *group)
{
    return group->rank;
}

int ct_group_size(const struct ct_group *group)
{
    return group->size;
}

const char *ct_group_backend(const struct ct_group *group)
{
    return group->backend->name;
}

uint64_t ct_group_waited_ns(const struct ct_group *group)
{
    return group->waited_ns;
}

void ct_group_revoke(struct ct_group *group)
{
    const struct ct_backend *backend = group->backend;

    atomic_store(&group->revoked, true);
    if (backend->revoke != NULL)
        backend->revoke(group->state);
    if (backend->wake != NULL)
        backend->wake(group->state);
}

const struct ct_error *ct_group_failure(const struct ct_group *group)
{
    static const struct ct_error none = {0};

    return ct_group_broken(group) != 0 ? &group->failure : &none;
}

int ct_group_explain(const struct ct_group *group, int code, struct ct_error *err)
{
    if (code == 0)
        return 0;
    const struct ct_error *why = ct_group_failure(group);
    if (why->code == 0)
        return ct_error_set(err, code, "%s", ct_strerror(code));
    if (err != NULL)
        *err = *why;
    return code;
}
