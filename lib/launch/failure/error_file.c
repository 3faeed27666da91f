/* torchelastic's error file; see error_file.h. */
#include "launch/failure/error_file.h"

#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>

/* A number, or a string that is one; -1 for anything else. */
static int64_t number_of(const json_t *value)
{
    int64_t number = -1;

    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) < 1e15)
        number = (int64_t)json_real_value(value);
    else if (json_is_string(value) && ct_parse_i64(json_string_value(value), &number) != 0)
        number = -1;
    return number >= 0 ? number : -1;
}

static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);

    return text != NULL ? text : "";
}

/* The members of either shape, as views into `root`. */
static int pick(const json_t *root, struct ct_error_file *file)
{
    const json_t *message = json_object_get(root, "message");
    const json_t *inner = json_object_get(message, "message");
    const json_t *extra = json_object_get(message, "extraInfo");

    if (json_is_string(message)) {
        file->message = text_of(message);
        file->timestamp_s = number_of(json_object_get(root, "timestamp"));
        file->error_code = number_of(json_object_get(root, "errorCode"));
        return 0;
    }
    if (!json_is_string(inner))
        return CT_EDATA;
    file->message = text_of(inner);
    file->callstack = text_of(json_object_get(extra, "py_callstack"));
    file->timestamp_s = number_of(json_object_get(extra, "timestamp"));
    file->error_code = number_of(json_object_get(message, "errorCode"));
    return 0;
}

int ct_error_file_parse(const char *json, size_t size, struct ct_arena *arena,
                        struct ct_error_file *ret_file, struct ct_error *err)
{
    struct ct_error_file file = {.callstack = ""};
    json_error_t why;

    if (size > CT_ERROR_FILE_BYTES)
        return ct_error_set(err, CT_ELIMIT, "an error file of %zu bytes is not read (at most %d)",
                            size, CT_ERROR_FILE_BYTES);
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return ct_error_set(err, CT_EDATA, "the error file is no JSON: %d:%d: %.200s", why.line,
                            why.column, why.text);
    int rc = pick(root, &file);
    if (rc != 0) {
        ct_error_set(err, rc, "the error file has no \"message\" of a known shape");
    } else {
        file.message = ct_arena_strdup(arena, file.message);
        file.callstack = ct_arena_strdup(arena, file.callstack);
        if (file.message == NULL || file.callstack == NULL)
            rc = ct_error_set(err, CT_ENOMEM, "out of memory for an error file");
    }
    json_decref(root);
    if (rc == 0)
        *ret_file = file;
    return rc;
}

void ct_error_file_print(const struct ct_error_file *file, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "{\"message\": {\"message\": ");
    ct_json_string(to, file->message);
    (void)ct_buf_puts(to, ", \"extraInfo\": {\"py_callstack\": ");
    ct_json_string(to, file->callstack);
    /* torchelastic reads it as int(...) of a string. */
    (void)ct_buf_printf(to, ", \"timestamp\": \"%" PRId64 "\"}",
                        file->timestamp_s >= 0 ? file->timestamp_s : 0);
    if (file->error_code >= 0)
        (void)ct_buf_printf(to, ", \"errorCode\": %" PRId64, file->error_code);
    (void)ct_buf_puts(to, "}}\n");
}
