/* See select.h. */
#include "algorithm/select.h"

#include "base/assert.h"
#include "reduce/reduce.h"

const char *ct_algorithm_name(enum ct_algorithm algorithm)
{
    static const char *const names[CT_ALGO_COUNT] = {
        [CT_ALGO_NONE] = "-",
        [CT_ALGO_FLAT] = "flat",
        [CT_ALGO_DIRECT] = "direct",
        [CT_ALGO_DIRECT_SCATTER] = "direct",
        [CT_ALGO_DIRECT_GATHER] = "direct",
        [CT_ALGO_RING] = "ring",
        [CT_ALGO_RING_SCATTER] = "ring",
        [CT_ALGO_RING_GATHER] = "ring",
        [CT_ALGO_DOUBLING] = "doubling",
        [CT_ALGO_CHAIN] = "chain",
        [CT_ALGO_BINOMIAL] = "binomial",
        [CT_ALGO_DISSEMINATION] = "dissemination",
        [CT_ALGO_FLAT_ROOT] = "flat",
        [CT_ALGO_DIRECT_ROOT] = "direct",
        [CT_ALGO_GATHER] = "gather",
        [CT_ALGO_SCATTER] = "scatter",
        [CT_ALGO_EXCHANGE] = "exchange",
        [CT_ALGO_SWAP] = "swap",
        [CT_ALGO_BRUCK] = "bruck",
        [CT_ALGO_BRUCK_GATHER] = "bruck",
        [CT_ALGO_ROUTED] = "routed",
        [CT_ALGO_ROUTED_SCATTER] = "routed",
        [CT_ALGO_ROUTED_ROOT] = "routed",
        [CT_ALGO_BINOMIAL_ROOT] = "binomial",
        [CT_ALGO_BINOMIAL_GATHER] = "binomial",
        [CT_ALGO_BINOMIAL_SCATTER] = "binomial",
        [CT_ALGO_HALVING] = "halving",
        [CT_ALGO_DOUBLE_TREE] = "double_tree",
        [CT_ALGO_DOUBLE_TREE_BROADCAST] = "double_tree",
        [CT_ALGO_TREE_ROOT] = "tree",
        [CT_ALGO_CHAIN_REDUCE] = "chain",
        [CT_ALGO_CHAIN_ROOT] = "chain",
        [CT_ALGO_FLAGS] = "flags",
        [CT_ALGO_STAGED] = "staged",
        [CT_ALGO_PIPELINE] = "pipeline",
        [CT_ALGO_PIPELINE_ROOT] = "pipeline",
        [CT_ALGO_IN_PLACE] = "in_place",
        [CT_ALGO_DOMAINS] = "domains",
        [CT_ALGO_DOMAINS_IN_PLACE] = "domains",
        [CT_ALGO_COLUMNS] = "columns",
        [CT_ALGO_LEVELS] = "levels",
    };
    return names[algorithm];
}

struct ct_tuning ct_tuning_complete(const struct ct_tuning *given)
{
    struct ct_tuning tuning = given != NULL ? *given : (struct ct_tuning){0};

#define CT_TUNABLE(scope, name, otherwise, least, most, text) \
    tuning.name = tuning.name != 0 ? tuning.name : (otherwise);
#include "algorithm/select.def"
#undef CT_TUNABLE
    return tuning;
}

/* ---- the rules -------------------------------------------------------------------------------*/

/* What a rule needs beside the size. */
enum need {
    WIDE = 1,              /* more ranks than tcp_direct_world */
    POWER_OF_TWO = 2,      /* so many ranks */
    IN_STEPS = 4,          /* sums of sums are of the element's type */
    FAST = 8,              /* any order will do */
    NOT_REPRODUCIBLE = 16, /* the tree's order, or any */
    EVEN = 32,             /* where a member's parts lie is known to all */
    ONE_BUFFER = 64,       /* send and recv are the same */
    RANK_ORDER = 128,      /* the order of ranks will do */
    UNSCALED = 256,        /* no factor of each member, which only its peers learn */
};

/* Sizes are those of the longest part of a call, where it has parts, or else of the buffer. They
 * are given as 1 + enum ct_tunable; 0: any size. */
struct rule {
    enum ct_algorithm algorithm;
    size_t from, up_to;
    unsigned needs;
};

enum { RULES = 11 };

#define SIZE(name) 1 + CT_SIZE_##name

/* A list for each kind, that ends with a rule for all calls; but for `symmetric` and `domains`,
 * where what has no rule is shared. */
static const struct rule symmetric[CT_CALL_KINDS][RULES] = {
    [CT_CALL_ALL_REDUCE] = {{.algorithm = CT_ALGO_IN_PLACE, .from = SIZE(local_direct_bytes)}},
    [CT_CALL_ALL_GATHER] = {{.algorithm = CT_ALGO_IN_PLACE, .from = SIZE(local_direct_bytes)}},
    [CT_CALL_REDUCE_SCATTER] = {{.algorithm = CT_ALGO_IN_PLACE,
                                 .from = SIZE(local_direct_bytes),
                                 .needs = EVEN}},
    [CT_CALL_BROADCAST] = {{.algorithm = CT_ALGO_IN_PLACE, .from = SIZE(local_direct_bytes)}},
};

