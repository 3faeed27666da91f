/* See value.h. A value is a list of words; the scalar parsers read one word each, the compound
 * types (lists, MIN:MAX, "3 epochs") take it apart first. Every number passes check_range. */
#include "config/value.h"

#include "base/assert.h"
#include "base/str.h"
#include "config/tree.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one table of types --------------------------------------------------------------------- */

static const struct {
    const char *wanted;
    enum ct_config_type scalar; /* the type of an element, of a range's ends */
    size_t size;
} types[] = {
    [CT_CONFIG_TYPE_BOOL] = {"true or false", CT_CONFIG_TYPE_BOOL, sizeof(bool)},
    [CT_CONFIG_TYPE_INT] = {"a whole number", CT_CONFIG_TYPE_INT, sizeof(int64_t)},
    [CT_CONFIG_TYPE_F64] = {"a number such as 1e-3", CT_CONFIG_TYPE_F64, sizeof(double)},
    [CT_CONFIG_TYPE_STR] = {"text", CT_CONFIG_TYPE_STR, sizeof(char *)},
    [CT_CONFIG_TYPE_INPUT] = {"a path", CT_CONFIG_TYPE_INPUT, sizeof(char *)},
    [CT_CONFIG_TYPE_DURATION] = {"a duration such as 250ms, 10s or 5m", CT_CONFIG_TYPE_DURATION,
                                 sizeof(int64_t)},
    [CT_CONFIG_TYPE_BYTES] = {"a size such as 64KB or 25MB", CT_CONFIG_TYPE_BYTES, sizeof(int64_t)},
    [CT_CONFIG_TYPE_NODES] = {"a number or MIN:MAX", CT_CONFIG_TYPE_INT,
                              sizeof(struct ct_config_nodes)},
    [CT_CONFIG_TYPE_INTS] = {"a list of whole numbers such as [64, 32]", CT_CONFIG_TYPE_INT,
                             sizeof(struct ct_config_ints)},
    [CT_CONFIG_TYPE_STRS] = {"a list of texts such as [a, b]", CT_CONFIG_TYPE_STR,
                             sizeof(struct ct_config_strs)},
    [CT_CONFIG_TYPE_PAIR] = {"a list of two numbers such as [0, 0.8]", CT_CONFIG_TYPE_F64,
                             sizeof(struct ct_config_pair)},
    [CT_CONFIG_TYPE_INTERVAL] = {"a number of steps, or of epochs such as \"2 epochs\"",
                                 CT_CONFIG_TYPE_INT, sizeof(struct ct_config_interval)},
    [CT_CONFIG_TYPE_LAYERS] = {"a number, or a list of layers such as [flatten, {linear: 10}]",
                               CT_CONFIG_TYPE_INT, sizeof(struct ct_config_layers)},
    [CT_CONFIG_TYPE_CHOICE] = {"a word", CT_CONFIG_TYPE_CHOICE, sizeof(int)},
};

const char *ct_config_type_wanted(enum ct_config_type type)
{
    return types[type].wanted;
}

const char *ct_config_shown(const char *text, char room[CT_CONFIG_SHOWN_ROOM])
{
    enum { LONGEST = 60 };
    size_t length = strlen(text);
    size_t kept = ct_utf8_valid_prefix(text, CT_MIN(length, (size_t)LONGEST));

    if (length <= LONGEST && kept < length)
        kept = length; /* not UTF-8: shown byte by byte */
    memcpy(room, text, kept);
    for (size_t i = 0; i < kept; i++)
        if ((unsigned char)room[i] < 0x20 || room[i] == 0x7f)
            room[i] = '?';
    (void)ct_str_copy(room + kept, CT_CONFIG_SHOWN_ROOM - kept, kept < length ? "..." : "");
    return room;
}

/* ---- numbers and ranges --------------------------------------------------------------------- */

