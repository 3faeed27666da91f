/* See plan_report.h. */
#include "collectives/planner/plan_report.h"

#include "base/json.h"
#include "base/number/scale.h"
#include "collectives/planner/job_time.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static double memory_there(const struct ct_project *project)
{
    return project->machine.device.memory_bytes;
}

/* Samples, or tokens, a second. */
static double rate_of(const struct ct_project *project, const struct ct_estimate *estimate)
{
    return (double)(project->global * project->labels_per_row) / estimate->step_s;
}

static const char *unit_of(const struct ct_project *project)
{
    return project->labels_per_row > 1 ? "tokens" : "samples";
}

/* ---- text ----------------------------------------------------------------------------------- */

enum { TEXT_AT = 13, SOURCE_AT = 23, LAYOUT_AT = 41, WIDTH = 80 };

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* "12.4 B" of parameters, as models are called by: thousands, millions, billions. */
static const char *scale_parameters(double count, char text[CT_SCALE_SIZE])
{
    static const char names[] = " KMBT";
    int step = 0;

    for (; count >= 1000 && step < 4; step++)
        count /= 1000;
    (void)snprintf(text, CT_SCALE_SIZE, step == 0 ? "%.0f" : "%.2f %c", count, names[step]);
    return text;
}

static void print_heading(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_project *p = r->project;
    char text[CT_SCALE_SIZE];

    ct_buf_printf(buf, "machines     %d node%s x %d %s = %d worker%s\n", p->machine.nodes,
                  plural(p->machine.nodes), p->machine.per_node, p->machine.device.name, p->world,
                  plural(p->world));
    if (p->assumed[0] != '\0') {
        ct_buf_puts(buf, "assumed      ");
        ct_buf_wrap(buf, p->assumed, TEXT_AT, TEXT_AT, WIDTH);
        ct_buf_puts(buf, "\n");
    }
    ct_buf_printf(buf, "model        %s parameters\n",
                  scale_parameters(r->estimate->parameters, text));
}

/* ", 2 copies, tensor 8, pipeline 4" */
static void print_cuts(const struct ct_layout *layout, struct ct_buf *buf)
{
    if (layout->replicas > 1)
        ct_buf_printf(buf, ", %d copies", layout->replicas);
    if (layout->tensor > 1)
        ct_buf_printf(buf, ", tensor %d", layout->tensor);
    if (layout->stages > 1)
        ct_buf_printf(buf, ", pipeline %d", layout->stages);
}

static void print_layout(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_project *p = r->project;
    struct ct_layout layout = ct_project_layout(p);
    struct ct_plan_options options = ct_project_options(p, &layout, 0);
    int shares = p->world / layout.tensor / layout.stages;

    ct_buf_printf(buf, "layout       %s", ct_layout_strategy(&layout));
    print_cuts(&layout, buf);
    ct_buf_printf(buf, ", recompute %s\n", ct_layout_recompute(&layout));
    ct_buf_printf(buf,
                  "batch        %" PRId64
                  " sample%s per step: %d share%s x %d micro-batch%s x %" PRId64 " row%s\n",
                  p->global, plural(p->global), shares, plural(shares), options.accumulation,
                  options.accumulation > 1 ? "es" : "", layout.micro, plural(layout.micro));
}

static void print_memory(const struct ct_report_of *r, struct ct_buf *buf)
{
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];
    double needs = ct_estimate_memory(r->estimate), there = memory_there(r->project);

    ct_buf_printf(buf, "memory       %s of %s per worker: %s\n", ct_scale_bytes(needs, a),
                  ct_scale_bytes(there, b), needs <= there ? "fits" : "does not fit");
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        if (r->estimate->memory[kind] >= 1)
            ct_buf_printf(buf, "  %-20s %s\n", ct_memory_kind_name((enum ct_memory_kind)kind),
                          ct_scale_bytes(r->estimate->memory[kind], a));
}

