/* The YAML front end, on libyaml's events.
 *
 *     stream, document, mapping        (root)
 *       scalar "optim", mapping        section
 *         scalar "lr", scalar "1e-2"   key and value
 *
 * Known keys go to ct_config_set with their place. Whatever is unknown or of the wrong shape is
 * reported and skipped with all that lies below it; reading ends at the first error of YAML itself.
 * What a configuration does not need is refused: aliases, tags, a second document, duplicate keys,
 * more than 1 MiB or 32 levels. */
#include "config/loader.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "config/tree.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { FILE_BYTES = 1 << 20, DEPTH = 32, PATH_ROOM = 192 };

struct reader {
    struct ct_config_loader *loader;
    const char *name; /* of the file */
    const char *text;
    size_t size;
    yaml_parser_t parser;
    yaml_event_t event;           /* the current one */
    int depth;                    /* mappings and sequences that are open */
    bool over;                    /* YAML itself is wrong: nothing more can be read */
    int key_line[CT_CONFIG_KEYS]; /* where a key was met first; 0: not yet */
    int section_line[CT_CONFIG_SECTIONS_MAX];
};

static struct ct_config_origin place_of(const struct reader *r, const yaml_mark_t *mark)
{
    return (struct ct_config_origin){.layer = CT_CONFIG_FILE,
                                     .name = r->name,
                                     .line = (int)mark->line + 1,
                                     .column = (int)mark->column + 1};
}

static struct ct_config_origin whole_file(const struct reader *r)
{
    return (struct ct_config_origin){.layer = CT_CONFIG_FILE, .name = r->name};
}

/* ---- events --------------------------------------------------------------------------------- */

/* Whether the line that `offset` lies in begins with blanks that hold a tab. */
static bool tab_indented(const struct reader *r, size_t line)
{
    const char *at = r->text;
    const char *end = r->text + r->size;

    for (size_t i = 0; i < line && at != NULL; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at != NULL ? at + 1 : NULL;
    }
    while (at != NULL && at < end && *at == ' ')
        at++;
    return at != NULL && at < end && *at == '\t';
}

static void complain_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    bool marked = p->error == YAML_SCANNER_ERROR || p->error == YAML_PARSER_ERROR;
    struct ct_config_origin origin = marked ? place_of(r, &p->problem_mark) : whole_file(r);

    if (marked && tab_indented(r, p->problem_mark.line))
        ct_config_complain(r->loader, &origin, "",
                           "a tab indents this line; YAML wants spaces there");
    else
        ct_config_complain(r->loader, &origin, "", "this is not valid YAML: %s%s%s",
                           p->problem != NULL ? p->problem : "out of memory",
                           p->context != NULL ? " " : "", p->context != NULL ? p->context : "");
}

/* Go to the next event; false after a complaint. */
static bool next_event(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        complain_syntax(r);
        return false;
    }
    if (r->event.type == YAML_MAPPING_START_EVENT || r->event.type == YAML_SEQUENCE_START_EVENT)
        r->depth++;
    else if (r->event.type == YAML_MAPPING_END_EVENT || r->event.type == YAML_SEQUENCE_END_EVENT)
        r->depth--;
    return true;
}

/* The same; also false (and `over`) when there is no event any more. */
static bool advance(struct reader *r)
{
    if (r->over)
        return false;
    r->over = !next_event(r);
    if (!r->over && r->depth > DEPTH) {
        struct ct_config_origin origin = place_of(r, &r->event.start_mark);
        ct_config_complain(r->loader, &origin, "", "this is nested deeper than %d levels", DEPTH);
        r->over = true;
    }
    return !r->over;
}

/* From the first event of a node to its last. */
static void skip_node(struct reader *r)
{
    bool opens =
        r->event.type == YAML_MAPPING_START_EVENT || r->event.type == YAML_SEQUENCE_START_EVENT;
    int outside = r->depth - 1;

    while (opens && r->depth > outside && advance(r))
        ;
}

