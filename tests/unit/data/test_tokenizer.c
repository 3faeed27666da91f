/* Tokenizers: ids that others give for the same text, and text that comes back from them. */
#include "data/tokenizer.h"

#include "base/assert.h"
#include "memory_stream.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tokenizer, .timeout = 30);

static struct ct_tokenizer *gpt2(void)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_stream file;
    struct ct_error err = {0};

    cr_assert_eq(ct_stream_open(&file, "configs/data/gpt2.bpe.gz", 1 << 20, &err), 0, "%s",
                 err.text);
    cr_assert_eq(ct_tokenizer_gpt2_new(&tokenizer, &file, &err), 0, "%s", err.text);
    ct_stream_close(&file);
    return tokenizer;
}

static int gpt2_from(const char *text, struct ct_tokenizer **ret, struct ct_error *err)
{
    struct ct_stream memory;

    memory_stream(&memory, "merges", text, strlen(text));
    return ct_tokenizer_gpt2_new(ret, &memory, err);
}

static void expect_ids(const struct ct_tokenizer *tokenizer, const char *text, size_t size,
                       const int32_t *want, size_t count)
{
    struct ct_token_list got = {0};
    struct ct_error err = {0};

    cr_assert_eq(ct_tokenizer_encode(tokenizer, text, size, &got, &err), 0, "%s", err.text);
    cr_assert_eq(got.count, count, "\"%s\": %zu ids, not %zu", text, got.count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(got.ids[i], want[i], "\"%s\": id %zu is %d, not %d", text, i, got.ids[i],
                     want[i]);
    ct_token_list_deinit(&got);
}

static void expect_round_trip(const struct ct_tokenizer *tokenizer, const char *text, size_t size)
{
    struct ct_token_list ids = {0};
    struct ct_buf back;
    struct ct_error err = {0};

    ct_buf_init(&back, 0);
    cr_assert_eq(ct_tokenizer_encode(tokenizer, text, size, &ids, &err), 0, "%s", err.text);
    cr_assert_eq(ct_tokenizer_decode(tokenizer, ids.ids, ids.count, &back, &err), 0);
    cr_assert_eq(back.size, size);
    cr_assert_eq(memcmp(ct_buf_str(&back), text, size), 0);
    ct_buf_deinit(&back);
    ct_token_list_deinit(&ids);
}

/* ---- bytes and characters --------------------------------------------------------------------*/

Test(tokenizer, a_byte_is_its_own_id)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_error err = {0};
    const int32_t want[] = {0, 255, 'a', 0xC3};

    cr_assert_eq(ct_tokenizer_byte_new(&tokenizer, &err), 0);
    cr_assert_eq(ct_tokenizer_size(tokenizer), 256);
    cr_assert_eq(ct_tokenizer_end(tokenizer), -1);
    expect_ids(tokenizer, "\0\377a\303", 4, want, 4);
    expect_round_trip(tokenizer, "\0\377a\303", 4);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, characters_are_numbered_in_the_order_of_their_code_points)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_error err = {0};
    const char text[] = "b\xc3\xa9\xf0\x9f\x98\x80 ab\xe6\x97\xa5"; /* b é 😀 blank a b 日 */
    const int32_t want[] = {2, 3, 5, 0, 1, 2, 4};

    cr_assert_eq(ct_tokenizer_char_new(&tokenizer, text, sizeof text - 1, &err), 0, "%s", err.text);
    cr_assert_eq(ct_tokenizer_size(tokenizer), 6);
    expect_ids(tokenizer, text, sizeof text - 1, want, CT_COUNT(want));
    expect_round_trip(tokenizer, text, sizeof text - 1);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, a_character_that_training_did_not_have_is_named_and_nothing_is_appended)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_token_list ids = {0};
    struct ct_error err = {0};

    cr_assert_eq(ct_tokenizer_char_new(&tokenizer, "abc", 3, &err), 0);
    cr_assert_eq(ct_tokenizer_encode(tokenizer, "ab", 2, &ids, &err), 0);
    cr_assert_eq(ct_tokenizer_encode(tokenizer, "ab\xc3\xa9", 4, &ids, &err), CT_EDATA);
    cr_assert_eq(ids.count, 2);
    cr_assert_str_eq(err.text, "byte 2: the character U+00E9 is not in the vocabulary of 3, which "
                               "are those of the training text");
    ct_token_list_deinit(&ids);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, bytes_that_are_no_utf8_are_refused_where_characters_are_wanted)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_token_list ids = {0};
    struct ct_error err = {0};

    cr_assert_eq(ct_tokenizer_char_new(&tokenizer, "ab\xff", 3, &err), CT_EDATA);
    cr_assert_str_eq(err.text, "byte 2 (ff) is not UTF-8; the tokenizer 'byte' takes any");
    cr_assert_eq(ct_tokenizer_char_new(&tokenizer, "", 0, &err), CT_EDATA);
    tokenizer = gpt2();
    cr_assert_eq(ct_tokenizer_encode(tokenizer, "x\xc0\x80", 3, &ids, &err), CT_EDATA);
    ct_tokenizer_free(tokenizer);
}

/* ---- GPT-2 -----------------------------------------------------------------------------------*/

