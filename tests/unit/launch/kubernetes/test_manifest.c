/* Manifests for Kubernetes: names, and text that YAML gives back as it was. */
#include "kubernetes/manifest.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>
#include <yaml.h>

TestSuite(manifest, .timeout = 10);

Test(manifest, a_files_name_becomes_one_that_a_service_may_have)
{
    static const struct {
        const char *path, *name;
    } rows[] = {
        {"configs/digits_mlp.yaml", "digits-mlp"},
        {"GPT.v2.yaml", "gpt"},
        {"/bin/7-zip", "zip"},
        {"___.py", "ctrun"},
        {"", "ctrun"},
        {"a\xc3\xa4"
         "b_.py",
         "a--b"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdef.yaml",
         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"},
    };
    char name[CT_MANIFEST_NAME + 1];

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        ct_manifest_name_of(rows[i].path, name);
        cr_assert_str_eq(name, rows[i].name);
        cr_assert(ct_manifest_name_is_good(name));
    }
    cr_assert_not(ct_manifest_name_is_good("a-"));
    cr_assert_not(ct_manifest_name_is_good("-a"));
    cr_assert_not(ct_manifest_name_is_good("A"));
    cr_assert_not(ct_manifest_name_is_good("a.b"));
}

/* The value of the scalar behind the scalar `key`, in any document; "" without one. */
static const char *value_of(const struct ct_buf *text, const char *key, char *room, size_t size)
{
    yaml_parser_t parser;
    yaml_event_t event;
    bool found = false, over = false;

    room[0] = '\0';
    cr_assert(yaml_parser_initialize(&parser));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text->data, text->size);
    while (!over) {
        cr_assert(yaml_parser_parse(&parser, &event), "line %zu: %s", parser.problem_mark.line,
                  parser.problem);
        const char *value =
            event.type == YAML_SCALAR_EVENT ? (const char *)event.data.scalar.value : "";
        if (found) {
            cr_assert_lt(strlen(value), size);
            strcpy(room, value);
        }
        over = found || event.type == YAML_STREAM_END_EVENT;
        found = event.type == YAML_SCALAR_EVENT && strcmp(value, key) == 0;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return room;
}

Test(manifest, a_file_is_kept_to_the_byte_and_a_word_is_what_it_was)
{
    static const char *const files[] = {
        "a: b\n",          "  indented: first\n\n\n",
        "no: end",         "",
        "tab:\there\n",    "\r\n",
        "---\n# x\n...\n", "umlaut: \xc3\xa4\n",
        "bell: \a\n",      "\n\n  x: y\n",
    };
    static const char *const words[] = {"--to", "it's \"$(HOME)\": # {}\n", NULL};
    struct ct_manifest m = {.name = "on",
                            .image = "i:1",
                            .nodes_min = 1,
                            .nodes_max = 2,
                            .folder = "/run/x",
                            .file_name = "train.yaml",
                            .arguments = words};
    struct ct_buf text;
    char room[128];

    for (size_t i = 0; i < CT_COUNT(files); i++) {
        m.file_text = files[i];
        ct_buf_init(&text, 0);
        ct_manifest_print(&m, &text);
        cr_assert_str_eq(value_of(&text, "train.yaml", room, sizeof room), files[i], "file %zu", i);
        cr_assert_str_eq(value_of(&text, "--to", room, sizeof room), "it's \"$$(HOME)\": # {}\n");
        cr_assert_str_eq(value_of(&text, "mountPath", room, sizeof room), "/work");
        ct_buf_deinit(&text);
    }
}