/* The current event as text; NULL after a complaint. Valid as long as the config. */
static const char *scalar_text(struct reader *r, const char *subject)
{
    struct ct_config_origin origin = place_of(r, &r->event.start_mark);
    const char *text = (const char *)r->event.data.scalar.value;
    size_t length = r->event.data.scalar.length;
    char shown[CT_CONFIG_SHOWN_ROOM];

    if (r->event.data.scalar.tag != NULL) {
        ct_config_complain(r->loader, &origin, subject, "has a tag (%s); remove it",
                           ct_config_shown((const char *)r->event.data.scalar.tag, shown));
        return NULL;
    }
    if (memchr(text, '\0', length) != NULL) {
        ct_config_complain(r->loader, &origin, subject, "holds a NUL character");
        return NULL;
    }
    const char *copy = ct_arena_strndup(&r->loader->cfg->arena, text, length);
    if (copy == NULL)
        ct_config_complain(r->loader, &origin, subject, "is too much: %s", ct_strerror(CT_ENOMEM));
    return copy;
}

/* ---- values --------------------------------------------------------------------------------- */

static bool is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;

    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

static bool read_scalar(struct reader *r, const struct ct_config_key *key,
                        struct ct_config_value *value)
{
    struct ct_config_origin origin = place_of(r, &r->event.start_mark);

    if (is_null(&r->event)) {
        ct_config_complain(r->loader, &origin, key->path,
                           "has no value; give it one or remove the line");
        return false;
    }
    if (r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        value->shape = CT_CONFIG_QUOTED;
    value->count = 1;
    value->items[0] = scalar_text(r, key->path);
    if (value->items[0] == NULL || key->type != CT_CONFIG_TYPE_STRS)
        return value->items[0] != NULL;
    if (ct_config_value_split(key, value->items[0], &r->loader->cfg->arena, value) == 0)
        return true;
    ct_config_complain(r->loader, &origin, key->path, "has too many elements");
    return false;
}

/* A sequence of scalars. */
static bool read_list(struct reader *r, const struct ct_config_key *key,
                      struct ct_config_value *value)
{
    bool good = true;

    value->shape = CT_CONFIG_LIST;
    while (advance(r) && r->event.type != YAML_SEQUENCE_END_EVENT) {
        struct ct_config_origin origin = place_of(r, &r->event.start_mark);
        const char *problem = NULL;

        if (r->event.type != YAML_SCALAR_EVENT)
            problem = "has something else than a plain value in its list";
        else if (value->count == CT_CONFIG_ITEMS_MAX)
            problem = "has too many elements";
        if (problem == NULL) {
            value->items[value->count] = scalar_text(r, key->path);
            good = value->items[value->count++] != NULL && good;
            continue;
        }
        if (good)
            ct_config_complain(r->loader, &origin, key->path, "%s", problem);
        good = false;
        skip_node(r);
    }
    return good && !r->over;
}

/* A sequence with structure. */
static bool read_tree(struct reader *r, const struct ct_config_key *key,
                      struct ct_config_value *value)
{
    struct ct_config_tree tree = {
        .parser = &r->parser, .event = &r->event, .arena = &r->loader->cfg->arena};

    value->shape = CT_CONFIG_LIST;
    value->tree = ct_config_tree_read(&tree);
    if (value->tree != NULL) {
        r->depth--; /* the end of the sequence was the tree's */
        return true;
    }
    const struct ct_config_origin origin = {
        .layer = CT_CONFIG_FILE, .name = r->name, .line = tree.line, .column = tree.column};
    ct_config_complain(r->loader, &origin, key->path, "%s", tree.problem);
    r->over = true;
    return false;
}

/* The current event begins the value of `key`; read to its end. */
static void read_value(struct reader *r, const struct ct_config_key *key)
{
    struct ct_config_value value = {.shape = CT_CONFIG_PLAIN};
    struct ct_config_origin origin = place_of(r, &r->event.start_mark);
    bool good = false;

    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        good = read_scalar(r, key, &value);
        break;
    case YAML_SEQUENCE_START_EVENT:
        good = key->type == CT_CONFIG_TYPE_LAYERS ? read_tree(r, key, &value)
                                                  : read_list(r, key, &value);
        break;
    case YAML_ALIAS_EVENT:
        ct_config_complain(r->loader, &origin, key->path,
                           "is an alias; aliases are not supported, write the value out");
        break;
    default:
        ct_config_complain(r->loader, &origin, key->path, "wants %s, not a mapping",
                           ct_config_type_wanted(key->type));
        skip_node(r);
        break;
    }
    if (good)
        ct_config_set(r->loader, key, &value, &origin);
}

