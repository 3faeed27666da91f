/* See bpe.h. A text is cut into words, each word is a chain of single bytes at first, and a heap
 * gives the pair that was learned first, leftmost first:
 *
 *     " lower" -> [ ][l][o][w][e][r] -> [ ][lo][w][e][r] -> ... -> [ lower]
 *
 * A pair in the heap may be out of date when it comes up: one of its tokens has become part of
 * another. It is then dropped. n bytes take O(n log n) steps, so no word is a trap. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "data/bpe.h"

#include "base/assert.h"

#include <pcre2.h>
#include <stdlib.h>

/* White_Space of Unicode, which is what \s means in the published expression. */
#define SPACE                                                                                    \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"

static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++| ?[^" SPACE
                            "\\p{L}\\p{N}]++|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]++";

struct gpt2_tokenizer {
    struct ct_tokenizer head;
    struct ct_bpe bpe;
    pcre2_code *words;
};

/* ---- one word --------------------------------------------------------------------------------*/

struct link {
    int32_t id; /* -1: part of the link before */
    uint32_t before, behind;
};

/* A merge that may be done: of link `at` and the one behind it. */
struct pair {
    struct ct_bpe_merge merge;
    uint32_t at;
};

/* Memory for the longest word so far. */
struct scratch {
    struct link *links; /* [room], one a byte */
    struct pair *heap;  /* [3 room]: a pair a link at first, two a merge */
    size_t room;
    size_t pairs;
};

static bool comes_before(const struct pair *a, const struct pair *b)
{
    return a->merge.id != b->merge.id ? a->merge.id < b->merge.id : a->at < b->at;
}

static void push(struct scratch *s, struct pair pair)
{
    size_t i = s->pairs++;

    for (; i > 0 && comes_before(&pair, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = pair;
}

static struct pair pop(struct scratch *s)
{
    struct pair first = s->heap[0], last = s->heap[--s->pairs];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < s->pairs; i = child) {
        if (child + 1 < s->pairs && comes_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!comes_before(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return first;
}

/* Offer the pair of link `at` and the one behind it, if that is a merge. */
static void offer(struct scratch *s, const struct ct_bpe *bpe, uint32_t at, uint32_t count)
{
    const struct link *link = &s->links[at];

    if (link->behind >= count)
        return;
    const struct ct_bpe_merge *merge = ct_bpe_find(bpe, link->id, s->links[link->behind].id);
    if (merge != NULL)
        push(s, (struct pair){*merge, at});
}

static void merge_pair(struct scratch *s, const struct ct_bpe *bpe, const struct pair *pair,
                       uint32_t count)
{
    struct link *left = &s->links[pair->at];

    if (left->id != pair->merge.left || left->behind >= count ||
        s->links[left->behind].id != pair->merge.right)
        return;
    struct link *right = &s->links[left->behind];
    right->id = -1;
    left->id = pair->merge.id;
    left->behind = right->behind;
    if (left->behind < count)
        s->links[left->behind].before = pair->at;
    offer(s, bpe, pair->at, count);
    if (pair->at > 0)
        offer(s, bpe, left->before, count);
}

static void encode_word(struct scratch *s, const struct ct_bpe *bpe, const char *word, size_t size,
                        struct ct_token_list *into)
{
    uint32_t count = (uint32_t)size;

    CT_ASSERT(s->links != NULL && s->heap != NULL && s->room >= size);
    s->pairs = 0;
    for (uint32_t i = 0; i < count; i++)
        s->links[i] = (struct link){bpe->byte[(unsigned char)word[i]], i - 1, i + 1};
    for (uint32_t i = 0; i + 1 < count; i++)
        offer(s, bpe, i, count);
    while (s->pairs > 0) {
        struct pair pair = pop(s);
        merge_pair(s, bpe, &pair, count);
    }
    for (uint32_t i = 0; i < count; i = s->links[i].behind)
        into->ids[into->count++] = s->links[i].id;
}

/* ---- a text ----------------------------------------------------------------------------------*/

static int make_room(struct scratch *s, size_t size, struct ct_error *err)
{
    if (size <= s->room)
        return 0;
    if (size > UINT32_MAX / 4)
        return ct_error_set(err, CT_ELIMIT, "a word of %zu bytes is longer than any", size);
    size_t room = CT_MAX(2 * s->room, CT_MAX(size, (size_t)256));
    struct link *links = realloc(s->links, room * sizeof *links);
    if (links != NULL)
        s->links = links;
    struct pair *heap = realloc(s->heap, 3 * room * sizeof *heap);
    if (heap != NULL)
        s->heap = heap;
    if (links == NULL || heap == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a word of %zu bytes", size);
    s->room = room;
    return 0;
}

static int encode(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                  struct ct_token_list *into, struct ct_error *err)
{
    const struct gpt2_tokenizer *t = (const struct gpt2_tokenizer *)tokenizer;
    struct scratch scratch = {0};
    int code = 0;
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);

    if (match == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to find words");
    for (size_t at = 0; code == 0 && at < size;) {
        int found = pcre2_match(t->words, (PCRE2_SPTR)text, size, at,
                                PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match, NULL);
        if (found < 0) {
            code = ct_error_set(err, CT_ENOMEM, "byte %zu: no memory to find a word there", at);
            break;
        }
        size_t end = pcre2_get_ovector_pointer(match)[1];
        CT_ASSERT(end > at);
        code = make_room(&scratch, end - at, err);
        if (code == 0)
            code = ct_token_list_reserve(into, end - at, err);
        if (code == 0)
            encode_word(&scratch, &t->bpe, text + at, end - at, into);
        at = end;
    }
    pcre2_match_data_free(match);
    free(scratch.links);
    free(scratch.heap);
    return code;
}

static const char *text_of(const struct ct_tokenizer *tokenizer, int32_t id, size_t *ret_size)
{
    const struct ct_bpe *bpe = &((const struct gpt2_tokenizer *)tokenizer)->bpe;

    *ret_size = bpe->start[id + 1] - bpe->start[id];
    return bpe->bytes + bpe->start[id];
}

static void gpt2_free(struct ct_tokenizer *tokenizer)
{
    struct gpt2_tokenizer *t = (struct gpt2_tokenizer *)tokenizer;

    pcre2_code_free(t->words);
    ct_bpe_deinit(&t->bpe);
    free(t);
}

static const struct ct_tokenizer_table table = {
    .encode = encode, .text_of = text_of, .free = gpt2_free, .utf8 = true};

int ct_tokenizer_gpt2_new(struct ct_tokenizer **ret, struct ct_stream *merges, struct ct_error *err)
{
    struct gpt2_tokenizer *made = calloc(1, sizeof *made);
    int problem;
    size_t where;

    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a tokenizer");
    int code = ct_bpe_load(&made->bpe, merges, err);
    if (code == 0) {
        made->words = pcre2_compile((PCRE2_SPTR)words, sizeof words - 1, PCRE2_UTF | PCRE2_UCP,
                                    &problem, &where, NULL);
        CT_ASSERT(made->words != NULL || problem == PCRE2_ERROR_HEAP_FAILED);
        if (made->words == NULL)
            code = ct_error_set(err, CT_ENOMEM, "no memory for the expression of words");
    }
    if (code != 0) {
        ct_bpe_deinit(&made->bpe);
        free(made);
        return code;
    }
    (void)pcre2_jit_compile(made->words, PCRE2_JIT_COMPLETE); /* slower without, no less right */
    made->head = (struct ct_tokenizer){&table, made->bpe.size, made->bpe.size - 1};
    *ret = &made->head;
    return 0;
}