/* One word as a number of the scalar `type`. Exact: a long double holds every int64_t. */
static int parse_number(enum ct_config_type type, const char *word, long double *ret_number)
{
    long double number = 0;
    int64_t integer = 0;
    uint64_t quantity = 0;
    double real = 0;
    int code = CT_EUSAGE;

    switch (type) {
    case CT_CONFIG_TYPE_INT:
        code = ct_parse_i64(word, &integer);
        number = integer;
        break;
    case CT_CONFIG_TYPE_F64:
        code = ct_parse_f64(word, &real);
        number = real;
        break;
    case CT_CONFIG_TYPE_DURATION:
        code = ct_parse_duration_ms(word, &quantity);
        number = quantity;
        break;
    case CT_CONFIG_TYPE_BYTES:
        code = ct_parse_bytes(word, &quantity);
        number = quantity;
        break;
    default:
        break;
    }
    if (code == 0)
        *ret_number = number;
    return code;
}

/* The words of a range "[a, b)": its two ends without brackets. */
struct range_text {
    char low[32], high[32];
};

static bool range_text(const struct ct_config_key *key, struct range_text *ret)
{
    const char *comma = strchr(key->range, ',');

    if (comma == NULL)
        return false;
    (void)snprintf(ret->low, sizeof ret->low, "%.*s", (int)(comma - key->range - 1),
                   key->range + 1);
    (void)snprintf(ret->high, sizeof ret->high, "%.*s", (int)strcspn(comma + 2, ")]"), comma + 2);
    return true;
}

bool ct_config_range_of(const struct ct_config_key *key, struct ct_config_range *ret_range)
{
    struct range_text words;

    if (!range_text(key, &words))
        return false;
    *ret_range = (struct ct_config_range){.low = -INFINITY,
                                          .high = INFINITY,
                                          .low_open = key->range[0] == '(',
                                          .high_open = ct_ends_with(key->range, ")")};
    if (strcmp(words.low, "-inf") != 0)
        CT_ASSERT(parse_number(types[key->type].scalar, words.low, &ret_range->low) == 0);
    if (strcmp(words.high, "inf") != 0)
        CT_ASSERT(parse_number(types[key->type].scalar, words.high, &ret_range->high) == 0);
    return true;
}

void ct_config_range_write(const struct ct_config_key *key, struct ct_buf *to)
{
    struct ct_config_range range;
    struct range_text words;

    if (!ct_config_range_of(key, &range) || !range_text(key, &words))
        return;
    if (!isinf(range.low) && !isinf(range.high) && !range.low_open && !range.high_open) {
        (void)ct_buf_printf(to, "from %s to %s", words.low, words.high);
        return;
    }
    if (!isinf(range.low))
        (void)ct_buf_printf(to, "%s %s", range.low_open ? "above" : "at least", words.low);
    if (!isinf(range.low) && !isinf(range.high))
        (void)ct_buf_puts(to, " and ");
    if (!isinf(range.high))
        (void)ct_buf_printf(to, "%s %s", range.high_open ? "below" : "at most", words.high);
}

static bool in_range(const struct ct_config_key *key, long double number)
{
    struct ct_config_range range;

    if (!ct_config_range_of(key, &range))
        return true;
    return (range.low_open ? number > range.low : number >= range.low) &&
           (range.high_open ? number < range.high : number <= range.high);
}

/* ---- parsing -------------------------------------------------------------------------------- */

struct parser {
    const struct ct_config_key *key;
    struct ct_error *err;
};

static int unwanted(const struct parser *p, const char *word)
{
    char shown[CT_CONFIG_SHOWN_ROOM];

    return ct_error_set(p->err, CT_ECONFIG, "wants %s, not \"%s\"", types[p->key->type].wanted,
                        ct_config_shown(word, shown));
}

static int number(const struct parser *p, const char *word, long double *ret_number)
{
    char shown[CT_CONFIG_SHOWN_ROOM];
    struct ct_buf range;
    long double value = 0;

    if (parse_number(types[p->key->type].scalar, word, &value) != 0)
        return unwanted(p, word);
    if (in_range(p->key, value)) {
        *ret_number = value;
        return 0;
    }
    ct_buf_init(&range, 0);
    ct_config_range_write(p->key, &range);
    (void)ct_error_set(p->err, CT_ECONFIG, "must be %s, not %s", ct_buf_str(&range),
                       ct_config_shown(word, shown));
    ct_buf_deinit(&range);
    return CT_ECONFIG;
}

