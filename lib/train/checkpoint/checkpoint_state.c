/* state.json: printing and strict reading; see checkpoint_dir.h.
 *
 *   {"version": 2, "step": 120, "position": 3840, "seed": 1, ...,
 *    "files": {"model.safetensors": {"bytes": 4242, "crc32c": "01234567"}},
 *    "checksum": "fedcba9876543210"}
 *
 * The table of fields below serves both directions; 64-bit hashes are hex strings, because JSON
 * numbers lose bits in many readers. */
#include "train/checkpoint/checkpoint_dir.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "train/json_number.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* OPTIONAL: a number, 0 when it is absent; BITS: those of a double, likewise. */
enum kind { NUMBER, OPTIONAL, HEX, BITS };

static const struct field {
    const char *key;
    enum kind kind;
    size_t offset; /* of a uint64_t or double in struct ct_ckpt_state */
} fields[] = {
    {"step", NUMBER, offsetof(struct ct_ckpt_state, step)},
    {"position", NUMBER, offsetof(struct ct_ckpt_state, position)},
    {"skipped", OPTIONAL, offsetof(struct ct_ckpt_state, skipped)},
    {"seed", NUMBER, offsetof(struct ct_ckpt_state, seed)},
    {"generation", OPTIONAL, offsetof(struct ct_ckpt_state, generation)},
    {"global_batch", NUMBER, offsetof(struct ct_ckpt_state, global_batch)},
    {"world", NUMBER, offsetof(struct ct_ckpt_state, world)},
    {"config_hash", HEX, offsetof(struct ct_ckpt_state, config_hash)},
    {"program_hash", HEX, offsetof(struct ct_ckpt_state, program_hash)},
    {"plateau_ratio", BITS, offsetof(struct ct_ckpt_state, plateau.ratio)},
    {"plateau_best", BITS, offsetof(struct ct_ckpt_state, plateau.best)},
    {"plateau_bad", OPTIONAL, offsetof(struct ct_ckpt_state, plateau.bad)},
    {"plateau_step", OPTIONAL, offsetof(struct ct_ckpt_state, plateau.step)},
    {"loss_scale", BITS, offsetof(struct ct_ckpt_state, scaler.scale)},
    {"loss_scale_clean", OPTIONAL, offsetof(struct ct_ckpt_state, scaler.clean)},
    {"best_metric", OPTIONAL, offsetof(struct ct_ckpt_state, best.metric)},
    {"best_step", OPTIONAL, offsetof(struct ct_ckpt_state, best.step)},
    {"best_value", BITS, offsetof(struct ct_ckpt_state, best.value)},
    {"unseen", OPTIONAL, offsetof(struct ct_ckpt_state, unseen)},
};

static bool is_hex(enum kind kind)
{
    return kind == HEX || kind == BITS;
}

static const char checksum_key[] = ",\n  \"checksum\": \"";

int ct_ckpt_state_print(struct ct_buf *buf, const struct ct_ckpt_state *state,
                        const struct ct_ckpt_sums *sums)
{
    (void)ct_buf_printf(buf, "{\n  \"version\": %d", CT_CKPT_VERSION);
    for (size_t i = 0; i < CT_COUNT(fields); i++) {
        uint64_t value;
        memcpy(&value, (const char *)state + fields[i].offset, sizeof value);
        if (is_hex(fields[i].kind))
            (void)ct_buf_printf(buf, ",\n  \"%s\": \"%016" PRIx64 "\"", fields[i].key, value);
        else
            (void)ct_buf_printf(buf, ",\n  \"%s\": %" PRIu64, fields[i].key, value);
    }
    (void)ct_buf_puts(buf, ",\n  \"run_id\": ");
    ct_json_string(buf, state->run_id);
    (void)ct_buf_puts(buf, ",\n  \"files\": {");
    for (size_t i = 0; i < sums->count; i++) {
        (void)ct_buf_puts(buf, i > 0 ? ",\n    " : "\n    ");
        ct_json_string(buf, sums->files[i].name);
        (void)ct_buf_printf(buf, ": {\"bytes\": %" PRIu64 ", \"crc32c\": \"%08" PRIx64 "\"}",
                            sums->files[i].bytes, sums->files[i].value);
    }
    (void)ct_buf_puts(buf, "\n  }");
    uint64_t checksum = ct_hash64(buf->data, buf->size, 0);
    (void)ct_buf_printf(buf, "%s%016" PRIx64 "\"\n}\n", checksum_key, checksum);
    return buf->failed ? CT_ENOMEM : 0;
}

