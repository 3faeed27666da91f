/* The trace as a viewer reads it: every op of every traced step, on its queue, inside its step.
 * Row E19 of the equivalence table: what is reduced, and that it is on the other queue. */
#include "base/fs.h"
#include "collectives/exec/executor.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TestSuite(trace, .init = harness_enter, .fini = harness_leave, .timeout = 60);

enum { AFTER = 3, STEPS = 2 };

static json_t *load(const char *path)
{
    json_error_t why;
    json_t *file = json_load_file(path, 0, &why);

    cr_assert_not_null(file, "%s: line %d: %s", path, why.line, why.text);
    return file;
}

static const char *text_of(json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));

    cr_assert_not_null(text, "no %s", key);
    return text;
}

static double number_of(json_t *event, const char *key)
{
    json_t *number = json_object_get(event, key);

    cr_assert(json_is_number(number), "no %s", key);
    return json_number_value(number);
}

/* What one file holds. */
struct found {
    int steps, data, ops, reduces;
    int first, last; /* numbers of the steps */
};

/* Ops follow their step's event and lie within it. */
static struct found examine(const char *path, int rank)
{
    struct found found = {0, 0, 0, 0, 0, 0};
    json_t *file = load(path), *event;
    double from = 0, to = 0;
    size_t i;

    cr_assert_gt(number_of(file, "baseTimeNanoseconds"), 0);
    json_array_foreach(json_object_get(file, "traceEvents"), i, event)
    {
        const char *category = json_string_value(json_object_get(event, "cat"));

        cr_assert_eq(number_of(event, "pid"), rank);
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        double start = number_of(event, "ts"), end = start + number_of(event, "dur");
        if (strcmp(category, "step") == 0) {
            cr_assert_eq(sscanf(text_of(event, "name"), "step %d", &found.last), 1);
            found.first = found.steps++ == 0 ? found.last : found.first;
            from = start;
            to = end;
        } else if (strcmp(category, "data") == 0) {
            found.data++;
        } else {
            bool reduces = strncmp(text_of(event, "name"), "all_reduce ", 11) == 0;

            cr_assert(start > from - 0.01 && end < to + 0.01 && end >= start);
            cr_assert(!reduces || number_of(event, "tid") == CT_QUEUE_COMM);
            found.ops++;
            found.reduces += reduces;
        }
    }
    json_decref(file);
    return found;
}

/* Ops and reductions of a step, from the plan. */
static int plan_ops, plan_reduces;

static int count_ops(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_program *program = &worker->plan.step.program;
    int reduces = 0;

    (void)err;
    for (int i = 0; i < program->op_count; i++)
        reduces += program->ops[i].kind == CT_OP_ALL_REDUCE;
    if (worker->me->rank == 0) {
        plan_ops = program->op_count;
        plan_reduces = reduces;
    }
    return 0;
}

Test(trace, every_op_of_every_traced_step_is_in_the_file_of_its_rank)
{
    struct training counted = {.world = 2,
                               .options = {"--parallel.first_bucket=64", "--parallel.bucket=64"},
                               .instead = count_ops};
    struct training traced = {.world = 2,
                              .options = {"--log.trace=2", "--log.trace_after=3",
                                          "--parallel.first_bucket=64", "--parallel.bucket=64"}};
    static const char *const paths[] = {"run/trace/rank0.json", "run/trace/rank1.json"};

    harness_run(&counted);
    (void)harness_train(&traced);
    cr_assert_gt(plan_reduces, 2, "several buckets");
    for (int rank = 0; rank < 2; rank++) {
        struct found found = examine(paths[rank], rank);

        cr_assert_eq(found.steps, STEPS);
        cr_assert_eq(found.data, STEPS);
        cr_assert_eq(found.first, AFTER + 1);
        cr_assert_eq(found.last, AFTER + STEPS);
        cr_assert_eq(found.ops, STEPS * plan_ops);
        cr_assert_eq(found.reduces, STEPS * plan_reduces);
    }
}

Test(trace, a_training_that_ends_before_the_last_traced_step_writes_those_it_made)
{
    struct training traced = {.world = 1, .options = {"--log.trace=10", "--log.trace_after=18"}};

    (void)harness_train(&traced);
    struct found found = examine("run/trace/rank0.json", 0);
    cr_assert_eq(found.first, 19);
    cr_assert_eq(found.last, 20);
}

Test(trace, tracing_changes_no_bit_and_without_it_there_is_no_file)
{
    struct training traced = {.world = 2, .options = {"--log.trace=5", "--log.trace_after=0"}};
    struct training plain = {.world = 2};
    uint64_t bits = harness_train(&traced);

    cr_assert_eq(ct_fs_remove_tree("run/trace"), 0);
    cr_assert_eq(harness_train(&plain), bits);
    cr_assert_neq(access("run/trace", F_OK), 0);
}

Test(trace, a_trace_that_cannot_be_written_ends_no_training)
{
    struct training traced = {.world = 1, .options = {"--log.trace=2"}};
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_make_dirs("run", &err), 0);
    cr_assert_eq(ct_fs_replace("run/trace", "x", 1, &err), 0, "%s", err.text);
    (void)harness_train(&traced);
}

