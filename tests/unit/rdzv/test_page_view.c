/* What a reader whose key is for some jobs sees on the page: those jobs, and nothing of others. */
#include "admin_bench.h"

#include "rendezvous/page/page.h"

static struct bench b;

static const char *page_of(const char *path, const struct ct_grant *reader, struct ct_buf *text)
{
    const struct ct_page_view view = {.service = b.service, .reader = reader, .now_ms = 1000};
    const char *type;
    uint64_t after = 0;

    ct_buf_clear(text);
    if (ct_page_put(&view, path, text, &type) == CT_PAGE_EVENTS) {
        ct_page_put_update(&view, text);
        ct_page_put_events(&view, &after, text);
    }
    return ct_buf_str(text);
}

Test(page_view, a_reader_sees_the_jobs_that_his_key_is_for)
{
    static const char *const paths[] = {"/", "/status.json", "/events", "/metrics"};
    static const struct ct_grant digits = {.role = CT_ROLE_READER, .jobs = "digits"},
                                 others = {.role = CT_ROLE_READER, .jobs = "ada-*"},
                                 all = {.role = CT_ROLE_READER, .jobs = "*"},
                                 relay = {.role = CT_ROLE_RELAY, .jobs = "*"};
    struct ct_buf text;

    begin(&b, 2);
    ct_buf_init(&text, 0);
    for (size_t i = 0; i < CT_COUNT(paths); i++) {
        cr_assert(contains(page_of(paths[i], NULL, &text), "digits"), "%s", paths[i]);
        cr_assert(contains(page_of(paths[i], &digits, &text), "digits"), "%s", paths[i]);
        cr_assert(contains(page_of(paths[i], &all, &text), "digits"), "%s", paths[i]);
        cr_assert_not(contains(page_of(paths[i], &others, &text), "digits"), "%s: %s", paths[i],
                      ct_buf_str(&text));
    }
    cr_assert_not(contains(page_of("/status.json", &relay, &text), "digits"));
    cr_assert(contains(page_of("/metrics", &all, &text), "\nctrun_jobs "));
    cr_assert_not(contains(page_of("/metrics", &digits, &text), "\nctrun_jobs "), "the daemon's");
    ct_buf_deinit(&text);
    end(&b);
}
