/* A status as `ctrun top` keeps it; see top.h. */
#include "cmd/ctrun/top/core/top.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Whole numbers come with or without an exponent. */
static int64_t whole_of(const json_t *object, const char *key)
{
    double value = real_of(object, key);

    return value >= 0 && value < 9e15 ? (int64_t)value : -1;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void read_worker(struct top_rank *worker, const json_t *from)
{
    worker->state = text_of(from, "state");
    worker->rank = whole_of(from, "rank");
    worker->pid = whole_of(from, "pid");
    worker->step = whole_of(from, "step");
    worker->awaits = whole_of(from, "awaits");
    worker->memory = real_of(from, "memory");
    worker->step_s = real_of(from, "step_s");
    worker->waits_s = real_of(from, "waits_s");
}

static void read_node(struct top_snapshot *s, struct top_node *node, const json_t *from)
{
    json_t *worker;
    size_t i;

    node->rank_first = s->worker_count;
    json_array_foreach(json_object_get(from, "ranks"), i, worker)
    {
        read_worker(&s->workers[s->worker_count++], worker);
        node->rank_count++;
    }
    node->memory = real_of(from, "memory");
    node->memory_total = real_of(from, "memory_total");
    node->load = real_of(from, "load");
    node->gpu_trouble = text_of(from, "gpu_trouble");
    node->host = text_of(from, "host");
    node->state = text_of(from, "state");
    node->node_rank = whole_of(from, "node_rank");
    node->first_rank = whole_of(from, "first_rank");
    node->slots = whole_of(from, "slots");
    node->heard_s = real_of(from, "heard_s");
    node->connected = json_is_true(json_object_get(from, "connected"));
    node->leaving = json_is_true(json_object_get(from, "leaving"));
}

/* Cordoned hosts: a mark on their nodes, or a row of their own where none is here. */
static int read_cordons(struct top_snapshot *s, struct top_job *job, const json_t *cordons)
{
    json_t *hosts = json_object(), *cordon;
    size_t i;

    if (hosts == NULL)
        return CT_ENOMEM;
    json_array_foreach(cordons, i, cordon)
    {
        (void)json_object_set(hosts, text_of(cordon, "host"), cordon);
    }
    json_t *seen = json_object();
    for (i = 0; i < job->node_count && json_object_size(hosts) > 0; i++) {
        struct top_node *node = &s->nodes[job->node_first + i];
        json_t *found = json_object_get(hosts, node->host);

        if (found == NULL)
            continue;
        node->cordon = text_of(found, "reason");
        (void)json_object_set_new(seen, node->host, json_true());
    }
    json_array_foreach(cordons, i, cordon)
    {
        const char *host = text_of(cordon, "host");

        if (json_object_get(seen, host) != NULL)
            continue;
        s->nodes[job->node_first + job->node_count++] = (struct top_node){
            .host = host,
            .state = "CORDONED",
            .cordon = text_of(cordon, "reason"),
            .job = (uint32_t)(job - s->jobs),
            .node_rank = -1,
            .first_rank = -1,
            .slots = -1,
            .heard_s = NAN,
            .memory = NAN,
            .memory_total = NAN,
            .load = NAN,
            .gpu_trouble = "",
            .connected = true,
        };
    }
    json_decref(seen);
    json_decref(hosts);
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int read_curve(struct top_job *job, const json_t *losses)
{
    json_t *value;
    size_t i;

    if (json_array_size(losses) == 0)
        return 0;
    job->losses = calloc(json_array_size(losses), sizeof *job->losses);
    if (job->losses == NULL)
        return CT_ENOMEM;
    json_array_foreach(losses, i, value)
    {
        job->losses[job->loss_count++] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return 0;
}

static void read_facts(struct top_job *job, const json_t *from)
{
    const char *trouble = text_of(from, "journal");

    *job = (struct top_job){
        .name = text_of(from, "job"),
        .phase = text_of(from, "phase"),
        .why = text_of(from, "why"),
        .round_reason = text_of(from, "round_reason"),
        .restart_reason = text_of(from, "restart_reason"),
        .trouble = strcmp(trouble, "in order") == 0 ? "" : trouble,
        .phase_s = real_of(from, "phase_s"),
        .loss = real_of(from, "loss"),
        .samples_per_s = real_of(from, "samples_per_s"),
        .percent = real_of(from, "percent"),
        .eta_s = real_of(from, "eta_s"),
        .generation = whole_of(from, "generation"),
        .world = whole_of(from, "world"),
        .nodes_min = whole_of(from, "nodes_min"),
        .nodes_max = whole_of(from, "nodes_max"),
        .restarts = whole_of(from, "restarts"),
        .max_restarts = whole_of(from, "max_restarts"),
        .step = whole_of(from, "step"),
        .steps = whole_of(from, "steps"),
        .saved = whole_of(from, "published_step"),
    };
    const char *wait = json_string_value(json_array_get(json_object_get(from, "store_waits"), 0));
    job->store_wait = wait != NULL ? wait : "";
}

static int read_job(struct top_snapshot *s, const json_t *from)
{
    struct top_job *job = &s->jobs[s->job_count];
    json_t *node;
    size_t i;

    read_facts(job, from);
    job->node_first = s->node_count;
    json_array_foreach(json_object_get(from, "nodes"), i, node)
    {
        struct top_node *at = &s->nodes[job->node_first + job->node_count++];

        read_node(s, at, node);
        at->job = (uint32_t)s->job_count;
        s->ranks += at->first_rank >= 0 && at->slots > 0 ? at->slots : 0;
    }
    int rc = read_cordons(s, job, json_object_get(from, "cordons"));
    s->node_count += job->node_count;
    s->job_count++;
    return rc != 0 ? rc : read_curve(job, json_object_get(json_object_get(from, "curve"), "loss"));
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* All jobs of all documents, in one array. */
static json_t *read_documents(const char *text, struct ct_error *err)
{
    json_t *all = json_array();
    json_error_t error;

    while (all != NULL && text[strspn(text, " \n")] != '\0') {
        json_t *one = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);
        json_t *jobs = json_object_get(one, "jobs");

        if (!json_is_array(jobs)) {
            (void)ct_error_set(err, CT_EPROTOCOL,
                               "the status is not what this ctrun knows (%s): install the same "
                               "version of ctrun everywhere",
                               one == NULL ? error.text : "no jobs in it");
            json_decref(one);
            json_decref(all);
            return NULL;
        }
        (void)json_array_extend(all, jobs);
        json_decref(one);
        text += error.position;
    }
    if (all == NULL)
        (void)ct_error_set(err, CT_ENOMEM, "no memory for the status");
    return all;
}

/* Room for all jobs, their nodes with their workers, and cordons. */
static bool make_room(struct top_snapshot *s, const json_t *jobs)
{
    size_t nodes = 0, workers = 0, i, k;
    json_t *job, *node;

    json_array_foreach(jobs, i, job)
    {
        nodes += json_array_size(json_object_get(job, "nodes")) +
                 json_array_size(json_object_get(job, "cordons"));
        json_array_foreach(json_object_get(job, "nodes"), k, node)
        {
            workers += json_array_size(json_object_get(node, "ranks"));
        }
    }
    s->jobs = calloc(json_array_size(jobs) + 1, sizeof *s->jobs);
    s->nodes = calloc(nodes + 1, sizeof *s->nodes);
    s->workers = calloc(workers + 1, sizeof *s->workers);
    return s->jobs != NULL && s->nodes != NULL && s->workers != NULL;
}

struct top_snapshot *top_snapshot_new(const char *text, struct ct_error *err)
{
    json_t *jobs = read_documents(text, err), *job;
    struct top_snapshot *s = calloc(1, sizeof *s);
    int rc = s != NULL ? 0 : CT_ENOMEM;
    size_t i;

    if (s == NULL || jobs == NULL) {
        json_decref(jobs);
        free(s);
        return NULL;
    }
    s->documents = jobs;
    if (!make_room(s, jobs))
        rc = CT_ENOMEM;
    for (i = 0; rc == 0 && i < json_array_size(jobs); i++) {
        job = json_array_get(jobs, i);
        rc = read_job(s, job);
    }
    if (rc == 0)
        return s;
    (void)ct_error_set(err, rc, "no memory for the status");
    top_snapshot_free(s);
    return NULL;
}

void top_snapshot_free(struct top_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    for (size_t i = 0; snapshot->jobs != NULL && i < snapshot->job_count; i++)
        free(snapshot->jobs[i].losses);
    free(snapshot->jobs);
    free(snapshot->nodes);
    free(snapshot->workers);
    json_decref(snapshot->documents);
    free(snapshot);
}
