/* See trace.h. */
#include "trace.h"

#include "base/fs.h"
#include "base/json.h"
#include "graph/rule.h"
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const queue_names[] = {[CT_QUEUE_COMPUTE] = "compute",
                                          [CT_QUEUE_COMM] = "communication",
                                          [CT_QUEUE_MODEL] = "model parallelism"};

static uint64_t last_step(const struct ct_worker *worker)
{
    return (uint64_t)(worker->cfg->log.trace_after + worker->cfg->log.trace);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The members that every event with a duration has; the object stays open. */
static void put_span(struct ct_trace *trace, const struct ct_worker *worker, int queue,
                     const char *category, const char *name, uint64_t start_ns, uint64_t end_ns)
{
    ct_buf_puts(&trace->text, trace->begun ? ",\n{\"name\":" : "{\"name\":");
    trace->begun = true;
    ct_json_string(&trace->text, name);
    ct_buf_printf(&trace->text,
                  ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64
                  ".%03u,\"dur\":%" PRIu64 ".%03u",
                  category, worker->me->rank, queue, start_ns / 1000, (unsigned)(start_ns % 1000),
                  (end_ns - start_ns) / 1000, (unsigned)((end_ns - start_ns) % 1000));
}

/* "linear layers.0.weight": the parameter says more than a passing value's name. */
static const char *operand(const struct ct_program *program, const struct ct_program_op *op)
{
    for (int i = 0; i < CT_OP_MAX_IN; i++) {
        if (op->in[i] != CT_NONE &&
            program->values[program->values[op->in[i]].root].kind == CT_VALUE_PARAM)
            return program->values[op->in[i]].name;
    }
    return program->values[op->out[0] != CT_NONE ? op->out[0] : op->in[0]].name;
}

static void put_op(struct ct_worker *worker, int i, const struct ct_exec_event *event)
{
    const struct ct_plan_list *list = &worker->plan.step;
    const struct ct_program_op *op = &list->program.ops[i];
    struct ct_cost cost = ct_program_cost(&list->program, op);
    char name[256];

    (void)snprintf(name, sizeof name, "%s %s", ct_rule_info(op->kind)->name,
                   operand(&list->program, op));
    put_span(&worker->trace, worker, list->slot[i].queue, ct_stage_name(op->stage), name,
             event->start_ns, event->end_ns);
    ct_buf_printf(&worker->trace.text, ",\"args\":{\"op\":%d,\"micro\":%d,\"bytes\":", i,
                  op->micro);
    ct_json_number(&worker->trace.text, cost.bytes);
    ct_buf_puts(&worker->trace.text, ",\"flop\":");
    ct_json_number(&worker->trace.text, cost.flop);
    ct_buf_puts(&worker->trace.text, "}}");
}

/* What the viewer calls a process or one of its threads. */
static void put_name(struct ct_buf *text, const char *what, int rank, int thread, const char *name)
{
    ct_buf_printf(text,
                  "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}"
                  ",\n",
                  what, rank, thread, name);
}

void ct_trace_begin(struct ct_worker *worker)
{
    if (worker->trace.open)
        worker->trace.began_ns = ct_clock_mono_ns(worker->clock);
}

void ct_trace_feed(struct ct_worker *worker)
{
    if (!worker->trace.open)
        return;
    worker->trace.fed_ns = ct_clock_mono_ns(worker->clock);
    ct_exec_set_tracing(worker->exec, worker->step >= (uint64_t)worker->cfg->log.trace_after);
}

void ct_trace_add(struct ct_worker *worker)
{
    struct ct_trace *trace = &worker->trace;
    char name[64];

    if (!trace->open || worker->step <= (uint64_t)worker->cfg->log.trace_after)
        return;
    const struct ct_exec_event *events = ct_exec_trace(worker->exec);
    (void)snprintf(name, sizeof name, "step %" PRIu64, worker->step);
    put_span(trace, worker, CT_QUEUE_COMPUTE, "data", "data", trace->began_ns, trace->fed_ns);
    ct_buf_puts(&trace->text, "}");
    put_span(trace, worker, CT_QUEUE_COMPUTE, "step", name, trace->fed_ns,
             ct_clock_mono_ns(worker->clock));
    ct_buf_puts(&trace->text, "}");
    for (int i = 0; i < worker->plan.step.program.op_count; i++)
        put_op(worker, i, &events[i]);
    if (worker->step >= last_step(worker))
        ct_trace_close(worker);
}

/* ---- the file -------------------------------------------------------------------------------- */

void ct_trace_open(struct ct_worker *worker)
{
    struct ct_trace *trace = &worker->trace;
    char name[32];

    ct_exec_set_tracing(worker->exec, false);
    if (worker->cfg->log.trace == 0 || worker->step >= last_step(worker))
        return;
    *trace = (struct ct_trace){.open = true};
    ct_buf_init(&trace->text, 0);
    ct_buf_printf(&trace->text, "{\"baseTimeNanoseconds\":%" PRIu64 ",\"traceEvents\":[\n",
                  ct_clock_wall_ns(worker->clock) - ct_clock_mono_ns(worker->clock));
    (void)snprintf(name, sizeof name, "rank %d", worker->me->rank);
    put_name(&trace->text, "process_name", worker->me->rank, 0, name);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        put_name(&trace->text, "thread_name", worker->me->rank, queue, queue_names[queue]);
}

static int write_file(struct ct_worker *worker, struct ct_error *err)
{
    char folder[PATH_MAX], path[PATH_MAX], round[32] = "";
    int code = ct_run_dir_path(&worker->run_dir, "trace", folder, err);

    if (code == 0)
        code = ct_fs_make_dirs(folder, err);
    if (code != 0)
        return code;
    if (worker->me->generation > 1)
        (void)snprintf(round, sizeof round, ".round%" PRIu64, (uint64_t)worker->me->generation);
    if (snprintf(path, sizeof path, "%s/rank%d%s.json", folder, worker->me->rank, round) >=
        (int)sizeof path)
        return ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", folder);
    ct_buf_puts(&worker->trace.text, "\n]}\n");
    return ct_fs_replace(path, ct_buf_str(&worker->trace.text), worker->trace.text.size, err);
}

void ct_trace_close(struct ct_worker *worker)
{
    struct ct_trace *trace = &worker->trace;
    struct ct_error err = {0};

    if (!trace->open)
        return;
    ct_exec_set_tracing(worker->exec, false);
    if (trace->begun && write_file(worker, &err) != 0)
        ct_log_event(worker->log, CT_LOG_WARN, "trace", "the trace is lost: %s", err.text);
    ct_buf_deinit(&trace->text);
    *trace = (struct ct_trace){.open = false};
}
