/* See step_schedule.h: trees that reduce, or spread, with at most two children a node, and the tree
 * of INVARIANT.
 *
 * Two trees share the data, half of it each (Sanders, Speck, Traff 2009): a rank that is a leaf in
 * the one has children in the other, so that all links carry as much. A tree of nodes 0 .. n - 1 is
 * in order, and its root is node 0:
 *
 *     level 3          0---.              a node's level is that of its lowest bit;
 *     level 2              4              its parent's is higher: a node of level l sends to its
 *     level 1       2-----' `-----6       parent in phase l, and hears from it again, counted from
 *     level 0     1   3         5   7     the end, in the l-th but last phase
 *
 * The other tree has the nodes in reverse, or, of an odd number, begun at the next. */
#include "algorithm/step_build.h"

#include "base/assert.h"

enum { TREES = 2, CHILDREN = 2 };

struct node {
    int rank, index, level; /* index 0: the tree's root */
    int parent;             /* ranks; -1: none */
    int child[CHILDREN], child_level[CHILDREN];
    bool added; /* a child's sum, in the output */
};

/* The ranks of a tree: `first` + 0 .. nodes - 1, modulo the world. */
struct tree {
    int first, nodes, levels;
    bool second;
};

static int level_of(const struct tree *tree, int index)
{
    return index == 0 ? tree->levels : __builtin_ctz((unsigned)index);
}

static int rank_at(const struct ct_schedule *s, const struct tree *tree, int index)
{
    int at = !tree->second          ? index
             : tree->nodes % 2 == 0 ? tree->nodes - 1 - index
                                    : (index + 1) % tree->nodes;

    return (tree->first + at) % s->world;
}

static int index_of(const struct ct_schedule *s, const struct tree *tree, int rank)
{
    int at = (rank - tree->first + s->world) % s->world;

    if (!tree->second)
        return at;
    return tree->nodes % 2 == 0 ? tree->nodes - 1 - at : (at - 1 + tree->nodes) % tree->nodes;
}

static struct node node_of(const struct ct_schedule *s, const struct tree *tree, int rank)
{
    struct node node = {.rank = rank, .index = index_of(s, tree, rank), .parent = -1};
    int count = 0;

    node.level = level_of(tree, node.index);
    CT_ASSERT(node.level >= 0 && node.level <= tree->levels && tree->levels < 30);
    if (node.index > 0) {
        int without = node.index & (node.index - 1), up = without | 2 << node.level;

        node.parent = rank_at(s, tree, up < tree->nodes ? up : without);
    }
    for (int i = 0; i < CHILDREN; i++)
        node.child[i] = -1;
    if (node.index > 0 && node.level > 0)
        node.child[count++] = rank_at(s, tree, node.index - (1 << (node.level - 1)));
    for (int level = node.level - 1; level >= 0; level--)
        if (node.index + (1 << level) < tree->nodes) {
            node.child[count++] = rank_at(s, tree, node.index + (1 << level));
            break;
        }
    for (int i = 0; i < count; i++)
        node.child_level[i] = level_of(tree, index_of(s, tree, node.child[i]));
    return node;
}

static void prepare(const struct ct_schedule *s, int first, int nodes, struct tree trees[TREES],
                    struct node list[TREES])
{
    for (int t = 0; t < TREES; t++) {
        trees[t] = (struct tree){
            .first = first, .nodes = nodes, .levels = ct_schedule_rounds(nodes), .second = t == 1};
        list[t] = (struct node){.parent = -1, .child = {-1, -1}}; /* of no tree */
        if ((s->rank - first + s->world) % s->world < nodes)
            list[t] = node_of(s, &trees[t], s->rank);
    }
}

/* ---- all_reduce ------------------------------------------------------------------------------*/

static void move_up(struct ct_schedule *s, int phase, int t, const struct node *node)
{
    for (int i = 0; i < CHILDREN; i++)
        if (node->child[i] >= 0 && node->child_level[i] == phase)
            ct_step_recv(s, phase, node->child[i], ct_place_slot(CHILDREN * t + i), t);
    if (node->parent >= 0 && node->level == phase)
        ct_step_send(s, phase, node->parent, node->added ? ct_place_output(t) : ct_place_input(t),
                     t);
}