/* ---- mappings ------------------------------------------------------------------------------- */

/* The names that lie directly in a section, "type, lr, ...", for messages. */
static const char *names_in(const char *section, char *room, size_t size)
{
    size_t used = 0;

    room[0] = '\0';
    for (size_t i = 0; i < CT_CONFIG_KEYS + ct_config_section_count && used < size; i++) {
        const char *path = i < CT_CONFIG_KEYS ? ct_config_keys[i].path
                                              : ct_config_sections[i - CT_CONFIG_KEYS].path;
        if (ct_config_lies_in(path, section))
            used += (size_t)snprintf(room + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     ct_config_last_name(path));
    }
    return room;
}

static void complain_unknown(struct reader *r, const char *path, const char *section,
                             const struct ct_config_origin *origin)
{
    char shown[CT_CONFIG_SHOWN_ROOM], names[480];
    const char *guess = ct_config_guess(path);

    if (guess != NULL)
        ct_config_complain(r->loader, origin, "", "unknown key %s; did you mean %s?",
                           ct_config_shown(path, shown), guess);
    else
        ct_config_complain(r->loader, origin, "", "unknown key %s; %s has: %s",
                           ct_config_shown(path, shown), section[0] != '\0' ? section : "the file",
                           names_in(section, names, sizeof names));
}

/* Whether `path` is met for the first time; `line` remembers where. */
static bool first_time(struct reader *r, int *line, const char *path,
                       const struct ct_config_origin *origin)
{
    if (*line != 0) {
        ct_config_complain(r->loader, origin, path, "is given twice, first on line %d", *line);
        return false;
    }
    *line = origin->line;
    return true;
}

static void read_mapping(struct reader *r, const char *section);

static void read_section(struct reader *r, const struct ct_config_section *section)
{
    struct ct_config_origin origin = place_of(r, &r->event.start_mark);
    char names[480];

    if (r->event.type == YAML_MAPPING_START_EVENT) {
        read_mapping(r, section->path);
        return;
    }
    ct_config_complain(r->loader, &origin, section->path,
                       "wants keys below it (%s), not a single value or a list",
                       names_in(section->path, names, sizeof names));
    skip_node(r);
}

/* One key with its value; the current event is the key. */
static void read_entry(struct reader *r, const char *section)
{
    char path[PATH_ROOM];
    struct ct_config_origin origin = place_of(r, &r->event.start_mark);

    if (r->event.type != YAML_SCALAR_EVENT) {
        ct_config_complain(r->loader, &origin, "", "a key must be a plain word");
        skip_node(r);
        if (advance(r))
            skip_node(r);
        return;
    }
    const char *name = scalar_text(r, "a key");
    if (!advance(r))
        return;
    if (name == NULL) {
        skip_node(r);
        return;
    }
    (void)snprintf(path, sizeof path, "%s%s%s", section, section[0] != '\0' ? "." : "", name);
    const struct ct_config_key *key = ct_config_key_find(path);
    const struct ct_config_section *inner = ct_config_section_find(path);
    if (key != NULL && strcmp(key->name, name) == 0) {
        if (first_time(r, &r->key_line[ct_config_key_index(key)], path, &origin))
            read_value(r, key);
        else
            skip_node(r);
    } else if (inner != NULL && strcmp(ct_config_last_name(inner->path), name) == 0) {
        if (first_time(r, &r->section_line[inner - ct_config_sections], path, &origin))
            read_section(r, inner);
        else
            skip_node(r);
    } else {
        complain_unknown(r, path, section, &origin);
        skip_node(r);
    }
}

