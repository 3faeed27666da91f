/* Schema, manual page, options and completion: each knows every key. */
#include "config_test.h"

#include "base/assert.h"
#include "config/value.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

TestSuite(document, .timeout = 30);

/* JSON is YAML, so libyaml reads the schema. */
static yaml_document_t schema;

static void enter(void)
{
    yaml_parser_t parser;
    struct ct_buf text = {0};

    ct_config_schema(&text);
    cr_assert(yaml_parser_initialize(&parser));
    yaml_parser_set_input_string(&parser, (unsigned char *)text.data, text.size);
    cr_assert(yaml_parser_load(&parser, &schema), "%s", parser.problem);
    yaml_parser_delete(&parser);
    ct_buf_deinit(&text);
}

static void leave(void)
{
    yaml_document_delete(&schema);
}

TestSuite(schema, .init = enter, .fini = leave, .timeout = 30);

/* The value of `name` in a mapping; NULL when there is none. */
static const yaml_node_t *member(const yaml_node_t *node, const char *name)
{
    cr_assert_eq(node->type, YAML_MAPPING_NODE);
    for (yaml_node_pair_t *at = node->data.mapping.pairs.start; at < node->data.mapping.pairs.top;
         at++)
        if (strcmp((char *)yaml_document_get_node(&schema, at->key)->data.scalar.value, name) == 0)
            return yaml_document_get_node(&schema, at->value);
    return NULL;
}

static const char *text_of(const yaml_node_t *node, const char *name)
{
    const yaml_node_t *value = member(node, name);

    return value != NULL ? (const char *)value->data.scalar.value : "";
}

/* The schema of a path "data.train.path"; every object on the way is closed. */
static const yaml_node_t *find(const char *path)
{
    char copy[128];
    char *rest = copy;
    const yaml_node_t *node = yaml_document_get_root_node(&schema);

    (void)snprintf(copy, sizeof copy, "%s", path);
    for (char *name = strtok_r(rest, ".", &rest); name != NULL; name = strtok_r(NULL, ".", &rest)) {
        cr_assert_str_eq(text_of(node, "type"), "object", "%s", path);
        cr_assert_str_eq(text_of(node, "additionalProperties"), "false", "%s", path);
        node = member(member(node, "properties"), name);
        cr_assert_not_null(node, "%s", path);
    }
    return node;
}

Test(schema, has_every_key_with_its_help_and_default)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        const yaml_node_t *node = find(key->path);
        cr_assert_str_eq(text_of(node, "description"), key->help);
        const yaml_node_t *standard = member(node, "default");
        cr_assert_not_null(standard, "%s", key->path);
        if (standard->type == YAML_SCALAR_NODE)
            cr_assert_str_eq((const char *)standard->data.scalar.value, key->standard);
    }
}

Test(schema, holds_ranges_and_words)
{
    const yaml_node_t *betas = member(find("optim.betas"), "items");

    cr_assert_str_eq(text_of(betas, "minimum"), "0");
    cr_assert_str_eq(text_of(betas, "exclusiveMaximum"), "1");
    cr_assert_str_eq(text_of(betas, "maximum"), "");
    cr_assert_str_eq(text_of(find("seed"), "maximum"), "9223372036854775807");
    cr_assert_str_eq(text_of(find("data.train.std"), "exclusiveMinimum"), "0");
    const yaml_node_t *words = member(find("optim.type"), "enum");
    cr_assert_eq(words->data.sequence.items.top - words->data.sequence.items.start, 3);
}

/* Whether `text` has `line` as a line of its own, or as the start of one followed by a blank. */
static bool has_line(const char *text, const char *line)
{
    size_t length = strlen(line);

    for (const char *at = strstr(text, line); at != NULL; at = strstr(at + 1, line))
        if ((at == text || at[-1] == '\n') && (at[length] == '\n' || at[length] == ' '))
            return true;
    return false;
}

Test(document, the_manual_page_and_the_options_have_every_key)
{
    struct ct_buf man = {0}, help = {0};
    char line[160];

    ct_config_man(&man);
    ct_config_help(true, &help);
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        (void)snprintf(line, sizeof line, ".B %s", key->path);
        cr_assert(has_line(ct_buf_str(&man), line), "%s", line);
        (void)snprintf(line, sizeof line, "  --%s",
                       strcmp(key->section, "launch") == 0 ? key->name : key->path);
        cr_assert(has_line(ct_buf_str(&help), line), "%s", line);
    }
    ct_buf_deinit(&man);
    ct_buf_deinit(&help);
}

Test(document, lines_of_the_option_list_fit_a_terminal_of_80_columns)
{
    struct ct_buf help = {0};

    ct_config_help(true, &help);
    for (const char *at = ct_buf_str(&help); *at != '\0'; at += strcspn(at, "\n") + 1)
        cr_assert_leq(strcspn(at, "\n"), 80, "%.120s", at);
    ct_buf_deinit(&help);
}

Test(document, the_short_option_list_is_that_of_the_launcher)
{
    struct ct_buf help = {0};

    ct_config_help(false, &help);
    cr_assert(has_line(ct_buf_str(&help), "  --nproc_per_node"));
    cr_assert_null(strstr(ct_buf_str(&help), "--optim.lr"));
    ct_buf_deinit(&help);
}

Test(document, words_of_other_tools_mean_keys_and_sections_that_there_are)
{
    static const struct {
        const char *word, *path;
    } rows[] = {
#define CT_SYNONYM(word, path) {word, path},
#include "config/synonym.def"
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert(ct_config_key_find(rows[i].path) != NULL ||
                      ct_config_section_find(rows[i].path) != NULL,
                  "%s", rows[i].path);
        cr_assert_null(ct_config_key_find(rows[i].word), "%s", rows[i].word);
        cr_assert_str_eq(ct_config_guess(rows[i].word), rows[i].path);
    }
}

Test(document, both_shells_complete_every_option)
{
    static const char *const shells[] = {"bash", "zsh"};
    struct ct_buf text = {0};
    char option[160];

    for (size_t s = 0; s < CT_COUNT(shells); s++) {
        ct_buf_clear(&text);
        cr_assert_eq(ct_config_completion(shells[s], &text), 0);
        for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
            const struct ct_config_key *key = &ct_config_keys[i];
            (void)snprintf(option, sizeof option, "--%s",
                           strcmp(key->section, "launch") == 0 ? key->name : key->path);
            cr_assert_not_null(strstr(ct_buf_str(&text), option), "%s: %s", shells[s], option);
        }
    }
    cr_assert_eq(ct_config_completion("fish", &text), CT_EUSAGE);
    ct_buf_deinit(&text);
}