/* Ids as Hugging Face's tokenizers 0.x gives them from the same file. */
static const struct {
    const char *text;
    int32_t ids[16];
    size_t count;
} published[] = {
    {"Hello, world!", {15496, 11, 995, 0}, 4},
    {"Call me Ishmael. Some years ago", {14134, 502, 1148, 21720, 417, 13, 2773, 812, 2084}, 9},
    {"  two  blanks \n\n\tand a tab ",
     {220, 734, 220, 698, 2283, 220, 628, 197, 392, 257, 7400, 220},
     12},
    {"I'll say it's they've I'M", {40, 1183, 910, 340, 338, 484, 1053, 314, 6, 44}, 10},
    {"na\xc3\xafve caf\xc3\xa9 \xc3\x9cn\xc3\xaf"
     "code \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xd0\x96",
     {2616, 38776, 40304, 49363, 77, 26884, 8189, 10545, 245, 98, 17312, 105, 45739, 252, 12466,
      244},
     16},
    {"3.14159 \xc2\xb2\xc2\xbd \xe2\x85\xa7",
     {18, 13, 1415, 19707, 1587, 110, 23141, 2343, 227, 100},
     10},
    {"\xf0\x9f\x98\x80\xf0\x9f\x91\xa8\xe2\x80\x8d", {47249, 222, 41840, 101, 447, 235}, 6},
    {"a\xc2\xa0"
     "b\xe3\x80\x80"
     "c\xe2\x80\xa8"
     "d\xe1\xa0\x8e"
     "e",
     {64, 1849, 65, 5099, 222, 66, 447, 101, 67, 157, 254, 236, 68},
     13},
    {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}, 7},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaa", {24794, 24794, 24794, 24794, 24794, 24794, 46071}, 7},
    {"supercalifragilisticexpialidocious",
     {16668, 9948, 361, 22562, 346, 396, 501, 42372, 498, 312, 32346},
     11},
    {"", {0}, 0},
};

Test(tokenizer, gpt2_gives_the_published_ids)
{
    struct ct_tokenizer *tokenizer = gpt2();

    cr_assert_eq(ct_tokenizer_size(tokenizer), 50257);
    cr_assert_eq(ct_tokenizer_end(tokenizer), 50256);
    for (size_t i = 0; i < CT_COUNT(published); i++) {
        size_t size = strlen(published[i].text);
        expect_ids(tokenizer, published[i].text, size, published[i].ids, published[i].count);
        expect_round_trip(tokenizer, published[i].text, size);
    }
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, gpt2_writes_each_byte_and_the_end_of_a_text)
{
    struct ct_tokenizer *tokenizer = gpt2();
    struct ct_error err = {0};
    struct ct_buf text;
    bool seen[256] = {false};

    ct_buf_init(&text, 0);
    for (int32_t id = 0; id < 256; id++) {
        ct_buf_clear(&text);
        cr_assert_eq(ct_tokenizer_decode(tokenizer, &id, 1, &text, &err), 0);
        cr_assert_eq(text.size, 1);
        seen[(unsigned char)text.data[0]] = true;
    }
    for (int byte = 0; byte < 256; byte++)
        cr_assert(seen[byte], "no token is the byte %d", byte);
    const int32_t ids[] = {995, 50256};
    ct_buf_clear(&text);
    cr_assert_eq(ct_tokenizer_decode(tokenizer, ids, 2, &text, &err), 0);
    cr_assert_str_eq(ct_buf_str(&text), " world<|endoftext|>");
    ct_buf_deinit(&text);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, a_word_of_a_million_letters_takes_no_square_of_time)
{
    enum { LETTERS = 1000000 };
    struct ct_tokenizer *tokenizer = gpt2();
    char *word = malloc(LETTERS);

    cr_assert_not_null(word);
    memset(word, 'a', LETTERS);
    expect_round_trip(tokenizer, word, LETTERS);
    free(word);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, merges_apply_in_the_order_of_learning_and_leftmost_first)
{
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_error err = {0};
    /* 256: bc, 257: ab, 258: abc */
    const int32_t a = 'a' - '!', d = 'd' - '!';
    const int32_t earlier[] = {a, 256, d}, pairs[] = {257, 257, a};

    cr_assert_eq(gpt2_from("#version\nb c\na b\na bc\n", &tokenizer, &err), 0, "%s", err.text);
    cr_assert_eq(ct_tokenizer_size(tokenizer), 256 + 3 + 1);
    expect_ids(tokenizer, "abcd", 4, (const int32_t[]){258, d}, 2);
    ct_tokenizer_free(tokenizer);
    cr_assert_eq(gpt2_from("b c\na b", &tokenizer, &err), 0, "%s", err.text);
    expect_ids(tokenizer, "abcd", 4, earlier, 3);
    expect_ids(tokenizer, "ababa", 5, pairs, 3);
    ct_tokenizer_free(tokenizer);
}

Test(tokenizer, a_file_of_merges_that_makes_no_sense_is_refused_with_its_line)
{
    static const struct {
        const char *text, *sentence;
    } files[] = {
        {"a b\nab", "merges:2: \"ab\" is not two tokens with a blank between them"},
        {"a b\n c", "merges:2: \" c\" is not two tokens with a blank between them"},
        {"#v\n\na \xff\n", "merges:3: \"a \xff\" is not two tokens with a blank between them"},
        {"a \xe6\x97\xa5",
         "merges:1: \"a \xe6\x97\xa5\" is not two tokens with a blank between them"},
        {"ab c", "merges:1: \"ab c\" joins a token that no line before it has made"},
        {"a b\na b", "merges:2: \"a b\" makes a token that is there already"},
        {"#version: 0.2\n", "merges: holds no merge"},
        {"", "merges: holds no merge"},
    };

    for (size_t i = 0; i < CT_COUNT(files); i++) {
        struct ct_tokenizer *tokenizer = NULL;
        struct ct_error err = {0};
        cr_assert_eq(gpt2_from(files[i].text, &tokenizer, &err), CT_EDATA, "row %zu", i);
        cr_assert_str_eq(err.text, files[i].sentence);
        cr_assert_null(tokenizer);
    }
}
