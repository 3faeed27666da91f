/* Structured values: nested lists and mappings, as model.layers has them.
 *
 *     [{conv2d: {out: 16, kernel: 3}}, flatten]
 *
 *     list -- map -- map "conv2d" -- word "out" 16
 *          |                      `- word "kernel" 3
 *          `- word flatten
 *
 * The nodes are in an arena; each knows its place in the file, for errors about its meaning. */
#ifndef CT_CONFIG_TREE_H
#define CT_CONFIG_TREE_H

#include "config/config.h"

#include <yaml.h>

enum { CT_CONFIG_TREE_DEPTH = 16, CT_CONFIG_TREE_NODES = 4096 };

struct ct_config_tree {
    yaml_parser_t *parser;
    yaml_event_t *event; /* the current one */
    struct ct_arena *arena;
    int nodes;
    const char *problem; /* what stopped the reading, or NULL */
    int line, column;    /* where */
    bool over;           /* YAML itself is wrong: nothing more can be read */
};

/* Read the node that begins with the current event, to its last one; NULL with tree->problem set,
 * and the reader at the invalid event. */
struct ct_config_node *ct_config_tree_read(struct ct_config_tree *tree);

/* What is wrong with a text, and where; line 0: with the whole of it. */
struct ct_config_tree_problem {
    const char *text;
    int line, column;
};

/* Parse a text that is one node. NULL with the problem, or without memory. */
struct ct_config_node *ct_config_tree_parse(const char *text, struct ct_arena *arena,
                                            struct ct_config_tree_problem *ret_problem);

#endif
