/* See tokenizer.h. What all kinds share, and the two that need no file. */
#include "data/tokenizer.h"

#include "base/assert.h"
#include "base/str.h"
#include "data/tokenizer_table.h"

#include <stdlib.h>
#include <string.h>

/* ---- shared ----------------------------------------------------------------------------------*/

int ct_token_list_reserve(struct ct_token_list *list, size_t count, struct ct_error *err)
{
    if (list->room - list->count >= count)
        return 0;
    size_t room = CT_MAX(list->count + count, list->room * 2);
    int32_t *ids = realloc(list->ids, room * sizeof *ids);
    if (ids == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %zu tokens", room);
    list->ids = ids;
    list->room = room;
    return 0;
}

void ct_token_list_deinit(struct ct_token_list *list)
{
    free(list->ids);
    *list = (struct ct_token_list){0};
}

int ct_text_check_utf8(const char *text, size_t size, struct ct_error *err)
{
    size_t valid = ct_utf8_valid_prefix(text, size);

    if (valid == size)
        return 0;
    return ct_error_set(err, CT_EDATA,
                        "byte %zu (%02x) is not UTF-8; the tokenizer 'byte' takes any", valid,
                        (unsigned)(unsigned char)text[valid]);
}

uint32_t ct_utf8_decode(const char *text, size_t *ret_size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    uint32_t point = size == 1 ? at[0] : at[0] & (0x7Fu >> size);

    for (size_t i = 1; i < size; i++)
        point = point << 6 | (at[i] & 0x3F);
    *ret_size = size;
    return point;
}

void ct_tokenizer_free(struct ct_tokenizer *tokenizer)
{
    if (tokenizer != NULL)
        tokenizer->table->free(tokenizer);
}

int32_t ct_tokenizer_size(const struct ct_tokenizer *tokenizer)
{
    return tokenizer->size;
}

int32_t ct_tokenizer_end(const struct ct_tokenizer *tokenizer)
{
    return tokenizer->end;
}

int ct_tokenizer_encode(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                        struct ct_token_list *into, struct ct_error *err)
{
    size_t before = into->count;
    int code = tokenizer->table->utf8 ? ct_text_check_utf8(text, size, err) : 0;

    if (code == 0)
        code = tokenizer->table->encode(tokenizer, text, size, into, err);
    if (code != 0)
        into->count = before;
    return code;
}

int ct_tokenizer_prompt(const struct ct_tokenizer *tokenizer, const char *prompt,
                        struct ct_token_list *into, struct ct_error *err)
{
    int32_t end = ct_tokenizer_end(tokenizer);

    if (prompt[0] != '\0')
        return ct_tokenizer_encode(tokenizer, prompt, strlen(prompt), into, err);
    int code = ct_token_list_reserve(into, 1, err);
    if (code != 0)
        return code;
    if (end >= 0 || ct_tokenizer_encode(tokenizer, "\n", 1, into, NULL) != 0)
        into->ids[into->count++] = CT_MAX(end, 0);
    return 0;
}

int ct_tokenizer_decode(const struct ct_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        struct ct_buf *into, struct ct_error *err)
{
    for (size_t i = 0; i < count; i++) {
        size_t size;
        CT_ASSERT(ids[i] >= 0 && ids[i] < tokenizer->size);
        const char *text = tokenizer->table->text_of(tokenizer, ids[i], &size);
        int code = ct_buf_append(into, text, size);
        if (code != 0)
            return ct_error_set(err, code, "no room for the text of %zu tokens", count);
    }
    return 0;
}

/* ---- bytes -----------------------------------------------------------------------------------*/

static int byte_encode(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                       struct ct_token_list *into, struct ct_error *err)
{
    int code = ct_token_list_reserve(into, size, err);

    (void)tokenizer;
    for (size_t i = 0; code == 0 && i < size; i++)
        into->ids[into->count++] = (unsigned char)text[i];
    return code;
}

struct byte_tokenizer {
    struct ct_tokenizer head;
    char bytes[256];
};

static const char *byte_text(const struct ct_tokenizer *tokenizer, int32_t id, size_t *ret_size)
{
    *ret_size = 1;
    return &((const struct byte_tokenizer *)tokenizer)->bytes[id];
}

static void plain_free(struct ct_tokenizer *tokenizer)
{
    free(tokenizer);
}

static const struct ct_tokenizer_table byte_table = {
    .encode = byte_encode, .text_of = byte_text, .free = plain_free};

int ct_tokenizer_byte_new(struct ct_tokenizer **ret, struct ct_error *err)
{
    struct byte_tokenizer *made = malloc(sizeof *made);

    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a tokenizer");
    made->head = (struct ct_tokenizer){&byte_table, 256, -1};
    for (int i = 0; i < 256; i++)
        made->bytes[i] = (char)i;
    *ret = &made->head;
    return 0;
}

/* ---- characters ------------------------------------------------------------------------------*/

enum { CODE_POINTS = 0x110000, UTF8_MAX = 4 };

struct char_tokenizer {
    struct ct_tokenizer head;
    int32_t id[CODE_POINTS]; /* of each code point; -1: not in the vocabulary */
    char text[][UTF8_MAX];   /* [size] */
};

static size_t utf8_size(const char *text)
{
    size_t size;

    (void)ct_utf8_decode(text, &size);
    return size;
}

static int char_encode(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                       struct ct_token_list *into, struct ct_error *err)
{
    const struct char_tokenizer *t = (const struct char_tokenizer *)tokenizer;
    int code = ct_token_list_reserve(into, size, err);

    for (size_t i = 0, length; code == 0 && i < size; i += length) {
        uint32_t point = ct_utf8_decode(text + i, &length);
        if (t->id[point] < 0)
            return ct_error_set(err, CT_EDATA,
                                "byte %zu: the character U+%04X is not in the vocabulary of %d, "
                                "which are those of the training text",
                                i, point, (int)t->head.size);
        into->ids[into->count++] = t->id[point];
    }
    return code;
}

static const char *char_text(const struct ct_tokenizer *tokenizer, int32_t id, size_t *ret_size)
{
    const char *text = ((const struct char_tokenizer *)tokenizer)->text[id];

    *ret_size = utf8_size(text);
    return text;
}

static const struct ct_tokenizer_table char_table = {
    .encode = char_encode, .text_of = char_text, .free = plain_free, .utf8 = true};

static void put_utf8(char *to, uint32_t point)
{
    static const unsigned char lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    size_t size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;

    for (size_t i = size; i-- > 1; point >>= 6)
        to[i] = (char)(0x80 | (point & 0x3F));
    to[0] = (char)(lead[size] | point);
}

int ct_tokenizer_char_new(struct ct_tokenizer **ret, const char *text, size_t size,
                          struct ct_error *err)
{
    int32_t count = 0;
    int code = ct_text_check_utf8(text, size, err);

    if (code != 0)
        return code;
    if (size == 0)
        return ct_error_set(err, CT_EDATA, "an empty text has no characters");
    struct char_tokenizer *made = malloc(sizeof *made);
    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a tokenizer");
    memset(made->id, -1, sizeof made->id);
    for (size_t i = 0, length; i < size; i += length)
        made->id[ct_utf8_decode(text + i, &length)] = 0;
    for (uint32_t point = 0; point < CODE_POINTS; point++)
        if (made->id[point] == 0)
            made->id[point] = count++;
    struct char_tokenizer *grown =
        realloc(made, sizeof *made + (size_t)count * sizeof made->text[0]);
    if (grown == NULL) {
        free(made);
        return ct_error_set(err, CT_ENOMEM, "no memory for %d characters", (int)count);
    }
    made = grown;
    made->head = (struct ct_tokenizer){&char_table, count, -1};
    for (uint32_t point = 0; point < CODE_POINTS; point++)
        if (made->id[point] >= 0)
            put_utf8(made->text[made->id[point]], point);
    *ret = &made->head;
    return 0;
}