static bool get_hex(const json_t *value, size_t digits, uint64_t *ret)
{
    const char *text = json_string_value(value);
    char *end = NULL;

    if (text == NULL || strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return false;
    *ret = strtoull(text, &end, 16);
    return true;
}

/* The bytes before the checksum have that checksum. */
static bool is_whole(const struct ct_buf *text, const json_t *root)
{
    const char *at = text->size > 0 ? strstr(text->data, checksum_key) : NULL;
    uint64_t checksum = 0;

    return at != NULL && get_hex(json_object_get(root, "checksum"), 16, &checksum) &&
           checksum == ct_hash64(text->data, (size_t)(at - text->data), 0);
}

static bool get_sum(uint64_t version, const json_t *file, uint64_t *ret)
{
    return version == 1 ? get_hex(json_object_get(file, "xxh3"), 16, ret)
                        : get_hex(json_object_get(file, "crc32c"), 8, ret);
}

static bool parse_files(struct ct_ckpt_sums *sums, json_t *files)
{
    const char *name;
    json_t *value;

    if (!json_is_object(files) || json_object_size(files) > CT_CKPT_MAX_FILES)
        return false;
    json_object_foreach(files, name, value)
    {
        struct ct_ckpt_sum *sum = &sums->files[sums->count++];
        if (strchr(name, '/') != NULL || !ct_str_copy(sum->name, sizeof sum->name, name) ||
            !ct_json_whole(json_object_get(value, "bytes"), &sum->bytes) ||
            !get_sum(sums->version, value, &sum->value))
            return false;
    }
    return true;
}

/* Fill the state; returns the key that is missing or wrong, or NULL. */
static const char *parse_fields(struct ct_ckpt_state *state, const json_t *root)
{
    const char *run_id = json_string_value(json_object_get(root, "run_id"));

    for (size_t i = 0; i < CT_COUNT(fields); i++) {
        uint64_t value = 0;
        const json_t *member = json_object_get(root, fields[i].key);
        if (member == NULL && (fields[i].kind == OPTIONAL || fields[i].kind == BITS))
            continue;
        if (!(is_hex(fields[i].kind) ? get_hex(member, 16, &value) : ct_json_whole(member, &value)))
            return fields[i].key;
        memcpy((char *)state + fields[i].offset, &value, sizeof value);
    }
    if (run_id == NULL || !ct_str_copy(state->run_id, sizeof state->run_id, run_id))
        return "run_id";
    return NULL;
}

static int parse(struct ct_ckpt_state *state, struct ct_ckpt_sums *sums, const char *path,
                 json_t *root, struct ct_error *err)
{
    uint64_t version = 0;
    const char *wrong = NULL;

    if (!ct_json_whole(json_object_get(root, "version"), &version))
        wrong = "version";
    else if (version < 1 || version > CT_CKPT_VERSION)
        return ct_error_set(err, CT_EDATA,
                            "%s: version %" PRIu64 ", but this program reads 1 to %d", path,
                            version, CT_CKPT_VERSION);
    sums->version = version;
    if (wrong == NULL)
        wrong = parse_fields(state, root);
    if (wrong == NULL && !parse_files(sums, json_object_get(root, "files")))
        wrong = "files";
    if (wrong != NULL)
        return ct_error_set(err, CT_EDATA, "%s: damaged: \"%s\" is missing or wrong", path, wrong);
    return 0;
}

int ct_ckpt_state_parse(struct ct_ckpt_state *ret, struct ct_ckpt_sums *ret_sums, const char *path,
                        const struct ct_buf *text, struct ct_error *err)
{
    struct ct_ckpt_state state = {0};
    struct ct_ckpt_sums sums = {0};
    json_t *root = json_loadb(ct_buf_str(text), text->size, JSON_REJECT_DUPLICATES, NULL);
    int code = 0;

    if (!json_is_object(root))
        code = ct_error_set(err, CT_EDATA, "%s: damaged: it is no JSON object", path);
    else if (!is_whole(text, root))
        code = ct_error_set(err, CT_EDATA, "%s: damaged: its checksum does not fit", path);
    else
        code = parse(&state, &sums, path, root, err);
    json_decref(root);
    if (code == 0) {
        *ret = state;
        *ret_sums = sums;
    }
    return code;
}