/* The current event is the start of the mapping; read to its end. */
static void read_mapping(struct reader *r, const char *section)
{
    while (advance(r) && r->event.type != YAML_MAPPING_END_EVENT)
        read_entry(r, section);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void read_document(struct reader *r)
{
    char names[480];
    struct ct_config_origin origin = whole_file(r);

    while (advance(r) &&
           (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT))
        ;
    if (r->over)
        return;
    if (r->event.type == YAML_STREAM_END_EVENT ||
        (r->event.type == YAML_SCALAR_EVENT && is_null(&r->event))) {
        ct_config_complain(r->loader, &origin, "", "the file is empty; it may hold: %s",
                           names_in("", names, sizeof names));
        return;
    }
    origin = place_of(r, &r->event.start_mark);
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        ct_config_complain(r->loader, &origin, "", "the file must hold keys (%s), not a %s",
                           names_in("", names, sizeof names),
                           r->event.type == YAML_SCALAR_EVENT ? "single value" : "list");
        return;
    }
    read_mapping(r, "");
    r->loader->unreadable = r->over;
    if (!advance(r)) /* the end of the document */
        return;
    if (advance(r) && r->event.type != YAML_STREAM_END_EVENT) {
        origin = place_of(r, &r->event.start_mark);
        ct_config_complain(r->loader, &origin, "", "a second document begins here; one is enough");
    }
}

/* Whether the bytes can be text at all: UTF-8 without control characters. */
static bool is_text(struct reader *r)
{
    struct ct_config_origin origin = whole_file(r);
    size_t valid = ct_utf8_valid_prefix(r->text, r->size);

    for (size_t i = 0; i < r->size; i++) {
        unsigned char byte = (unsigned char)r->text[i];
        bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
        if (i < valid && !control)
            continue;
        ct_config_complain(r->loader, &origin, "",
                           "this is no text file: byte 0x%02x at offset %zu; a YAML file is UTF-8",
                           byte, i);
        return false;
    }
    return true;
}

static bool begin(struct reader *r)
{
    struct ct_config_origin origin = whole_file(r);

    if (!yaml_parser_initialize(&r->parser)) {
        ct_config_complain(r->loader, &origin, "", "%s", ct_strerror(CT_ENOMEM));
        return false;
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->size);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    return true;
}

static void end(struct reader *r)
{
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

/* Whether the text is YAML, down to the depth that is read. If it is not, keys and values are not
 * where they seem to be: its first error of syntax is the only one to report. */
static bool is_yaml(struct reader r)
{
    bool good = begin(&r), at_end = !good;

    while (!at_end && r.depth <= DEPTH) {
        good = next_event(&r);
        at_end = !good || r.event.type == YAML_STREAM_END_EVENT;
    }
    end(&r);
    return good;
}

static void read_text(struct ct_config_loader *loader, const char *name, const char *text,
                      size_t size)
{
    struct reader r = {.loader = loader, .name = name, .text = text, .size = size};
    struct ct_config_origin origin = whole_file(&r);

    if (size > FILE_BYTES) {
        ct_config_complain(loader, &origin, "", "larger than the limit of %d bytes", FILE_BYTES);
        return;
    }
    if (!is_text(&r) || !is_yaml(r) || !begin(&r))
        return;
    read_document(&r);
    end(&r);
}

void ct_config_read_yaml(struct ct_config_loader *loader, const char *path)
{
    struct ct_config_origin origin = {.layer = CT_CONFIG_FILE, .name = path};
    struct ct_error err = {0};
    struct ct_buf buf;

    loader->unreadable = true;
    if (loader->in->yaml_text != NULL) {
        read_text(loader, path, loader->in->yaml_text, loader->in->yaml_size);
        return;
    }
    ct_buf_init(&buf, 0);
    if (ct_fs_read(path, FILE_BYTES, &buf, &err) == 0)
        read_text(loader, path, ct_buf_str(&buf), buf.size);
    else {
        ct_config_complain(loader, &origin, "", "%s",
                           ct_starts_with(err.text, path) ? err.text + strlen(path) + 2 : err.text);
        if (err.code == CT_ENOINPUT &&
            loader->errs->count == 1) /* as a program that is not there */
            loader->errs->at[0].code = CT_ENOINPUT;
    }
    ct_buf_deinit(&buf);
}