static const struct rule domains[CT_CALL_KINDS][RULES] = {
    [CT_CALL_ALL_REDUCE] = {{.algorithm = CT_ALGO_DOMAINS,
                             .from = SIZE(local_domains_bytes),
                             .needs = IN_STEPS | RANK_ORDER}},
    [CT_CALL_ALL_GATHER] = {{.algorithm = CT_ALGO_DOMAINS, .from = SIZE(local_domains_bytes)}},
    [CT_CALL_BROADCAST] = {{.algorithm = CT_ALGO_DOMAINS, .from = SIZE(local_domains_bytes)}},
};

static const struct rule shared[CT_CALL_KINDS][RULES] = {
    [CT_CALL_ALL_REDUCE] = {{.algorithm = CT_ALGO_FLAT, .up_to = SIZE(local_flat_bytes)},
                            {.algorithm = CT_ALGO_PIPELINE}},
    [CT_CALL_REDUCE] = {{.algorithm = CT_ALGO_FLAT_ROOT, .up_to = SIZE(local_flat_bytes)},
                        {.algorithm = CT_ALGO_PIPELINE_ROOT}},
    [CT_CALL_REDUCE_SCATTER] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_ALL_GATHER] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_BROADCAST] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_GATHER] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_SCATTER] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_ALL_TO_ALL] = {{.algorithm = CT_ALGO_STAGED}},
    [CT_CALL_BARRIER] = {{.algorithm = CT_ALGO_FLAGS}},
};

/* More ranks than tcp_direct_world go where a rank has O(log p) peers (step_schedule.h). */
static const struct rule mesh[CT_CALL_KINDS][RULES] = {
    [CT_CALL_ALL_REDUCE] =
        {
            {.algorithm = CT_ALGO_DOUBLING,
             .up_to = SIZE(tcp_doubling_bytes),
             .needs = WIDE | IN_STEPS | FAST},
            {.algorithm = CT_ALGO_DOUBLING,
             .up_to = SIZE(tcp_doubling_bytes),
             .needs = WIDE | POWER_OF_TWO | IN_STEPS | NOT_REPRODUCIBLE},
            {.algorithm = CT_ALGO_HALVING,
             .up_to = SIZE(tcp_halving_bytes),
             .needs = WIDE | POWER_OF_TWO | IN_STEPS | NOT_REPRODUCIBLE},
            {.algorithm = CT_ALGO_DOUBLE_TREE,
             .up_to = SIZE(tcp_tree_bytes),
             .needs = WIDE | IN_STEPS | FAST},
            {.algorithm = CT_ALGO_RING, .needs = WIDE | IN_STEPS | FAST},
            {.algorithm = CT_ALGO_BRUCK, .up_to = SIZE(tcp_bruck_bytes), .needs = WIDE | UNSCALED},
            {.algorithm = CT_ALGO_CHAIN_REDUCE,
             .from = SIZE(tcp_chain_reduce_bytes),
             .needs = WIDE | IN_STEPS | RANK_ORDER},
            {.algorithm = CT_ALGO_ROUTED, .needs = WIDE | UNSCALED},
            {.algorithm = CT_ALGO_FLAT, .up_to = SIZE(tcp_flat_bytes)},
            {.algorithm = CT_ALGO_DIRECT},
        },
    [CT_CALL_REDUCE_SCATTER] = {{.algorithm = CT_ALGO_ROUTED_SCATTER,
                                 .up_to = SIZE(tcp_gather_bytes),
                                 .needs = WIDE | UNSCALED},
                                {.algorithm = CT_ALGO_RING_SCATTER,
                                 .needs = WIDE | IN_STEPS | FAST},
                                {.algorithm = CT_ALGO_ROUTED_SCATTER, .needs = WIDE | UNSCALED},
                                {.algorithm = CT_ALGO_DIRECT_SCATTER}},
    [CT_CALL_ALL_GATHER] = {{.algorithm = CT_ALGO_BRUCK_GATHER,
                             .up_to = SIZE(tcp_gather_bytes),
                             .needs = WIDE},
                            {.algorithm = CT_ALGO_RING_GATHER, .needs = WIDE},
                            {.algorithm = CT_ALGO_DIRECT_GATHER}},
    [CT_CALL_REDUCE] = {{.algorithm = CT_ALGO_TREE_ROOT,
                         .up_to = SIZE(tcp_binomial_bytes),
                         .needs = WIDE | IN_STEPS | NOT_REPRODUCIBLE},
                        {.algorithm = CT_ALGO_BINOMIAL_ROOT,
                         .up_to = SIZE(tcp_bruck_bytes),
                         .needs = WIDE | UNSCALED},
                        {.algorithm = CT_ALGO_CHAIN_ROOT,
                         .from = SIZE(tcp_chain_reduce_bytes),
                         .needs = WIDE | IN_STEPS | RANK_ORDER},
                        {.algorithm = CT_ALGO_ROUTED_ROOT, .needs = WIDE | UNSCALED},
                        {.algorithm = CT_ALGO_FLAT_ROOT, .up_to = SIZE(tcp_flat_bytes)},
                        {.algorithm = CT_ALGO_DIRECT_ROOT}},
    [CT_CALL_BROADCAST] = {{.algorithm = CT_ALGO_BINOMIAL,
                            .up_to = SIZE(tcp_binomial_bytes),
                            .needs = WIDE},
                           {.algorithm = CT_ALGO_DOUBLE_TREE_BROADCAST, .needs = WIDE},
                           {.algorithm = CT_ALGO_BINOMIAL, .up_to = SIZE(tcp_chain_bytes)},
                           {.algorithm = CT_ALGO_CHAIN}},
    [CT_CALL_GATHER] = {{.algorithm = CT_ALGO_BINOMIAL_GATHER, .needs = WIDE},
                        {.algorithm = CT_ALGO_GATHER}},
    [CT_CALL_SCATTER] = {{.algorithm = CT_ALGO_BINOMIAL_SCATTER, .needs = WIDE},
                         {.algorithm = CT_ALGO_SCATTER}},
    [CT_CALL_ALL_TO_ALL] = {{.algorithm = CT_ALGO_SWAP, .needs = ONE_BUFFER},
                            {.algorithm = CT_ALGO_EXCHANGE}},
    [CT_CALL_BARRIER] = {{.algorithm = CT_ALGO_DISSEMINATION}},
};

