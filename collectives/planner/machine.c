/* See machine.h. */
#include "collectives/planner/machine.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define GIB 1073741824.0

static const struct ct_device_figures devices[] = {
#define DEVICE(NAME, label, memory, f32, bf16, bandwidth, inside, across, node, start, products, \
               bytes, from)                                                                      \
    {.name = (label),                                                                            \
     .sources = (from),                                                                          \
     .memory_bytes = (memory)*GIB,                                                               \
     .f32_flops = (f32)*1e12,                                                                    \
     .bf16_flops = (bf16)*1e12,                                                                  \
     .memory_rate = (bandwidth)*1e9,                                                             \
     .inside_rate = (inside)*1e9,                                                                \
     .across_rate = (across)*1e9,                                                                \
     .node_rate = (node)*1e9,                                                                    \
     .start_s = (start)*1e-6,                                                                    \
     .flop_share = (products)*1e-2,                                                              \
     .bytes_share = (bytes)*1e-2},
#include "collectives/planner/device.def"
};

static const char *name_at(const void *context, size_t index)
{
    (void)context;
    return devices[index].name;
}

/* "a100-80g, h100, h200, cpu". */
static const char *list_devices(char *text, int size)
{
    int used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < CT_COUNT(devices) && used < size; i++)
        used += snprintf(text + used, (size_t)(size - used), "%s%s", i > 0 ? ", " : "",
                         devices[i].name);
    return text;
}

/* The device that `name` is the beginning of, or NULL: "a100" means the one with 80 GB. */
static const char *begins_with(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(devices); i++)
        if (name[0] != '\0' && ct_starts_with(devices[i].name, name))
            return devices[i].name;
    return NULL;
}

int ct_machine_device(const char *name, struct ct_device_figures *ret, struct ct_error *err)
{
    char names[128];

    for (size_t i = 0; i < CT_COUNT(devices); i++) {
        if (strcmp(devices[i].name, name) != 0)
            continue;
        *ret = devices[i];
        return 0;
    }
    const char *near = begins_with(name);
    if (near == NULL)
        near = ct_nearest(name, CT_COUNT(devices), name_at, NULL);
    if (near != NULL)
        return ct_error_set(err, CT_EUSAGE, "--device \"%.40s\" is not known; did you mean %s?",
                            name, near);
    return ct_error_set(err, CT_EUSAGE, "--device \"%.40s\" is not known; there are %s", name,
                        list_devices(names, sizeof names));
}

/* Of `ranks` workers `stride` apart, those in one node. */
static int mates(const struct ct_machine *machine, int ranks, int stride)
{
    return CT_MAX(CT_MIN(machine->per_node / stride, ranks), 1);
}

/* A device's part of the wire while all of its node send. */
static double across_rate(const struct ct_machine *machine)
{
    return CT_MIN(machine->device.across_rate, machine->device.node_rate / machine->per_node);
}

double ct_machine_gather_s(const struct ct_machine *machine, int ranks, int stride, double bytes)
{
    int inside = mates(machine, ranks, stride), nodes = (ranks + inside - 1) / inside;

    if (ranks <= 1)
        return 0;
    double near_s = bytes * (inside - 1) / inside / machine->device.inside_rate;
    double far_s = bytes / inside * (nodes - 1) / nodes / across_rate(machine);
    return (inside + nodes - 2) * machine->device.start_s +
           (near_s + far_s) / machine->device.bytes_share;
}

double ct_machine_send_s(const struct ct_machine *machine, int stride, double bytes)
{
    double rate = stride < machine->per_node ? machine->device.inside_rate : across_rate(machine);

    return machine->device.start_s + bytes / rate / machine->device.bytes_share;
}

double ct_machine_call_s(const struct ct_machine *machine, enum ct_cost_call call, int ranks,
                         int stride, double bytes)
{
    const struct ct_costs *costs = machine->costs;
    int inside = mates(machine, ranks, stride), nodes = (ranks + inside - 1) / inside;

    if (call == CT_CALL_COST_SEND) /* to the next rank: two sides of a wire */
        return ct_costs_call_s(costs, stride >= machine->per_node, call, 2, bytes);
    return ct_costs_call_s(costs, false, CT_CALL_COST_LATE, inside, CT_COSTS_LATE_BYTES) +
           ct_costs_call_s(costs, false, call, inside, bytes) +
           ct_costs_call_s(costs, true, call, nodes, bytes / inside);
}

double ct_machine_op_s(const struct ct_machine *machine, double flop, double bytes, double flops)
{
    double work_s = flop / flops / machine->device.flop_share;
    double move_s = bytes / machine->device.memory_rate / machine->device.bytes_share;

    return machine->device.start_s + CT_MAX(work_s, move_s);
}
