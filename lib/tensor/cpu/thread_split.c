/* Cutting an op's range for the threads (cpu.h). */
#include "tensor/cpu/cpu.h"

#include "base/assert.h"

enum {
    ALIGN_UNITS = 64, /* parts start on multiples of it: whole vectors, no shared cache lines */
    MAX_SEGMENTS = 64,
    GRAIN = 16384 /* elements that are worth waking a thread for */
};

int ct_cpu_threads(const struct ct_cpu *cpu, int64_t work, int64_t grain)
{
    int64_t wanted = work / grain;

    return wanted < 1 ? 1 : (int)CT_MIN(wanted, ct_pool_threads(cpu->pool));
}

struct split {
    const struct ct_cpu_work *work;
    char *workspace;
    int64_t count, chunk;
};

static void split_index(void *context, int index)
{
    const struct split *split = context;
    const struct ct_cpu_work *work = split->work;
    int64_t first = index * split->chunk, count = CT_MIN(split->chunk, split->count - first);
    char *workspace = split->workspace + (size_t)index * CT_CPU_WORKSPACE;

    if (first >= split->count)
        return;
    if (work->narrow != NULL)
        ct_narrow_part(work, first, count, workspace);
    else if (work->block != NULL)
        work->block(work->args, first, count, workspace, workspace + CT_GEMM_WORKSPACE);
    else
        work->part(work->args, first, count);
}

void ct_cpu_split(struct ct_cpu *cpu, const struct ct_cpu_work *work, struct ct_cpu_range range)
{
    int threads = ct_cpu_threads(cpu, range.count * range.width, GRAIN);
    struct split split = {.work = work,
                          .workspace = cpu->workspace,
                          .count = range.count,
                          .chunk = (range.count + threads - 1) / threads};

    if (split.count == 0)
        return;
    if (split.chunk > ALIGN_UNITS)
        split.chunk = (split.chunk + ALIGN_UNITS - 1) / ALIGN_UNITS * ALIGN_UNITS;
    ct_pool_run(cpu->pool, threads, split_index, &split);
}

/* ---- sums --------------------------------------------------------------------------------------
 *
 * A range of n > leaf units splits at the largest leaf * 2^k < n; both halves do the same. Segments
 * of leaf * 2^k units are whole sub-trees of it, so threads may work on segments and the tree over
 * the segments' sums is the same tree. */

struct tree {
    const struct ct_cpu_work *work;
    char *workspace; /* of all threads */
    int64_t count, leaf, segment;
    int segments, threads;
    double partial[MAX_SEGMENTS];
};

static int64_t left_half(int64_t count, int64_t leaf)
{
    int64_t half = leaf;

    while (half * 2 < count)
        half *= 2;
    return half;
}

static double sum_leaf(const struct tree *tree, int64_t first, int64_t count, int thread)
{
    const struct ct_cpu_work *work = tree->work;

    if (work->narrow == NULL)
        return work->sum(work->args, first, count);
    return ct_narrow_sum(work, first, count, tree->workspace + (size_t)thread * CT_CPU_WORKSPACE);
}

static double sum_units(const struct tree *tree, int64_t first, int64_t count, int thread)
{
    if (count <= tree->leaf)
        return sum_leaf(tree, first, count, thread);
    int64_t half = left_half(count, tree->leaf);
    double left = sum_units(tree, first, half, thread);

    return left + sum_units(tree, first + half, count - half, thread);
}

static double sum_partials(const double *partial, int count)
{
    if (count == 1)
        return partial[0];
    int half = (int)left_half(count, 1);
    double left = sum_partials(partial, half);

    return left + sum_partials(partial + half, count - half);
}

static void tree_index(void *context, int index)
{
    struct tree *tree = context;

    for (int i = index; i < tree->segments; i += tree->threads) {
        int64_t first = i * tree->segment;

        tree->partial[i] =
            sum_units(tree, first, CT_MIN(tree->segment, tree->count - first), index);
    }
}

double ct_cpu_tree_sum(struct ct_cpu *cpu, const struct ct_cpu_work *work,
                       struct ct_cpu_range range)
{
    int64_t count = range.count, leaf = range.leaf;
    struct tree tree = {
        .work = work, .workspace = cpu->workspace, .count = count, .leaf = leaf, .segment = leaf};

    if (count == 0)
        return 0;
    while (tree.segment * MAX_SEGMENTS < count)
        tree.segment *= 2;
    tree.segments = (int)((count + tree.segment - 1) / tree.segment);
    tree.threads = CT_MIN(ct_cpu_threads(cpu, count * range.width, GRAIN), tree.segments);
    ct_pool_run(cpu->pool, tree.threads, tree_index, &tree);
    return sum_partials(tree.partial, tree.segments);
}