static const struct rule levels[CT_CALL_KINDS][RULES] = {
    [CT_CALL_ALL_REDUCE] = {{.algorithm = CT_ALGO_COLUMNS,
                             .up_to = SIZE(hier_small_bytes),
                             .needs = IN_STEPS},
                            {.algorithm = CT_ALGO_LEVELS}},
    [CT_CALL_BROADCAST] = {{.algorithm = CT_ALGO_COLUMNS, .up_to = SIZE(hier_small_bytes)},
                           {.algorithm = CT_ALGO_LEVELS}},
    [CT_CALL_REDUCE] = {{.algorithm = CT_ALGO_LEVELS}},
    [CT_CALL_REDUCE_SCATTER] = {{.algorithm = CT_ALGO_LEVELS}},
    [CT_CALL_ALL_GATHER] = {{.algorithm = CT_ALGO_LEVELS}},
    [CT_CALL_BARRIER] = {{.algorithm = CT_ALGO_LEVELS}},
};

static const struct rule (*const rules[CT_TOPOLOGIES])[RULES] = {
    [CT_TOPOLOGY_SYMMETRIC] = symmetric, [CT_TOPOLOGY_SHARED] = shared,
    [CT_TOPOLOGY_DOMAINS] = domains,     [CT_TOPOLOGY_MESH] = mesh,
    [CT_TOPOLOGY_LEVELS] = levels,
};

/* What of all needs this call meets. */
static unsigned met(const struct ct_tuning *tuning, const struct ct_call *call)
{
    bool reduces = ct_call_reduces(call->kind);
    bool power_of_two = (call->size & (call->size - 1)) == 0;

    return ((size_t)call->size > tuning->tcp_direct_world ? WIDE : 0u) |
           (power_of_two ? POWER_OF_TWO : 0u) |
           (reduces && ct_reduce_in_steps(call->dtype, call->reduce) ? IN_STEPS : 0u) |
           (call->mode == CT_MODE_FAST ? FAST : 0u) |
           (call->mode != CT_MODE_REPRODUCIBLE ? NOT_REPRODUCIBLE : 0u) |
           (!call->uneven ? EVEN : 0u) | (call->send == call->recv ? ONE_BUFFER : 0u) |
           (call->mode != CT_MODE_INVARIANT ? RANK_ORDER : 0u) |
           (!reduces || call->reduce != CT_REDUCE_PREMUL_SUM ? UNSCALED : 0u);
}

enum ct_algorithm ct_select(const struct ct_tuning *tuning, enum ct_topology topology,
                            const struct ct_call *call)
{
    const struct rule *list = rules[topology][call->kind];
    const size_t *sizes = (const size_t *)(const void *)tuning;
    unsigned has = met(tuning, call);

    for (int i = 0; i < RULES && list[i].algorithm != CT_ALGO_NONE; i++)
        if ((list[i].needs & ~has) == 0 &&
            (list[i].from == 0 || call->longest_bytes >= sizes[list[i].from - 1]) &&
            (list[i].up_to == 0 || call->longest_bytes <= sizes[list[i].up_to - 1]))
            return list[i].algorithm;
    CT_ASSERT(topology == CT_TOPOLOGY_SYMMETRIC || topology == CT_TOPOLOGY_DOMAINS);
    return ct_select(tuning, CT_TOPOLOGY_SHARED, call);
}