static int integer(const struct parser *p, const char *word, int64_t *ret_integer)
{
    long double value = 0;
    int code = number(p, word, &value);

    if (code == 0)
        *ret_integer = (int64_t)value;
    return code;
}

static int parse_nodes(const struct parser *p, const char *word, struct ct_config_nodes *ret)
{
    char low[32];
    const char *colon = strchr(word, ':');
    struct ct_config_nodes nodes;

    if (colon == NULL) {
        int code = integer(p, word, &nodes.min);
        if (code == 0)
            *ret = (struct ct_config_nodes){nodes.min, nodes.min};
        return code;
    }
    if ((size_t)(colon - word) >= sizeof low)
        return unwanted(p, word);
    (void)snprintf(low, sizeof low, "%.*s", (int)(colon - word), word);
    int code = integer(p, low, &nodes.min);
    if (code == 0)
        code = integer(p, colon + 1, &nodes.max);
    if (code == 0)
        *ret = nodes;
    return code;
}

static int parse_interval(const struct parser *p, const char *word, struct ct_config_interval *ret)
{
    static const struct {
        const char *word;
        enum ct_config_unit unit;
    } units[] = {{"", CT_CONFIG_STEPS},
                 {"step", CT_CONFIG_STEPS},
                 {"steps", CT_CONFIG_STEPS},
                 {"epoch", CT_CONFIG_EPOCHS},
                 {"epochs", CT_CONFIG_EPOCHS}};
    char digits[32];
    size_t length = strspn(word, "+-0123456789");
    const char *unit = word + length + strspn(word + length, " ");

    if (length == 0 || length >= sizeof digits)
        return unwanted(p, word);
    (void)snprintf(digits, sizeof digits, "%.*s", (int)length, word);
    for (size_t i = 0; i < CT_COUNT(units); i++) {
        if (strcmp(unit, units[i].word) != 0)
            continue;
        int64_t count;
        int code = integer(p, digits, &count);
        if (code == 0)
            *ret = (struct ct_config_interval){count, units[i].unit};
        return code;
    }
    return unwanted(p, word);
}

static const char *word_at(const void *words, size_t index)
{
    return ((const char *const *)words)[index];
}

static int parse_choice(const struct parser *p, const char *word, int *ret_choice)
{
    char shown[CT_CONFIG_SHOWN_ROOM], list[256] = "";
    const char *const *words = p->key->words;
    size_t count = 0, used = 0;

    for (; words[count] != NULL; count++) {
        if (strcmp(words[count], word) == 0) {
            *ret_choice = (int)count;
            return 0;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", count > 0 ? ", " : "",
                                 words[count]);
        CT_ASSERT(used < sizeof list);
    }
    const char *near = ct_nearest(word, count, word_at, words);
    if (near != NULL)
        return ct_error_set(p->err, CT_ECONFIG,
                            "has no choice \"%s\"; did you mean %s? (choices: %s)",
                            ct_config_shown(word, shown), near, list);
    return ct_error_set(p->err, CT_ECONFIG, "has no choice \"%s\" (choices: %s)",
                        ct_config_shown(word, shown), list);
}

static int parse_ints(const struct parser *p, const struct ct_config_value *value,
                      struct ct_config_ints *ret)
{
    struct ct_config_ints ints = {.count = (int64_t)value->count};

    if (value->count > CT_CONFIG_INTS_MAX)
        return ct_error_set(p->err, CT_ECONFIG, "has %zu elements, more than the limit of %d",
                            value->count, CT_CONFIG_INTS_MAX);
    for (size_t i = 0; i < value->count; i++) {
        int code = integer(p, value->items[i], &ints.at[i]);
        if (code != 0)
            return code;
    }
    *ret = ints;
    return 0;
}

static int parse_pair(const struct parser *p, const struct ct_config_value *value,
                      struct ct_config_pair *ret)
{
    long double at[2] = {0, 0};