static void print_comm(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_estimate *e = r->estimate;
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];

    ct_buf_puts(buf, "collectives  per worker and step\n");
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++)
        if (e->comm[axis].calls > 0)
            ct_buf_printf(
                buf, "  %-20s %.0f call%s, %s; sends %s\n", ct_axis_name((enum ct_axis)axis),
                e->comm[axis].calls, e->comm[axis].calls > 1 ? "s" : "",
                ct_scale_bytes(e->comm[axis].bytes, a), ct_scale_bytes(e->comm[axis].sent, b));
}

static void print_published(const struct ct_device_figures *device, bool half, struct ct_buf *buf)
{
    ct_buf_printf(buf, "  device               %g TFLOP/s (%s), memory %g GB/s\n",
                  (half ? device->bf16_flops : device->f32_flops) * 1e-12, half ? "bf16" : "f32",
                  device->memory_rate * 1e-9);
    ct_buf_printf(buf, "  links                %g GB/s between devices, %g GB/s between nodes\n",
                  device->inside_rate * 1e-9, device->across_rate * 1e-9);
    ct_buf_printf(buf, "  reached              %.0f %% of the FLOP/s, %.0f %% of the GB/s\n",
                  100 * device->flop_share, 100 * device->bytes_share);
}

static void print_measured(const struct ct_costs *costs, struct ct_buf *buf)
{
    ct_buf_printf(buf, "  measured             %d ops, %d calls: ctrun plan --calibrate\n",
                  costs->op_count, costs->call_count);
}

static void print_time(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_estimate *e = r->estimate;
    const struct ct_device_figures *device = &r->project->machine.device;
    bool half = r->project->options.compute != CT_F32;
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];

    double alone_s = e->step_s * (1 - e->bubble);
    ct_buf_printf(buf, "work         %s per worker and step, in %.0f ops\n",
                  ct_scale_unit(e->flop, "FLOP", a), e->ops);
    ct_buf_printf(buf, "time         about %s per step, %s/s\n", ct_scale_seconds(e->step_s, a),
                  ct_scale_unit(rate_of(r->project, e), unit_of(r->project), b));
    ct_buf_printf(buf, "  compute              %s\n", ct_scale_seconds(e->compute_s, a));
    ct_buf_printf(buf, "  communication        %s (%s overlapped)\n",
                  ct_scale_seconds(e->comm_s, a),
                  ct_scale_seconds(fmax(e->compute_s + e->comm_s - alone_s, 0), b));
    if (e->bubble > 0)
        ct_buf_printf(buf, "  bubble               %.1f %% (the pipeline fills and drains)\n",
                      100 * e->bubble);
    if (r->project->machine.costs != NULL)
        print_measured(r->project->machine.costs, buf);
    else
        print_published(device, half, buf);
    ct_buf_puts(buf, "  source               ");
    ct_buf_wrap(buf, device->sources, SOURCE_AT, SOURCE_AT, WIDTH);
    ct_buf_puts(buf, "\n");
}

/* Start, round and recovery of a job of several nodes, in clear and with TLS. */
static void print_job(const struct ct_report_of *r, struct ct_buf *buf)
{
    char start[CT_SCALE_SIZE], round[CT_SCALE_SIZE], recovery[CT_SCALE_SIZE], silent[CT_SCALE_SIZE];
    char memory[CT_SCALE_SIZE], groups[CT_SCALE_SIZE];

    if (r->project->machine.nodes == 1)
        return;
    ct_buf_puts(buf,
                "job          start     round     groups    lost node silent    daemon, CPU\n");
    for (int tls = 0; tls < 2; tls++) {
        struct ct_job_times t = ct_job_times(&r->project->machine, tls != 0, r->estimate->step_s);
        ct_buf_printf(
            buf, "  %-10s %-9s %-9s %-9s %-9s %-9s %s, %.0f %%\n", tls != 0 ? "TLS" : "in clear",
            ct_scale_seconds(t.start_s, start), ct_scale_seconds(t.round_s, round),
            t.groups_s > 0 ? ct_scale_seconds(t.groups_s, groups) : "-",
            ct_scale_seconds(t.recovery_s, recovery), ct_scale_seconds(t.silent_s, silent),
            ct_scale_bytes(t.memory_bytes, memory), 100 * t.beats_share);
    }
}

