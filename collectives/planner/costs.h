/* What things cost on a machine, as `ctrun plan --calibrate` has measured it there: times of ops,
 * of calls between ranks, and some single figures.
 *
 *     calibrate/ --measures--> struct ct_costs <--reads, writes-- costs_file.c: the calibration
 *                                    |
 *                              estimate.c, job_time.c: predictions
 *
 * An op. Its time is proportional to its size (FLOP of products, bytes of all else) times a rate
 * that depends on its shape, and on whether it finds its operands in a cache: on the bytes that a
 * step touches, of all ranks that share the caches. The rate of a shape that was not measured is
 * the mean of the measured ops of the same kind, by the logarithm, weighted by 1 / d^6, where d is
 * the distance of the shapes in powers of two (rows or bytes count half, what a step touches one
 * and a half times, the worker's threads twice): far from all of them it is that of the nearest.
 *
 * A call. Between two measured numbers of bytes, or of ranks, its time goes along the straight line
 * in the logarithms of both. Beyond the last one it grows as the bytes; with more ranks its start
 * grows as their logarithm, and the rest as (N - 1) / N.
 *
 * Pure but for the file; the caller's memory. */
#ifndef CT_PLANNER_COSTS_H
#define CT_PLANNER_COSTS_H

#include "base/bytes.h"
#include "base/error.h"
#include "graph/program.h"

enum ct_cost_value {
#define VALUE(name, least, unit, text) CT_COST_##name,
#include "collectives/planner/cost_value.def"
    CT_COST_VALUES
};

/* Calls between ranks. SEND: a message from each to the next; a rank waits for its own. LATE: what
 * any call takes longer that comes after work of each rank, since one of them is late or waits for
 * a processor; of CT_COSTS_LATE_BYTES. */
enum ct_cost_call {
    CT_CALL_COST_ALL_REDUCE,
    CT_CALL_COST_ALL_GATHER,
    CT_CALL_COST_REDUCE_SCATTER,
    CT_CALL_COST_SEND,
    CT_CALL_COST_LATE,
    CT_CALL_COSTS
};

enum {
    CT_COSTS_OPS = 6144,
    CT_COSTS_CALLS = 512,
    CT_COSTS_CROWDS = 16,
    CT_COSTS_SIZES = 3,
    CT_COSTS_LATE_BYTES = 1 << 16,
    CT_COSTS_THREADS = 64,    /* of a worker, at most */
    CT_COSTS_BYTES = 1 << 20, /* of a file */
};

/* The shape of an op, as far as its rate depends on it, and its size. */
struct ct_cost_shape {
    double size[CT_COSTS_SIZES]; /* products: rows, columns, depth; attention: rows, tokens of a
                                    sequence, columns of a head; else bytes, columns if
                                    it works by rows, 1 */
    double amount;               /* FLOP of a product or attention, else bytes */
    double touched;              /* bytes of a step, of all ranks of the node */
};

struct ct_costs {
    char machine[128];
    double value[CT_COST_VALUES];
    int op_count, call_count, crowd_count;
    struct ct_cost_op {
        int kind;    /* enum ct_op_kind */
        bool half;   /* operands of 16 bits */
        int threads; /* of the worker that ran it */
        struct ct_cost_shape shape;
        double seconds;
    } ops[CT_COSTS_OPS];
    struct ct_cost_between {
        bool across; /* between nodes: TCP; else shared memory */
        enum ct_cost_call call;
        int ranks;
        double bytes;
        double seconds;
    } calls[CT_COSTS_CALLS];
    struct ct_cost_crowd {
        int ranks;       /* of one node, that compute at once, more than it has processors */
        double slowdown; /* how much longer their ops take than those of as many as it has */
    } crowds[CT_COSTS_CROWDS];
};

/* Return the shape of a computing op of a step that touches so many bytes. */
struct ct_cost_shape ct_cost_shape(const struct ct_program *program, const struct ct_program_op *op,
                                   double touched);

/* Return the threads that each of so many workers of a node has: an equal share of its processors,
 * at least one (lib/hardware/affinity.h). */
int ct_costs_threads(const struct ct_costs *costs, int workers);

/* Return the seconds of an op in a worker of so many threads, of a machine that its workers fill;
 * of a kind that was not measured those of its bytes at the memory's rate. */
double ct_costs_op_s(const struct ct_costs *costs, int kind, bool half, int threads,
                     const struct ct_cost_shape *shape);

/* Return how much longer ops take when so many ranks of a node compute: 1 up to its processors. */
double ct_costs_slowdown(const struct ct_costs *costs, int ranks);

/* Return the seconds of a call among ranks that share a machine, or that are on as many machines;
 * `bytes` of the whole data. 0 where none was measured. */
double ct_costs_call_s(const struct ct_costs *costs, bool across, enum ct_cost_call call, int ranks,
                       double bytes);

/* ---- as text ---------------------------------------------------------------------------------*/

/* Parse the lines of costs->machine, which the caller has set, out of a file; *ret_found: it has
 * some. 0, or CT_ECONFIG with a sentence that begins with the line. */
int ct_costs_parse(struct ct_costs *costs, const char *text, size_t bytes, bool *ret_found,
                   struct ct_error *err);

/* Append a file: `text`, which ct_costs_parse accepts, with the lines of this machine replaced. */
void ct_costs_print(const struct ct_costs *costs, const char *text, size_t bytes,
                    struct ct_buf *to);

/* ---- the file --------------------------------------------------------------------------------
 *
 * $CTRUN_CALIBRATION, else $XDG_CONFIG_HOME/ctrun/calibration, else ~/.config/ctrun/calibration.
 * Machines that share a home share it. */

/* Write the path of the calibration: `given`, unless NULL, or the environment's; "" if none. */
void ct_costs_path(const char *given, char *path, size_t room);

/* Load the figures of this machine from the file `given`, or from the environment's. 0 with
 * *ret_found false where nobody named the file and it does not exist or has nothing of this
 * machine; of a named one, these are errors: CT_ENOINPUT, CT_ENOTFOUND. CT_ECONFIG: broken. */
int ct_costs_load(struct ct_costs *ret, const char *given, bool *ret_found, struct ct_error *err);

/* Replace this machine's lines in the file. A file that is no calibration is not changed. 0, or an
 * error with its sentence. */
int ct_costs_save(struct ct_costs *costs, const char *given, struct ct_error *err);

#endif