    if (value->count != 2)
        return ct_error_set(p->err, CT_ECONFIG, "wants %s, not %zu of them",
                            types[p->key->type].wanted, value->count);
    for (size_t i = 0; i < 2; i++) {
        int code = number(p, value->items[i], &at[i]);
        if (code != 0)
            return code;
    }
    *ret = (struct ct_config_pair){{(double)at[0], (double)at[1]}};
    return 0;
}

static int parse_layers(const struct parser *p, const struct ct_config_value *value,
                        struct ct_config_layers *ret)
{
    struct ct_config_layers layers = {.list = value->tree};

    if (value->problem != NULL)
        return ct_error_set(p->err, CT_ECONFIG, "%s", value->problem);
    if (value->tree == NULL) {
        int code = integer(p, value->items[0], &layers.count);
        if (code != 0)
            return code;
    }
    for (const struct ct_config_node *in = value->tree == NULL ? NULL : value->tree->first;
         in != NULL; in = in->next)
        layers.count++;
    *ret = layers;
    return 0;
}

static bool is_list(enum ct_config_type type)
{
    return type == CT_CONFIG_TYPE_INTS || type == CT_CONFIG_TYPE_STRS ||
           type == CT_CONFIG_TYPE_PAIR;
}

/* Whether a value of this shape can be one of this type at all. */
static int check_shape(const struct parser *p, const struct ct_config_value *value)
{
    enum ct_config_type type = p->key->type;
    bool list = is_list(type);
    bool number = type == CT_CONFIG_TYPE_INT || type == CT_CONFIG_TYPE_F64 ||
                  type == CT_CONFIG_TYPE_BOOL || type == CT_CONFIG_TYPE_LAYERS;

    if (type == CT_CONFIG_TYPE_LAYERS && value->shape == CT_CONFIG_LIST)
        return 0;
    if (value->shape == CT_CONFIG_LIST && !list)
        return ct_error_set(p->err, CT_ECONFIG, "wants %s, not a list", types[type].wanted);
    if (type == CT_CONFIG_TYPE_INTS && value->shape == CT_CONFIG_PLAIN)
        return 0; /* one number is a list of one */
    if (value->shape != CT_CONFIG_LIST && list)
        return unwanted(p, value->items[0]);
    if (value->shape == CT_CONFIG_QUOTED && number)
        return ct_error_set(p->err, CT_ECONFIG, "wants %s without quotes", types[type].wanted);
    return 0;
}

int ct_config_value_parse(const struct ct_config_key *key, const struct ct_config_value *value,
                          union ct_config_any *ret_any, struct ct_error *err)
{
    struct parser p = {key, err};
    const char *word = value->count > 0 ? value->items[0] : "";
    long double real = 0;
    int code = check_shape(&p, value);

    if (code != 0)
        return code;
    switch (key->type) {
    case CT_CONFIG_TYPE_BOOL:
        return ct_parse_bool(word, &ret_any->boolean) == 0 ? 0 : unwanted(&p, word);
    case CT_CONFIG_TYPE_INT:
    case CT_CONFIG_TYPE_DURATION:
    case CT_CONFIG_TYPE_BYTES:
        return integer(&p, word, &ret_any->integer);
    case CT_CONFIG_TYPE_F64:
        code = number(&p, word, &real);
        if (code == 0)
            ret_any->real = (double)real;
        return code;
    case CT_CONFIG_TYPE_STR:
    case CT_CONFIG_TYPE_INPUT:
        ret_any->text = word;
        return 0;
    case CT_CONFIG_TYPE_NODES:
        return parse_nodes(&p, word, &ret_any->nodes);
    case CT_CONFIG_TYPE_INTS:
        return parse_ints(&p, value, &ret_any->ints);
    case CT_CONFIG_TYPE_STRS:
        ret_any->strs = (struct ct_config_strs){(int64_t)value->count, value->items};
        return 0;
    case CT_CONFIG_TYPE_PAIR:
        return parse_pair(&p, value, &ret_any->pair);
    case CT_CONFIG_TYPE_INTERVAL:
        return parse_interval(&p, word, &ret_any->interval);
    case CT_CONFIG_TYPE_LAYERS:
        return parse_layers(&p, value, &ret_any->layers);
    case CT_CONFIG_TYPE_CHOICE:
        return parse_choice(&p, word, &ret_any->choice);
    }
    return CT_EBUG;
}

