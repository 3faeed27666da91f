/* See tree.h. */
#include "config/tree.h"

#include <string.h>

static struct ct_config_node *fail(struct ct_config_tree *t, const char *problem)
{
    if (t->problem == NULL) {
        t->problem = problem;
        t->line = (int)t->event->start_mark.line + 1;
        t->column = (int)t->event->start_mark.column + 1;
    }
    return NULL;
}

static bool advance(struct ct_config_tree *t)
{
    yaml_event_delete(t->event);
    if (yaml_parser_parse(t->parser, t->event))
        return true;
    t->over = true;
    t->problem = "is not valid YAML";
    t->line = (int)t->parser->problem_mark.line + 1;
    t->column = (int)t->parser->problem_mark.column + 1;
    return false;
}

static struct ct_config_node *new_node(struct ct_config_tree *t, enum ct_config_node_kind kind)
{
    if (t->nodes++ == CT_CONFIG_TREE_NODES)
        return fail(t, "has too many parts");
    struct ct_config_node *node = ct_arena_array(t->arena, 1, sizeof *node);
    if (node == NULL)
        return fail(t, "is too much for the memory");
    *node = (struct ct_config_node){.kind = kind,
                                    .text = "",
                                    .line = (int)t->event->start_mark.line + 1,
                                    .column = (int)t->event->start_mark.column + 1};
    return node;
}

/* The current event, a scalar, as text; NULL after a complaint. */
static const char *scalar(struct ct_config_tree *t)
{
    const char *text = (const char *)t->event->data.scalar.value;
    size_t length = t->event->data.scalar.length;

    if (t->event->data.scalar.tag != NULL) {
        (void)fail(t, "has a tag; remove it");
        return NULL;
    }
    if (length == 0 || memchr(text, '\0', length) != NULL) {
        (void)fail(t, length == 0 ? "has a part without a value; give it one or remove it"
                                  : "holds a NUL character");
        return NULL;
    }
    const char *copy = ct_arena_strndup(t->arena, text, length);
    if (copy == NULL)
        (void)fail(t, "is too much for the memory");
    return copy;
}

static struct ct_config_node *read_node(struct ct_config_tree *t, int depth);

static bool has_name(const struct ct_config_node *map, const char *name)
{
    for (const struct ct_config_node *node = map->first; node != NULL; node = node->next)
        if (strcmp(node->name, name) == 0)
            return true;
    return false;
}

/* What lies in the list or map that the current event opens, to its end. */
static struct ct_config_node *read_inside(struct ct_config_tree *t, struct ct_config_node *outer,
                                          int depth)
{
    bool map = outer->kind == CT_CONFIG_NODE_MAP;
    yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    const struct ct_config_node **link = &outer->first;

    for (;;) {
        const char *name = NULL;
        if (!advance(t))
            return NULL;
        if (t->event->type == end)
            return outer;
        if (map) {
            if (t->event->type != YAML_SCALAR_EVENT)
                return fail(t, "has a name that is no plain word");
            name = scalar(t);
            if (name == NULL)
                return NULL;
            if (has_name(outer, name))
                return fail(t, "says the same name twice");
            if (!advance(t))
                return NULL;
        }
        struct ct_config_node *node = read_node(t, depth + 1);
        if (node == NULL)
            return NULL;
        node->name = name;
        *link = node;
        link = &node->next;
    }
}

static struct ct_config_node *read_node(struct ct_config_tree *t, int depth)
{
    struct ct_config_node *node;

    if (depth == CT_CONFIG_TREE_DEPTH)
        return fail(t, "is nested too deep");
    switch (t->event->type) {
    case YAML_SCALAR_EVENT:
        node = new_node(t, CT_CONFIG_NODE_WORD);
        if (node != NULL)
            node->text = scalar(t);
        return node == NULL || node->text == NULL ? NULL : node;
    case YAML_SEQUENCE_START_EVENT:
        node = new_node(t, CT_CONFIG_NODE_LIST);
        return node == NULL ? NULL : read_inside(t, node, depth);
    case YAML_MAPPING_START_EVENT:
        node = new_node(t, CT_CONFIG_NODE_MAP);
        return node == NULL ? NULL : read_inside(t, node, depth);
    default:
        return fail(t, "has an alias; aliases are not supported, write the value out");
    }
}

struct ct_config_node *ct_config_tree_read(struct ct_config_tree *tree)
{
    return read_node(tree, 0);
}

struct ct_config_node *ct_config_tree_parse(const char *text, struct ct_arena *arena,
                                            struct ct_config_tree_problem *ret_problem)
{
    yaml_parser_t parser;
    yaml_event_t event = {0};
    struct ct_config_tree t = {.parser = &parser, .event = &event, .arena = arena};
    struct ct_config_node *node = NULL;

    *ret_problem = (struct ct_config_tree_problem){.text = "is too much for the memory"};
    if (!yaml_parser_initialize(&parser))
        return NULL;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    bool good = true;
    for (int i = 0; i < 3 && good && event.type != YAML_STREAM_END_EVENT; i++)
        good = advance(&t); /* to the stream, the document, the node */
    if (good && event.type != YAML_STREAM_END_EVENT)
        node = ct_config_tree_read(&t);
    for (int i = 0; i < 2 && node != NULL && good; i++)
        good = advance(&t);
    if (node != NULL && (!good || event.type != YAML_STREAM_END_EVENT)) {
        (void)fail(&t, "holds more than one value");
        node = NULL;
    }
    *ret_problem = (struct ct_config_tree_problem){
        .text = t.problem != NULL ? t.problem : "is empty", .line = t.line, .column = t.column};
    yaml_event_delete(&event);
    yaml_parser_delete(&parser);
    return node;
}