static void print_rung(const struct ct_rung *rung, struct ct_buf *buf)
{
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];
    struct ct_buf layout;

    if (rung->tried == 0)
        return;
    ct_buf_init(&layout, 0);
    ct_buf_printf(&layout, "%s, micro %" PRId64 ", recompute %s", ct_layout_strategy(&rung->layout),
                  rung->layout.micro, ct_layout_recompute(&rung->layout));
    print_cuts(&rung->layout, &layout);
    ct_buf_printf(buf, "  %-10s %-4s %10s %10s  ", rung->name, rung->fits ? "yes" : "no",
                  ct_scale_bytes(ct_estimate_memory(&rung->estimate), a),
                  ct_scale_seconds(rung->estimate.step_s, b));
    ct_buf_wrap(buf, ct_buf_str(&layout), LAYOUT_AT, LAYOUT_AT, WIDTH);
    ct_buf_puts(buf, "\n");
    ct_buf_deinit(&layout);
}

/* Options of run, in as many lines as they take. */
static void print_words(const char *heading, const struct ct_layout *layout, struct ct_buf *buf)
{
    char words[192];

    ct_buf_printf(buf, "%-13s", heading);
    ct_buf_wrap(buf, ct_layout_words(layout, words, sizeof words), TEXT_AT, TEXT_AT, WIDTH);
    ct_buf_puts(buf, "\n");
}

static void print_advice(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_advice *advice = r->advice;

    ct_buf_puts(buf, "what fits    each way's fastest layout that fits, else its smallest\n");
    ct_buf_printf(buf, "  %-10s %-4s %10s %10s  %s\n", "", "fits", "memory", "per step", "layout");
    for (int i = 0; i < CT_ADVICE_RUNGS; i++)
        print_rung(&advice->rungs[i], buf);
    if (advice->simplest < 0) {
        ct_buf_puts(buf, "advice       nothing fits: use more workers or a smaller model\n");
        return;
    }
    print_words("advice", &advice->rungs[advice->simplest].layout, buf);
    if (advice->quickest != advice->simplest)
        print_words("  faster", &advice->rungs[advice->quickest].layout, buf);
}

void ct_planner_print(const struct ct_report_of *r, struct ct_buf *buf)
{
    print_heading(r, buf);
    print_layout(r, buf);
    print_memory(r, buf);
    print_comm(r, buf);
    print_time(r, buf);
    print_job(r, buf);
    if (r->advice != NULL)
        print_advice(r, buf);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* , "name": number */
static void number(struct ct_buf *buf, const char *name, double value)
{
    ct_buf_printf(buf, ",\"%s\":", name);
    ct_json_number(buf, value);
}

static void text(struct ct_buf *buf, const char *name, const char *value)
{
    ct_buf_printf(buf, ",\"%s\":", name);
    ct_json_string(buf, value);
}

static void json_estimate(const struct ct_project *project, const struct ct_layout *layout,
                          const struct ct_estimate *e, struct ct_buf *buf)
{
    bool fits = ct_estimate_memory(e) <= memory_there(project);

    ct_buf_puts(buf, "{\"strategy\":");
    ct_json_string(buf, ct_layout_strategy(layout));
    number(buf, "copies", layout->replicas);
    number(buf, "tensor", layout->tensor);
    number(buf, "pipeline", layout->stages);
    text(buf, "recompute", ct_layout_recompute(layout));
    number(buf, "micro", (double)layout->micro);
    number(buf, "accumulation", ct_project_options(project, layout, 0).accumulation);
    ct_buf_printf(buf, ",\"fits\":%s,\"whole_plan\":%s", fits ? "true" : "false",
                  e->built != 0 ? "true" : "false");
    number(buf, "memory_bytes", ct_estimate_memory(e));
    ct_buf_puts(buf, ",\"memory\":{");
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++) {
        ct_buf_printf(buf, "%s\"%s\":", kind > 0 ? "," : "",
                      ct_memory_kind_name((enum ct_memory_kind)kind));
        ct_json_number(buf, e->memory[kind]);
    }
    ct_buf_puts(buf, "},\"collectives\":{");
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++) {
        ct_buf_printf(buf, "%s\"%s\":{\"calls\":%.0f", axis > 0 ? "," : "",
                      ct_axis_name((enum ct_axis)axis), e->comm[axis].calls);
        number(buf, "bytes", e->comm[axis].bytes);
        number(buf, "sent_bytes", e->comm[axis].sent);
        ct_buf_puts(buf, "}");
    }
    ct_buf_puts(buf, "}");
    number(buf, "flop", e->flop);
    number(buf, "compute_s", e->compute_s);
    number(buf, "collectives_s", e->comm_s);
    number(buf, "bubble", e->bubble);
    number(buf, "step_s", e->step_s);
    ct_buf_puts(buf, "}");
}

