/* The machines that a plan is for: nodes with equally many devices, of one kind out of device.def.
 * This machine is not probed. */
#ifndef CT_PLANNER_MACHINE_H
#define CT_PLANNER_MACHINE_H

#include "base/error.h"
#include "collectives/planner/costs.h"

/* Figures of a device, in bytes, FLOP and seconds. */
struct ct_device_figures {
    const char *name;
    const char *sources;
    double memory_bytes;
    double f32_flops, bf16_flops; /* a second, by the data sheet */
    double memory_rate;           /* bytes a second, likewise */
    double inside_rate, across_rate, node_rate;
    double start_s;                 /* latency of an op or a message */
    double flop_share, bytes_share; /* reached fractions of the rates above */
};

struct ct_machine {
    struct ct_device_figures device;
    int nodes, per_node;          /* devices a node; a worker has one */
    const struct ct_costs *costs; /* borrowed: the device was measured; NULL: published figures */
};

/* Find the figures of the device called `name`. 0, or CT_EUSAGE with the known names. */
int ct_machine_device(const char *name, struct ct_device_figures *ret, struct ct_error *err);

/* Return the seconds that one of `ranks` workers, `stride` apart, needs to receive all but its own
 * part of `bytes` that lie in equal parts on all of them: an all_gather, or a reduce_scatter the
 * other way round; an all_reduce is both. Inside of a node over `inside`; between nodes each part
 * crosses once, on the cards of all devices that hold one (collectives/backend/hier/hier.h). */
double ct_machine_gather_s(const struct ct_machine *machine, int ranks, int stride, double bytes);

/* Return the seconds for `bytes` to a worker that is `stride` ranks away. */
double ct_machine_send_s(const struct ct_machine *machine, int stride, double bytes);

/* Return the seconds of a call on machines that were measured (machine->costs): inside of a node
 * over shared memory, between nodes over TCP. Where all ranks of a node take part, those of a node
 * exchange first, and each sends its part to the same rank of other nodes
 * (collectives/backend/hier/hier.h). */
double ct_machine_call_s(const struct ct_machine *machine, enum ct_cost_call call, int ranks,
                         int stride, double bytes);

/* Return the seconds of an op: the longer of arithmetic and memory. */
double ct_machine_op_s(const struct ct_machine *machine, double flop, double bytes, double flops);

#endif