/* ---- overlap as the file shows it ------------------------------------------------------------ */

/* Holds op `held` of the last rank back until op `opens` has begun, which comes later in the list
 * or in another queue: an executor that does one thing after the other would never get there. */
static struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int opens, held; /* ops of the plan */
    bool begun, given_up;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void before_op(void *context, int op)
{
    struct timespec limit;

    (void)context;
    if (op != gate.opens && op != gate.held)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    pthread_mutex_lock(&gate.mutex);
    if (op == gate.opens) {
        gate.begun = true;
        pthread_cond_broadcast(&gate.changed);
    } else {
        while (!gate.begun && !gate.given_up)
            gate.given_up = pthread_cond_timedwait(&gate.changed, &gate.mutex, &limit) != 0;
        gate.begun = false; /* for the next step */
    }
    pthread_mutex_unlock(&gate.mutex);
}

/* Of gradients: the sums of losses go first. */
static void shut(struct ct_worker *worker)
{
    const struct ct_program *program = &worker->plan.step.program;

    gate.opens = gate.held = -1;
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        bool reduces =
            op->kind == CT_OP_REDUCE_SCATTER ||
            (op->kind == CT_OP_ALL_REDUCE && program->values[op->out[0]].kind == CT_VALUE_GRAD);
        if (reduces && gate.opens < 0)
            gate.opens = i;
        if (op->stage == CT_STAGE_BACKWARD)
            gate.held = i;
    }
    cr_assert(gate.opens >= 0 && gate.opens < gate.held);
    worker->exec->options.before_op = before_op;
}

/* The event of an op; steps follow one another, this is the first's. */
static json_t *event_of(json_t *file, int op)
{
    json_t *event;
    size_t i;

    json_array_foreach(json_object_get(file, "traceEvents"), i, event)
    {
        json_t *number = json_object_get(json_object_get(event, "args"), "op");
        if (json_is_integer(number) && json_integer_value(number) == op)
            return event;
    }
    cr_assert_fail("no event of op %d", op);
    return NULL;
}

Test(trace, the_first_bucket_is_reduced_before_the_last_backward_op_ends)
{
    static const char *const strategies[] = {"--parallel.strategy=ddp", "--parallel.strategy=zero1",
                                             "--parallel.strategy=fsdp"};

    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        struct training training = {
            .world = 2,
            .options = {"--log.trace=1", "--log.trace_after=1", "--parallel.first_bucket=64",
                        "--parallel.bucket=64", "--checkpoint.resume=none", strategies[i]},
            .tamper = shut};

        (void)harness_train(&training);
        cr_assert_not(gate.given_up, "%s: no reduction before the last backward op", strategies[i]);
        json_t *file = load("run/trace/rank1.json");
        json_t *reduce = event_of(file, gate.opens);
        json_t *backward = event_of(file, gate.held);
        cr_assert_eq(number_of(reduce, "tid"), CT_QUEUE_COMM);
        cr_assert_eq(number_of(backward, "tid"), CT_QUEUE_COMPUTE);
        cr_assert_str_eq(text_of(backward, "cat"), "backward");
        cr_assert_leq(number_of(reduce, "ts"),
                      number_of(backward, "ts") + number_of(backward, "dur"));
        cr_assert_gt(number_of(json_object_get(reduce, "args"), "bytes"), 0);
        json_decref(file);
    }
}

/* The second message of a stage is held back until the first micro-batch is computed. */
static void shut_message(struct ct_worker *worker)
{
    const struct ct_program *program = &worker->plan.step.program;
    int at = 0;

    for (int messages = 0; messages < 2; at++)
        messages += program->ops[at].kind == CT_OP_EXCHANGE;
    gate.held = at - 1;
    while (ct_op_is_comm(program->ops[at].kind))
        at++;
    gate.opens = at;
    cr_assert_eq(program->ops[at].micro, 0);
    worker->exec->options.before_op = before_op;
}

Test(trace, a_stage_computes_while_it_receives_the_next_micro_batch)
{
    struct training training = {.world = 2,
                                .options = {"--log.trace=1", "--log.trace_after=1",
                                            "--parallel.pipeline=2", "--parallel.schedule=gpipe",
                                            "--batch.micro=1", "--checkpoint.resume=none"},
                                .tamper = shut_message};

    (void)harness_train(&training);
    cr_assert_not(gate.given_up, "no op was computed before the second message had passed");
    json_t *file = load("run/trace/rank1.json");
    json_t *message = event_of(file, gate.held), *computes = event_of(file, gate.opens);
    cr_assert_eq(number_of(message, "tid"), CT_QUEUE_MODEL);
    cr_assert_eq(number_of(computes, "tid"), CT_QUEUE_COMPUTE);
    cr_assert_leq(number_of(computes, "ts"), number_of(message, "ts") + number_of(message, "dur"));
    json_decref(file);
}