static void add_up(struct ct_schedule *s, int phase, int t, struct node *node)
{
    for (int i = 0; i < CHILDREN; i++) {
        if (node->child[i] < 0 || node->child_level[i] != phase)
            continue;
        ct_step_reduce(s, phase, ct_place_output(t),
                       node->added ? ct_place_output(t) : ct_place_input(t),
                       ct_place_slot(CHILDREN * t + i), t, node->parent < 0);
        node->added = true;
    }
}

/* A node of level l and its parent, in phase `last` - l. */
static void move_down(struct ct_schedule *s, int phase, int last, int t, const struct node *node)
{
    if (node->parent >= 0 && last - node->level == phase)
        ct_step_recv(s, phase, node->parent, ct_place_output(t), t);
    for (int i = 0; i < CHILDREN; i++)
        if (node->child[i] >= 0 && last - node->child_level[i] == phase)
            ct_step_send(s, phase, node->child[i], ct_place_output(t), t);
}

void ct_build_double_tree(struct ct_schedule *s)
{
    struct tree trees[TREES];
    struct node nodes[TREES];
    int levels = ct_schedule_rounds(s->world);

    s->blocks = TREES;
    s->slots = TREES * CHILDREN;
    s->streams = true;
    s->phases = 2 * levels;
    prepare(s, 0, s->world, trees, nodes);
    for (int phase = 0; phase < levels; phase++) {
        for (int t = 0; t < TREES; t++)
            move_up(s, phase, t, &nodes[t]);
        for (int t = 0; t < TREES; t++)
            add_up(s, phase, t, &nodes[t]);
    }
    for (int phase = levels; phase < s->phases; phase++)
        for (int t = 0; t < TREES; t++)
            move_down(s, phase, s->phases - 1, t, &nodes[t]);
}

/* ---- broadcast -------------------------------------------------------------------------------*/

/* The trees are of all but the root, which gives each half to the root of one. */
void ct_build_double_tree_broadcast(struct ct_schedule *s)
{
    struct tree trees[TREES];
    struct node nodes[TREES];

    s->blocks = TREES;
    s->streams = true;
    prepare(s, (s->root + 1) % s->world, s->world - 1, trees, nodes);
    s->phases = trees[0].levels + 1;
    for (int t = 0; t < TREES; t++) {
        int top = rank_at(s, &trees[t], 0);

        if (s->rank == s->root)
            ct_step_send(s, 0, top, ct_place_input(t), t);
        else if (s->rank == top)
            ct_step_recv(s, 0, s->root, ct_place_output(t), t);
    }
    for (int t = 0; t < TREES && s->rank == s->root; t++)
        ct_step_copy(s, 0, ct_place_output(t), ct_place_input(t), t);
    for (int phase = 1; phase < s->phases && s->rank != s->root; phase++)
        for (int t = 0; t < TREES; t++)
            move_down(s, phase, s->phases - 1, t, &nodes[t]);
}

/* ---- reduce, in the order of INVARIANT ---------------------------------------------------------
 *
 * A rank that is an odd multiple of d sends to the one d to its left. Rank 0 ends with the sum; the
 * root gets it from there. */
void ct_build_tree_root(struct ct_schedule *s)
{
    int rounds = ct_schedule_rounds(s->world), phase = 0;
    struct ct_place sum = s->rank == s->root ? ct_place_output(0) : ct_place_slot(rounds);
    struct ct_place mine = ct_place_input(0);

    s->blocks = 1;
    s->slots = rounds + 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        if (s->rank % (2 * d) == d)
            ct_step_send(s, phase, s->rank - d, mine, 0);
        if (s->rank % (2 * d) != 0 || s->rank + d >= s->world)
            continue;
        ct_step_recv(s, phase, s->rank + d, ct_place_slot(phase), 0);
        ct_step_reduce(s, phase, sum, mine, ct_place_slot(phase), 0, 2 * d >= s->world);
        mine = sum;
    }
    if (s->root != 0 && s->rank == 0)
        ct_step_send(s, phase, s->root, mine, 0);
    if (s->root != 0 && s->rank == s->root)
        ct_step_recv(s, phase, 0, ct_place_output(0), 0);
    s->phases = s->root != 0 ? phase + 1 : phase;
    s->held = s->phases;
}