static void json_job(const struct ct_report_of *r, struct ct_buf *buf)
{
    ct_buf_puts(buf, ",\"job\":{");
    for (int tls = 0; tls < 2; tls++) {
        struct ct_job_times t = ct_job_times(&r->project->machine, tls != 0, r->estimate->step_s);
        ct_buf_printf(buf, "%s\"%s\":{\"start_s\":", tls != 0 ? "," : "",
                      tls != 0 ? "tls" : "clear");
        ct_json_number(buf, t.start_s);
        number(buf, "round_s", t.round_s);
        if (t.groups_s > 0)
            number(buf, "groups_s", t.groups_s);
        number(buf, "lost_node_s", t.recovery_s);
        number(buf, "silent_node_s", t.silent_s);
        number(buf, "lease_s", t.lease_s);
        number(buf, "daemon_bytes", t.memory_bytes);
        number(buf, "daemon_cores", t.beats_share);
        ct_buf_puts(buf, "}");
    }
    ct_buf_puts(buf, "}");
}

/* The name of a rung, null for none. */
static void json_choice(struct ct_buf *buf, const char *name, const struct ct_advice *advice,
                        int rung)
{
    if (rung >= 0)
        text(buf, name, advice->rungs[rung].name);
    else
        ct_buf_printf(buf, ",\"%s\":null", name);
}

void ct_planner_json(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_project *p = r->project;
    const struct ct_layout layout = ct_project_layout(p);

    ct_buf_puts(buf, "{\"version\":1");
    number(buf, "nodes", p->machine.nodes);
    number(buf, "nproc_per_node", p->machine.per_node);
    text(buf, "device", p->machine.device.name);
    number(buf, "device_bytes", memory_there(p));
    number(buf, "parameters", r->estimate->parameters);
    number(buf, "samples", (double)p->global);
    number(buf, "labels", (double)(p->global * p->labels_per_row));
    if (p->assumed[0] != '\0')
        text(buf, "assumed", p->assumed);
    ct_buf_puts(buf, ",\"layout\":");
    json_estimate(p, &layout, r->estimate, buf);
    json_job(r, buf);
    if (r->advice != NULL) {
        const char *comma = "";
        ct_buf_puts(buf, ",\"what_fits\":{");
        for (int i = 0; i < CT_ADVICE_RUNGS; i++) {
            const struct ct_rung *rung = &r->advice->rungs[i];
            if (rung->tried == 0)
                continue;
            ct_buf_printf(buf, "%s\"%s\":", comma, rung->name);
            json_estimate(p, &rung->layout, &rung->estimate, buf);
            comma = ",";
        }
        ct_buf_puts(buf, "}");
        json_choice(buf, "simplest", r->advice, r->advice->simplest);
        json_choice(buf, "quickest", r->advice, r->advice->quickest);
    }
    ct_buf_puts(buf, "}\n");
}
