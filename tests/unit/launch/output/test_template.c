/* Templates, prefixes and filters: what Python's string.Template makes of the same text. */
#include "base/assert.h"
#include "output/filter.h"
#include "output/prefix.h"
#include "output/template.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(template, .timeout = 10);

static const struct ct_template_value values[] = {{"rank", "7"}, {"local_rank", "3"}};

/* Each right side is string.Template(left).safe_substitute(rank=7, local_rank=3). */
static const struct {
    const char *text, *expanded;
    bool uses;
} cases[] = {
    {"", "", false},
    {"plain", "plain", false},
    {"${rank}", "7", true},
    {"$rank", "7", true},
    {"a$rank-${local_rank}z", "a7-3z", true},
    {"$ranks", "$ranks", false},
    {"${rank", "${rank", false},
    {"${ rank}", "${ rank}", false},
    {"$$rank", "$rank", false},
    {"$$$rank", "$7", true},
    {"$$", "$", false},
    {"$", "$", false},
    {"cost $5", "cost $5", false},
    {"${unknown}$rank", "${unknown}7", true},
    {"$unknown$$x", "$unknown$x", false},
    {"${RANK}", "${RANK}", false},
    {"${}$rank", "${}7", true},
    {"$rank.$rank_", "7.$rank_", true},
    {"$\xc3\xa4", "$\xc3\xa4", false},
};

Test(template, names_are_replaced_and_all_else_stays)
{
    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        struct ct_buf to = {0};
        ct_template_expand(cases[i].text, values, CT_COUNT(values), &to);
        cr_assert_str_eq(ct_buf_str(&to), cases[i].expanded, "%s", cases[i].text);
        cr_assert_eq(ct_template_uses(cases[i].text, values, CT_COUNT(values)), cases[i].uses, "%s",
                     cases[i].text);
        ct_buf_deinit(&to);
    }
}

Test(template, a_prefix_is_ctruns_torchruns_or_the_users)
{
    static const struct {
        const char *template;
        bool torchrun;
        const char *text;
    } rows[] = {
        {"", false, "[2:7] "},
        {"", true, "[trainer3]:"},
        {"${hostname}:${rank}: ", false, "node5.lan:7: "},
        {"${hostname}:${rank}: ", true, "node5.lan:7: "},
        {"$role_name|$local_rank|${else}|", false, "trainer|3|${else}|"},
    };
    struct ct_arena arena;

    ct_arena_init(&arena, 1 << 16);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_prefix prefix = {
            .template = rows[i].template,
            .torchrun = rows[i].torchrun,
            .role = "trainer",
            .host = "node5.lan",
            .node = 2,
            .rank = 7,
            .local_rank = 3,
        };
        cr_assert_str_eq(ct_prefix_text(&prefix, &arena), rows[i].text);
    }
    ct_arena_deinit(&arena);
}

Test(template, a_filter_finds_any_of_its_texts_anywhere_in_a_line)
{
    static const char *const texts[] = {"loss", "a,b"};
    static const struct ct_filter filter = {texts, 2}, nothing = {texts, 0};

    cr_assert(ct_filter_matches(&filter, "the loss is 3", 13));
    cr_assert(ct_filter_matches(&filter, "a,b", 3));
    cr_assert_not(ct_filter_matches(&filter, "los", 3));
    cr_assert_not(ct_filter_matches(&filter, "the loss is 3", 7), "the line ends there");
    cr_assert_not(ct_filter_matches(&filter, "", 0));
    cr_assert_not(ct_filter_matches(&nothing, "loss", 4));
}

Test(template, an_empty_list_of_local_ranks_shows_all)
{
    static const int64_t some[] = {0, 5};

    cr_assert(ct_filter_shows(some, 0, 9));
    cr_assert(ct_filter_shows(some, 2, 5));
    cr_assert_not(ct_filter_shows(some, 2, 1));
}
