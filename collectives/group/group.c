/* Groups form in four steps (backend.h): everyone writes a blob about itself, the blobs are
 * exchanged, everyone connects, the results are exchanged (member_exchange.h); if anyone failed,
 * all try the next backend. Who cannot connect says so at once, for others may wait for it. Keys of
 * the store carry the group's name and how often it was made, so that a name can be used again. */
#include "algorithm/tuning.h"
#include "group/member_exchange.h"
#include "group/recorder.h"
#include "reduce/reduce.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 600000, GROUP_MAX = CT_SIGNATURE_PEERS, NAME_MAX_BYTES = 64, KEY_BYTES = 256 };

_Static_assert((int)GROUP_MAX <= (int)CT_REDUCE_SOURCES_MAX, "an element of each can be added up");

static const struct ct_backend *const backends[] = {
    &ct_backend_self, &ct_backend_thread, &ct_backend_mpi,  &ct_backend_shm,   &ct_backend_hier,
    &ct_backend_ucx,  &ct_backend_tcp,    &ct_backend_nccl, &ct_backend_staged};

/* ---- who cannot connect ----------------------------------------------------------------------*/

/* A member's failure, for those who wait for it. */
struct failure {
    int32_t code;
    char text[240];
};

static void failure_key_of(char key[KEY_BYTES], const struct ct_setup *setup)
{
    (void)snprintf(key, KEY_BYTES, "ct/group/%s/%d/failed", setup->key, setup->attempt);
}

static void report_failure(const struct ct_setup *setup, int code, const struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    struct failure failure = {.code = code};
    char key[KEY_BYTES];

    (void)ct_str_copy(failure.text, sizeof failure.text, err->text);
    failure_key_of(key, setup);
    (void)kv->set(kv->context, key, &failure, sizeof failure); /* the exchange tells it, too */
}

static int failed_elsewhere(const struct ct_setup *setup, struct ct_error *err)
{
    const struct ct_kv *kv = &setup->job->kv;
    struct failure failure;
    struct ct_kv_value value = {&failure, sizeof failure};
    char key[KEY_BYTES];

    failure_key_of(key, setup);
    if (kv->wait(kv->context, key, &value, 1) != 0 || value.size != sizeof failure ||
        failure.code >= 0)
        return 0;
    return ct_error_set(err, failure.code, "%.*s", (int)sizeof failure.text, failure.text);
}

/* ---- one backend -----------------------------------------------------------------------------*/

/* Try `group->backend`: 0, or the first failure of any member. `blobs` has room for all. */
static int open_backend(struct ct_group *group, const struct ct_setup *setup, struct ct_blob *blobs,
                        struct ct_error *err)
{
    struct ct_blob *own = &blobs[setup->rank];
    char step[32];

    memset(own, 0, sizeof *own);
    int code = group->backend->prepare(setup, own, &group->state, err);
    if (setup->size == 1)
        return code != 0 ? code : group->backend->connect(group->state, setup, NULL, err);
    (void)snprintf(step, sizeof step, "%d/found", setup->attempt);
    code = ct_member_exchange(setup, step, group->wanted, code, blobs, err);
    if (code != 0)
        return code;
    code = group->backend->connect(group->state, setup, blobs, err);
    if (code != 0)
        report_failure(setup, code, err);
    (void)snprintf(step, sizeof step, "%d/connected", setup->attempt);
    return ct_member_exchange(setup, step, group->wanted, code, NULL, err);
}

/* A failure that another backend may not have. The store's own failures end the attempt, and those
 * of members that do not ask for the same. */
static bool try_next(int code)
{
    return code != CT_ETIMEOUT && code != CT_EREVOKED && code != CT_ECLOSED && code != CT_ENOMEM &&
           code != CT_EMISMATCH;
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
    char key[KEY_BYTES + 32];

    if (table_text == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a tuning table");
    (void)snprintf(key, sizeof key, "ct/group/%s/tuning", setup->key);
    int code = 0;
    if (setup->rank == 0) {
        code = load_table(setup, table, table_text, err);
        int reported = kv->set(kv->context, key, table_text,
                               offsetof(struct table_text, text) + strlen(table_text->text) + 1);
        code = code == 0 && reported != 0 ? ct_setup_store_error(setup, reported, 0, err) : code;
    } else {
        code = kv->wait(kv->context, key, &value, ct_setup_remaining_ms(setup));
        if (code != 0)
            code = ct_setup_store_error(setup, code, 0, err);
        else if (value.size <= offsetof(struct table_text, text) || value.size > sizeof *table_text)
            code = ct_setup_store_error(setup, CT_EPROTOCOL, 0, err);
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
    struct ct_blob *blobs = calloc((size_t)setup->size, sizeof *blobs);
    int code = ct_error_set(err, CT_EUNSUPPORTED, "group %s: backend %s cannot serve these ranks",
                            setup->key, wanted);

    if (blobs == NULL)
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
        code = open_backend(group, setup, blobs, err);
        if (code == 0)
            break;
        if (group->state != NULL)
            backend->close(group->state);
        group->backend = NULL;
        if (!try_next(code))
            break;
        setup->attempt++;
    }
    explicit_bzero(blobs, (size_t)setup->size * sizeof *blobs); /* there may be secrets in them */
    free(blobs);
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
