/* What launch.on_event may name, and what curl is told. */
#include "hook/hook_target.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(hook_target, .timeout = 10);

static int find(const char *value, const char *path, struct ct_arena *arena,
                struct ct_hook_target *target, struct ct_error *err)
{
    ct_arena_init(arena, 1 << 16);
    *err = (struct ct_error){0};
    return ct_hook_target_find(value, path, arena, target, err);
}

Test(hook_target, a_program_is_a_path_or_a_name_in_path)
{
    struct ct_hook_target target;
    struct ct_arena arena;
    struct ct_error err;

    cr_assert_eq(find("", NULL, &arena, &target, &err), 0);
    cr_assert_null(target.path);
    ct_arena_deinit(&arena);
    cr_assert_eq(find("/bin/sh", NULL, &arena, &target, &err), 0);
    cr_assert_str_eq(target.path, "/bin/sh");
    cr_assert_null(target.url);
    ct_arena_deinit(&arena);
    cr_assert_eq(find("sh", "/nowhere:/bin", &arena, &target, &err), 0);
    cr_assert_str_eq(target.name, "/bin/sh");
    ct_arena_deinit(&arena);
}

Test(hook_target, what_cannot_be_a_hook_is_said_with_the_reason)
{
    static const struct {
        const char *value, *path, *words;
        int code;
    } rows[] = {
        {"sh", "/nowhere", "the program sh is not in PATH", CT_ENOINPUT},
        {"./no-such-hook", NULL, "./no-such-hook does not exist", CT_ENOINPUT},
        {"/etc/passwd", NULL, "/etc/passwd is not executable", CT_ENOINPUT},
        {"ftp://host/x", NULL, "neither a program nor a URL", CT_EUSAGE},
        {"https:///x", NULL, "names no host", CT_EUSAGE},
        {"https://h/x", "/nowhere", "apt install curl", CT_EUNAVAILABLE},
    };
    struct ct_hook_target target;
    struct ct_arena arena;
    struct ct_error err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(find(rows[i].value, rows[i].path, &arena, &target, &err), rows[i].code,
                     "%s: %s", rows[i].value, err.text);
        cr_assert_not_null(strstr(err.text, rows[i].words), "%s", err.text);
        cr_assert_null(strstr(err.text, "h/x"), "what may be secret is not said: %s", err.text);
        ct_arena_deinit(&arena);
    }
}

Test(hook_target, of_a_url_messages_name_the_host_and_no_secret)
{
    const struct ct_hook_target posts = {
        .path = "/usr/bin/curl", .url = "https://me:pass@hooks.example:8443/T0/secret?x=\"y\""};
    struct ct_hook_target target;
    struct ct_arena arena;
    struct ct_error err;
    struct ct_buf text;

    /* Any program may stand for curl here: it is only looked for. */
    (void)find(posts.url, NULL, &arena, &target, &err);
    if (target.path != NULL)
        cr_assert_str_eq(target.name, "https://hooks.example:8443");
    ct_arena_deinit(&arena);
    ct_buf_init(&text, 0);
    ct_hook_put_curl(&posts, "{\"text\":\"a \\\"b\\\" \\\\ c\"}", 2500, &text);
    const char *got = ct_buf_str(&text);
    cr_assert_not_null(
        strstr(got, "url = \"https://me:pass@hooks.example:8443/T0/secret?x=\\\"y\\\"\"\n"), "%s",
        got);
    cr_assert_not_null(
        strstr(got, "data-binary = \"{\\\"text\\\":\\\"a \\\\\\\"b\\\\\\\" \\\\\\\\ c\\\"}\"\n"),
        "%s", got);
    cr_assert_not_null(strstr(got, "max-time = 2.500\n"), "%s", got);
    ct_buf_deinit(&text);
}