/* "1, 2" or "[1, 2]", taken apart in place. */
static int split_numbers(char *text, struct ct_config_value *value)
{
    size_t length = strlen(text);

    if (text[0] == '[' && length > 1 && text[length - 1] == ']') {
        text[length - 1] = '\0';
        text++;
    }
    text += strspn(text, " ");
    for (char *comma = text; comma != NULL && *text != '\0'; text = comma + 1) {
        if (value->count == CT_CONFIG_ITEMS_MAX)
            return CT_ELIMIT;
        text += strspn(text, " ");
        value->items[value->count++] = text;
        comma = strchr(text, ',');
        if (comma == NULL)
            break;
        *comma = '\0';
    }
    return 0;
}

/* "a,b,,c" is "a" and "b,c", taken apart in place; "" is nothing. */
static int split_texts(char *text, struct ct_config_value *value)
{
    const char *from = text;
    char *to = text; /* where the next byte of an item goes: double commas become single ones */
    bool more = *text != '\0';

    while (more) {
        if (value->count == CT_CONFIG_ITEMS_MAX)
            return CT_ELIMIT;
        value->items[value->count++] = to;
        for (; *from != '\0' && (*from != ',' || from[1] == ','); from++) {
            from += *from == ',';
            *to++ = *from;
        }
        more = *from++ == ',';
        *to++ = '\0';
    }
    return 0;
}

int ct_config_value_split(const struct ct_config_key *key, const char *text, struct ct_arena *arena,
                          struct ct_config_value *ret_value)
{
    struct ct_config_value value = {.shape = CT_CONFIG_PLAIN, .count = 1};
    char *copy = ct_arena_strdup(arena, text);
    int code = 0;

    if (copy == NULL)
        return CT_ENOMEM;
    value.items[0] = copy;
    if (key->type == CT_CONFIG_TYPE_LAYERS && copy[strspn(copy, " ")] == '[') {
        value.shape = CT_CONFIG_LIST;
        struct ct_config_tree_problem problem = {0};
        value.tree = ct_config_tree_parse(copy, arena, &problem);
        value.problem = value.tree != NULL ? NULL : problem.text;
    }
    if (is_list(key->type)) {
        value.shape = CT_CONFIG_LIST;
        value.count = 0;
        code = key->type == CT_CONFIG_TYPE_STRS ? split_texts(copy, &value)
                                                : split_numbers(copy, &value);
    }
    if (code == 0)
        *ret_value = value;
    return code;
}

int ct_config_value_keep(const struct ct_config_key *key, struct ct_arena *arena,
                         union ct_config_any *any)
{
    size_t count = (size_t)any->strs.count;

    if (key->type == CT_CONFIG_TYPE_STR || key->type == CT_CONFIG_TYPE_INPUT) {
        any->text = ct_arena_strdup(arena, any->text);
        return any->text != NULL ? 0 : CT_ENOMEM;
    }
    if (key->type != CT_CONFIG_TYPE_STRS)
        return 0;
    const char **kept = ct_arena_array(arena, CT_MAX(count, 1u), sizeof *kept);
    for (size_t i = 0; kept != NULL && i < count; i++) {
        kept[i] = ct_arena_strdup(arena, any->strs.at[i]);
        if (kept[i] == NULL)
            return CT_ENOMEM;
    }
    any->strs.at = kept;
    return kept != NULL ? 0 : CT_ENOMEM;
}

/* ---- storing -------------------------------------------------------------------------------- */

void ct_config_value_store(const struct ct_config_key *key, const union ct_config_any *any,
                           struct ct_config *cfg)
{
    memcpy((char *)cfg + key->offset, any, types[key->type].size);
}

void ct_config_value_fetch(const struct ct_config_key *key, const struct ct_config *cfg,
                           union ct_config_any *ret_any)
{
    memset(ret_any, 0, sizeof *ret_any);
    memcpy(ret_any, (const char *)cfg + key->offset, types[key->type].size);
}
