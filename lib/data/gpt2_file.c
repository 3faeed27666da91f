/* See bpe.h. vocab.bpe lists merges in the order in which they were learned, a line each: the two
 * tokens, written with a printable character a byte. That order is the order of the ids, so the
 * file is the whole vocabulary; encoder.json, published beside it, says the same again.
 *
 *     #version: 0.2          id
 *     Ġ t                    256      Ġ: the byte 20, a blank
 *     h e                    258 */
#include "data/bpe.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINES_MAX = 1 << 20,
    TOKEN_BYTES = 512,
    BYTES = 256,
    NONE = -1,
};

static const char end_of_text[] = "<|endoftext|>";

/* ---- characters for bytes --------------------------------------------------------------------*/

/* Bytes that stand for themselves: those of Latin-1 that one can see. They have the first ids. The
 * others are written as U+0100 and up, in order. */
static bool is_plain(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static void make_alphabet(struct ct_bpe *bpe, int16_t byte_of[2 * BYTES])
{
    int plain = 0, other = 0, plain_count = 0;

    for (int byte = 0; byte < BYTES; byte++)
        plain_count += is_plain(byte);
    for (int i = 0; i < 2 * BYTES; i++)
        byte_of[i] = NONE;
    for (int byte = 0; byte < BYTES; byte++) {
        int written = is_plain(byte) ? byte : BYTES + other;
        bpe->byte[byte] = is_plain(byte) ? plain++ : plain_count + other++;
        byte_of[written] = (int16_t)byte;
    }
}

/* ---- the table -------------------------------------------------------------------------------*/

static size_t slot_of(const struct ct_bpe *bpe, int32_t left, int32_t right)
{
    return (size_t)ct_mix64((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & (bpe->slots - 1);
}

/* Where the pair is, or the free slot where it belongs. */
static struct ct_bpe_merge *find_slot(const struct ct_bpe *bpe, int32_t left, int32_t right)
{
    size_t i = slot_of(bpe, left, right);

    while (bpe->merges[i].left >= 0 &&
           (bpe->merges[i].left != left || bpe->merges[i].right != right))
        i = (i + 1) & (bpe->slots - 1);
    return &bpe->merges[i];
}

const struct ct_bpe_merge *ct_bpe_find(const struct ct_bpe *bpe, int32_t left, int32_t right)
{
    const struct ct_bpe_merge *merge = find_slot(bpe, left, right);

    return merge->left < 0 ? NULL : merge;
}

/* ---- reading ---------------------------------------------------------------------------------*/

/* The file as it is read; tokens are found by their text while it lasts. */
struct reader {
    struct ct_bpe *bpe;
    const char *name;           /* of the file */
    struct ct_buf texts;        /* becomes bpe->bytes */
    int16_t byte_of[2 * BYTES]; /* of a character, NONE: of no byte */
    int32_t *by_text;           /* [bpe->slots] open addressing by text; NONE: free */
    int line;
};

static int32_t *find_text(const struct reader *r, const char *text, size_t size)
{
    size_t last = r->bpe->slots - 1, i = (size_t)ct_hash64(text, size, 0) & last;

    for (; r->by_text[i] != NONE; i = (i + 1) & last) {
        const uint32_t *start = &r->bpe->start[r->by_text[i]];
        if (start[1] - start[0] == size && memcmp(r->texts.data + start[0], text, size) == 0)
            break;
    }
    return &r->by_text[i];
}

/* The next id's text; false when it exists already. */
static bool add_token(struct reader *r, const char *text, size_t size)
{
    int32_t *slot = find_text(r, text, size);

    if (*slot != NONE)
        return false;
    *slot = r->bpe->size++;
    (void)ct_buf_append(&r->texts, text, size);
    r->bpe->start[r->bpe->size] = (uint32_t)r->texts.size;
    return true;
}

static int bad_line(struct reader *r, const char *line, size_t size, const char *what,
                    struct ct_error *err)
{
    return ct_error_set(err, CT_EDATA, "%s:%d: \"%.*s\" %s", r->name, r->line,
                        (int)CT_MIN(size, (size_t)64), line, what);
}

/* The bytes that a token is written for; 0 when it is none. */
static size_t read_token(const struct reader *r, const char *written, size_t size, char *to)
{
    size_t count = 0;

    for (size_t i = 0, length; i < size; i += length) {
        uint32_t point = ct_utf8_decode(written + i, &length);
        if (point >= 2 * BYTES || r->byte_of[point] == NONE || count == TOKEN_BYTES)
            return 0;
        to[count++] = (char)r->byte_of[point];
    }
    return count;
}

static int read_line(struct reader *r, const char *line, size_t size, struct ct_error *err)
{
    char text[2 * TOKEN_BYTES];
    const char *blank = memchr(line, ' ', size);

    if (ct_text_check_utf8(line, size, NULL) != 0 || blank == NULL)
        return bad_line(r, line, size, "is not two tokens with a blank between them", err);
    size_t behind = (size_t)(blank - line) + 1;
    size_t left = read_token(r, line, behind - 1, text);
    size_t right = read_token(r, line + behind, size - behind, text + left);
    if (left == 0 || right == 0)
        return bad_line(r, line, size, "is not two tokens with a blank between them", err);
    int32_t a = *find_text(r, text, left), b = *find_text(r, text + left, right);
    if (a == NONE || b == NONE)
        return bad_line(r, line, size, "joins a token that no line before it has made", err);
    struct ct_bpe_merge *merge = find_slot(r->bpe, a, b);
    if (!add_token(r, text, left + right))
        return bad_line(r, line, size, "makes a token that is there already", err);
    *merge = (struct ct_bpe_merge){a, b, r->bpe->size - 1};
    return 0;
}

/* Lines of `size` bytes at `text`; the first may be a comment, the last needs no end. */
static int read_lines(struct reader *r, const char *text, size_t size, struct ct_error *err)
{
    const char *end = text + size;
    int code = 0;

    for (const char *at = text, *stop; code == 0 && at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        r->line++;
        if (stop > at && !(r->line == 1 && *at == '#'))
            code = read_line(r, at, (size_t)(stop - at), err);
    }
    return code;
}

/* Room for a merge in each of `lines`. */
static int allocate(struct reader *r, size_t lines, struct ct_error *err)
{
    struct ct_bpe *bpe = r->bpe;
    size_t most = BYTES + lines + 1;

    bpe->slots = 64;
    while (bpe->slots < 2 * most)
        bpe->slots *= 2;
    bpe->start = calloc(most + 1, sizeof *bpe->start);
    bpe->merges = malloc(bpe->slots * sizeof *bpe->merges);
    r->by_text = malloc(bpe->slots * sizeof *r->by_text);
    if (bpe->start == NULL || bpe->merges == NULL || r->by_text == NULL)
        return ct_error_set(err, CT_ENOMEM, "%s: no memory for %zu merges", r->name, lines);
    for (size_t i = 0; i < bpe->slots; i++) {
        bpe->merges[i].left = NONE;
        r->by_text[i] = NONE;
    }
    return 0;
}

static size_t count_lines(const char *text, size_t size)
{
    size_t lines = 1;

    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

static int read_text(struct reader *r, const char *text, size_t size, struct ct_error *err)
{
    size_t lines = count_lines(text, size);
    char of_id[BYTES];

    if (lines > LINES_MAX)
        return ct_error_set(err, CT_ELIMIT, "%s: has %zu lines; the most is %d", r->name, lines,
                            LINES_MAX);
    int code = allocate(r, lines, err);
    if (code != 0)
        return code;
    make_alphabet(r->bpe, r->byte_of);
    for (int byte = 0; byte < BYTES; byte++)
        of_id[r->bpe->byte[byte]] = (char)byte;
    for (int id = 0; id < BYTES; id++)
        (void)add_token(r, &of_id[id], 1);
    code = read_lines(r, text, size, err);
    if (code == 0 && r->bpe->size == BYTES)
        code = ct_error_set(err, CT_EDATA, "%s: holds no merge", r->name);
    if (code == 0)
        (void)add_token(r, end_of_text, sizeof end_of_text - 1);
    if (code == 0 && r->texts.failed)
        code = ct_error_set(err, CT_ENOMEM, "%s: no memory for its tokens", r->name);
    return code;
}

int ct_bpe_load(struct ct_bpe *ret, struct ct_stream *stream, struct ct_error *err)
{
    struct ct_bpe bpe = {0};
    struct reader reader = {.bpe = &bpe, .name = stream->name};
    struct ct_buf file;

    ct_buf_init(&reader.texts, 0);
    ct_buf_init(&file, 0);
    int code = ct_stream_read_all(stream, &file, err);
    if (code == 0)
        code = read_text(&reader, ct_buf_str(&file), file.size, err);
    ct_buf_deinit(&file);
    free(reader.by_text);
    bpe.bytes = reader.texts.data; /* the table's from here on */
    if (code != 0)
        ct_bpe_deinit(&bpe);
    else
        *ret = bpe;
    return code;
}

void ct_bpe_deinit(struct ct_bpe *bpe)
{
    free(bpe->bytes);
    free(bpe->start);
    free(bpe->merges);
    *bpe = (struct ct_bpe){0};
}
