/* See report.h. */
#include "collectives/planner/report.h"

#include "base/json.h"
#include "base/scale.h"

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

static void print_heading(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_project *p = r->project;
    char text[CT_SCALE_SIZE];

    ct_buf_printf(buf, "machines     %d node%s x %d %s = %d workers\n", p->machine.nodes,
                  p->machine.nodes > 1 ? "s" : "", p->machine.per_node, p->machine.device.name,
                  p->world);
    if (p->assumed[0] != '\0')
        ct_buf_printf(buf, "assumed      %s\n", p->assumed);
    ct_buf_printf(buf, "model        %s parameters\n",
                  ct_scale_unit(r->estimate->parameters, "", text));
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
                  " samples a step: %d share%s x %d micro-batch%s x %" PRId64 " rows\n",
                  p->global, shares, shares > 1 ? "s" : "", options.accumulation,
                  options.accumulation > 1 ? "es" : "", layout.micro);
}

static void print_memory(const struct ct_report_of *r, struct ct_buf *buf)
{
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];
    double needs = ct_estimate_memory(r->estimate), there = memory_there(r->project);

    ct_buf_printf(buf, "memory       %s of %s a worker: %s\n", ct_scale_bytes(needs, a),
                  ct_scale_bytes(there, b), needs <= there ? "fits" : "does not fit");
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        if (r->estimate->memory[kind] >= 1)
            ct_buf_printf(buf, "  %-20s %s\n", ct_memory_kind_name((enum ct_memory_kind)kind),
                          ct_scale_bytes(r->estimate->memory[kind], a));
}

static void print_talk(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_estimate *e = r->estimate;
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];

    ct_buf_puts(buf, "collectives  of a worker and step\n");
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++)
        if (e->talk[axis].calls > 0)
            ct_buf_printf(buf, "  %-20s %.0f, of %s; sends %s\n", ct_axis_name((enum ct_axis)axis),
                          e->talk[axis].calls, ct_scale_bytes(e->talk[axis].bytes, a),
                          ct_scale_bytes(e->talk[axis].sent, b));
}

static void print_time(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_estimate *e = r->estimate;
    const struct ct_device_figures *device = &r->project->machine.device;
    bool half = r->project->options.compute != CT_F32;
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE], c[CT_SCALE_SIZE], d[CT_SCALE_SIZE];

    ct_buf_printf(buf, "work         %s a worker and step, in %.0f ops\n",
                  ct_scale_unit(e->flop, "FLOP", a), e->ops);
    ct_buf_printf(buf, "time         about %s a step, %s/s: computing %s, collectives %s, ",
                  ct_scale_seconds(e->step_s, a),
                  ct_scale_unit(rate_of(r->project, e), unit_of(r->project), b),
                  ct_scale_seconds(e->compute_s, c), ct_scale_seconds(e->talk_s, d));
    double alone_s = e->step_s * (1 - e->bubble);
    ct_buf_printf(buf, "of which %s beside it\n",
                  ct_scale_seconds(fmax(e->compute_s + e->talk_s - alone_s, 0), a));
    if (e->bubble > 0)
        ct_buf_printf(
            buf,
            "  bubble               %.1f %%: stages wait while the pipeline fills and drains\n",
            100 * e->bubble);
    ct_buf_printf(buf,
                  "  by                   %g TFLOP/s (%s), %g GB/s; between devices %g GB/s, "
                  "between nodes %g GB/s; "
                  "%.0f and %.0f %% of them\n",
                  (half ? device->bf16_flops : device->f32_flops) * 1e-12, half ? "bf16" : "f32",
                  device->memory_rate * 1e-9, device->inside_rate * 1e-9,
                  device->across_rate * 1e-9, 100 * CT_MACHINE_FLOP_SHARE,
                  100 * CT_MACHINE_BYTES_SHARE);
    ct_buf_printf(buf, "  source               %s\n", device->sources);
}

static void print_rung(const struct ct_rung *rung, struct ct_buf *buf)
{
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];

    if (rung->tried == 0)
        return;
    ct_buf_printf(buf, "  %-10s %-12s %10s %10s a step   %s, micro %" PRId64 ", recompute %s",
                  rung->name, rung->fits ? "fits" : "does not fit",
                  ct_scale_bytes(ct_estimate_memory(&rung->estimate), a),
                  ct_scale_seconds(rung->estimate.step_s, b), ct_layout_strategy(&rung->layout),
                  rung->layout.micro, ct_layout_recompute(&rung->layout));
    print_cuts(&rung->layout, buf);
    ct_buf_puts(buf, "\n");
}

static void print_advice(const struct ct_report_of *r, struct ct_buf *buf)
{
    const struct ct_advice *advice = r->advice;
    char words[192];

    ct_buf_puts(buf, "what fits    each way's quickest layout that does, else its smallest\n");
    for (int i = 0; i < CT_ADVICE_RUNGS; i++)
        print_rung(&advice->rungs[i], buf);
    if (advice->simplest < 0) {
        ct_buf_puts(buf, "advice       nothing fits: more workers, or a smaller model\n");
        return;
    }
    ct_buf_printf(buf, "advice       %s\n",
                  ct_layout_words(&advice->rungs[advice->simplest].layout, words, sizeof words));
    if (advice->quickest != advice->simplest)
        ct_buf_printf(
            buf, "  quicker              %s\n",
            ct_layout_words(&advice->rungs[advice->quickest].layout, words, sizeof words));
}

void ct_planner_print(const struct ct_report_of *r, struct ct_buf *buf)
{
    print_heading(r, buf);
    print_layout(r, buf);
    print_memory(r, buf);
    print_talk(r, buf);
    print_time(r, buf);
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
                      ct_axis_name((enum ct_axis)axis), e->talk[axis].calls);
        number(buf, "bytes", e->talk[axis].bytes);
        number(buf, "sent_bytes", e->talk[axis].sent);
        ct_buf_puts(buf, "}");
    }
    ct_buf_puts(buf, "}");
    number(buf, "flop", e->flop);
    number(buf, "compute_s", e->compute_s);
    number(buf, "collectives_s", e->talk_s);
    number(buf, "bubble", e->bubble);
    number(buf, "step_s", e->step_s);
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
