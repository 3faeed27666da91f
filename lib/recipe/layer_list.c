/* See layer_list.h.
 *
 *     flatten                      a word: a layer with nothing to say
 *     maxpool: 2                   one name: the layer's main option
 *     conv2d: {out: 16, act: relu} one name: its options
 *     residual: [conv2d: ..., ...] lists of layers in a layer */
#include "recipe/layer_list.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const struct ct_config *cfg;
    const struct ct_config_origin *origin; /* of model.layers */
    struct ct_arena *arena;
    struct ct_error *err;
};

/* "a.yaml:7:5", or the option's name; NULL for lack of memory. */
static const char *place_of(const struct reader *r, const struct ct_config_node *node)
{
    if (r->origin->layer != CT_CONFIG_FILE)
        return r->origin->name;
    return ct_arena_printf(r->arena, "%s:%d:%d", r->origin->name, node->line, node->column);
}

__attribute__((format(printf, 3, 4))) static int
refuse(const struct reader *r, const struct ct_config_node *node, const char *format, ...)
{
    const char *place = place_of(r, node);
    char why[400];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return ct_error_set(r->err, CT_ECONFIG, "%s: model.layers: %s",
                        place != NULL ? place : "out of memory", why);
}

/* ---- options -------------------------------------------------------------------------------- */

static int read_list(const struct reader *r, const struct ct_config_node *node,
                     struct ct_layer_list *ret, int depth);

static int read_integer(const struct reader *r, const char *layer,
                        const struct ct_config_node *node, const char *option, int64_t *ret)
{
    if (node->kind == CT_CONFIG_NODE_WORD && ct_parse_i64(node->text, ret) == 0)
        return 0;
    return refuse(r, node, "%s: %s wants a whole number, not \"%.40s\"", layer, option,
                  node->kind == CT_CONFIG_NODE_WORD ? node->text : "a list");
}

static int read_real(const struct reader *r, const char *layer, const struct ct_config_node *node,
                     const char *option, double *ret)
{
    if (node->kind == CT_CONFIG_NODE_WORD && ct_parse_f64(node->text, ret) == 0)
        return 0;
    return refuse(r, node, "%s: %s wants a number, not \"%.40s\"", layer, option,
                  node->kind == CT_CONFIG_NODE_WORD ? node->text : "a list");
}

static int read_bool(const struct reader *r, const char *layer, const struct ct_config_node *node,
                     const char *option, bool *ret)
{
    if (node->kind == CT_CONFIG_NODE_WORD && ct_parse_bool(node->text, ret) == 0)
        return 0;
    return refuse(r, node, "%s: %s wants true or false", layer, option);
}

static int read_act(const struct reader *r, const char *layer, const struct ct_config_node *node,
                    int *ret)
{
    int act = node->kind == CT_CONFIG_NODE_WORD ? ct_activation_find(node->text) : -1;
    bool none = node->kind == CT_CONFIG_NODE_WORD && strcmp(node->text, "none") == 0;

    if (act < 0 && !none)
        return refuse(
            r, node, "%s: act has no choice \"%.40s\" (choices: relu, gelu, gelu_tanh, tanh, none)",
            layer, node->text);
    *ret = none ? CT_LAYER_NO_ACT : act;
    return 0;
}

static int read_option(const struct reader *r, struct ct_layer_spec *layer, int option,
                       const struct ct_config_node *node, int depth)
{
    const char *name = ct_layer_info(layer->kind)->name;
    const char *said = ct_layer_option_name((enum ct_layer_option)option);
    bool biased = true;
    int code;

    switch ((enum ct_layer_option)option) {
    case CT_LAYER_OUT:
        return read_integer(r, name, node, said, &layer->out);
    case CT_LAYER_KERNEL:
        return read_integer(r, name, node, said, &layer->kernel);
    case CT_LAYER_STRIDE:
        return read_integer(r, name, node, said, &layer->stride);
    case CT_LAYER_PAD:
        return read_integer(r, name, node, said, &layer->pad);
    case CT_LAYER_ACT:
        return read_act(r, name, node, &layer->act);
    case CT_LAYER_BIAS:
        code = read_bool(r, name, node, said, &biased);
        layer->unbiased = !biased;
        return code;
    case CT_LAYER_RATE:
        return read_real(r, name, node, said, &layer->rate);
    case CT_LAYER_EPS:
        return read_real(r, name, node, said, &layer->eps);
    case CT_LAYER_MOMENTUM:
        return read_real(r, name, node, said, &layer->momentum);
    case CT_LAYER_SYNC:
        return read_bool(r, name, node, said, &layer->sync);
    case CT_LAYER_BODY:
        return read_list(r, node, &layer->body, depth + 1);
    default:
        return read_list(r, node, &layer->shortcut, depth + 1);
    }
}

/* "out, kernel, stride": what the layer takes. */
static const char *options_of(const struct ct_layer_info *info, char room[160])
{
    size_t used = 0;

    room[0] = '\0';
    for (int option = 0; option < CT_LAYER_OPTION_COUNT; option++)
        if ((info->options & (uint32_t)1 << option) != 0)
            used += (size_t)snprintf(room + used, 160 - used, "%s%s", used > 0 ? ", " : "",
                                     ct_layer_option_name((enum ct_layer_option)option));
    return room;
}

static int read_options(const struct reader *r, struct ct_layer_spec *layer,
                        const struct ct_config_node *map, int depth)
{
    const struct ct_layer_info *info = ct_layer_info(layer->kind);
    char takes[160];

    for (const struct ct_config_node *in = map->first; in != NULL; in = in->next) {
        int option = ct_layer_option_find(in->name);
        if (option < 0 || (info->options & (uint32_t)1 << option) == 0)
            return refuse(r, in, "%s has no option \"%.40s\"%s%s", info->name, in->name,
                          info->options != 0 ? "; it has " : " and takes none",
                          options_of(info, takes));
        int code = read_option(r, layer, option, in, depth);
        if (code != 0)
            return code;
    }
    return 0;
}

/* ---- layers --------------------------------------------------------------------------------- */

static int unknown(const struct reader *r, const struct ct_config_node *node, const char *name)
{
    const char *near = ct_layer_nearest(name);
    char names[256];
    size_t used = 0;

    if (near != NULL)
        return refuse(r, node, "unknown layer \"%.40s\"; did you mean %s?", name, near);
    for (int kind = 0; kind < CT_LAYER_KIND_COUNT; kind++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", kind > 0 ? ", " : "",
                                 ct_layer_info((enum ct_layer_kind)kind)->name);
    return refuse(r, node, "unknown layer \"%.40s\"; there are %s", name, names);
}

/* One element of a list. */
static int read_layer(const struct reader *r, const struct ct_config_node *node,
                      struct ct_layer_spec *ret, int depth)
{
    const struct ct_config_node *said = node->kind == CT_CONFIG_NODE_MAP ? node->first : NULL;
    const char *name = said != NULL ? said->name : node->text;

    if (node->kind == CT_CONFIG_NODE_LIST || (said != NULL && said->next != NULL) || *name == '\0')
        return refuse(r, node,
                      "a layer is its name (flatten), or its name and what it is told (maxpool: 2, "
                      "conv2d: {out: 16, kernel: 3})");
    int kind = ct_layer_find(name);
    if (kind < 0)
        return unknown(r, node, name);
    *ret = (struct ct_layer_spec){
        .kind = (enum ct_layer_kind)kind, .act = CT_LAYER_NO_ACT, .place = place_of(r, node)};
    int option = ct_layer_info(ret->kind)->main;
    if (said == NULL)
        return 0;
    if (said->kind == CT_CONFIG_NODE_MAP)
        return read_options(r, ret, said, depth);
    if (option == CT_LAYER_OPTION_COUNT)
        return refuse(r, said, "%s takes no value", ct_layer_info(ret->kind)->name);
    return read_option(r, ret, option, said, depth);
}

static int read_list(const struct reader *r, const struct ct_config_node *node,
                     struct ct_layer_list *ret, int depth)
{
    int count = 0;

    if (node->kind != CT_CONFIG_NODE_LIST)
        return refuse(r, node, "a list of layers is wanted here");
    if (depth > CT_LAYERS_DEPTH)
        return refuse(r, node, "lists lie in one another more than %d times", CT_LAYERS_DEPTH);
    for (const struct ct_config_node *in = node->first; in != NULL; in = in->next)
        count++;
    if (count > CT_LAYERS_MAX)
        return refuse(r, node, "%d layers, at most %d are possible", count, CT_LAYERS_MAX);
    struct ct_layer_spec *layers = ct_arena_array(r->arena, (size_t)count + 1, sizeof *layers);
    if (layers == NULL)
        return ct_error_set(r->err, CT_ENOMEM, "no memory for %d layers", count);
    *ret = (struct ct_layer_list){layers, count};
    for (const struct ct_config_node *in = node->first; in != NULL; in = in->next) {
        int code = read_layer(r, in, layers++, depth);
        if (code != 0)
            return code;
    }
    return 0;
}

int ct_recipe_layers(struct ct_layers_spec *ret_spec, const struct ct_config *cfg,
                     struct ct_arena *arena, struct ct_error *err)
{
    const struct reader r = {cfg, ct_config_origin(cfg, &cfg->model.layers), arena, err};
    const struct ct_config_ints *input = &cfg->model.input;
    struct ct_layer_list list = {0};
    bool image = input->count == 3;

    CT_ASSERT(cfg->model.layers.list != NULL && (image || input->count == 1));
    int code = read_list(&r, cfg->model.layers.list, &list, 0);
    if (code == 0)
        *ret_spec = (struct ct_layers_spec){.channels = input->at[0],
                                            .height = image ? input->at[1] : 0,
                                            .width = image ? input->at[2] : 0,
                                            .layers = list.at,
                                            .count = list.count,
                                            .loss = (int)cfg->model.loss};
    return code;
}
