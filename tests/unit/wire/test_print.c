/* The printer: one line a message, whatever is in it. */
#include "random_message.h"
#include "wire/wire.h"

#include "base/str.h"
#include "message_print.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(print, .timeout = 30);

static const char *printed(const struct ct_message *message, struct ct_buf *out)
{
    ct_buf_clear(out);
    message_print(message, out);
    return ct_buf_str(out);
}

Test(print, a_message_reads_as_names_and_values)
{
    struct ct_wire_run runs[] = {{3, 2, "a"}, {1, 4, "b"}};
    struct ct_buf out = {0};
    struct ct_message store = {.type = CT_MSG_STORE_REPLY,
                               .store_reply = {.request = 5,
                                               .generation = 2,
                                               .code = CT_ENOTFOUND,
                                               .number = -1,
                                               .value = {(const unsigned char *)"a\0b", 3}}};
    struct ct_message assign = {.type = CT_MSG_ASSIGN, .assign = {.run_id = "x", .base_rank = -1}};

    cr_assert_str_eq(printed(&store, &out), "STORE_REPLY request=5 generation=2 code=-1018 "
                                            "number=-1 value=(3)\"a\\x00b\"");
    assign.assign.runs.data = runs;
    assign.assign.runs.count = 2;
    cr_assert(strstr(printed(&assign, &out),
                     "base_rank=-1 published_generation=0 published_step=0 run_id=\"x\" ") != NULL);
    cr_assert(strstr(ct_buf_str(&out), "runs=[{nodes=3 slots=2 role=\"a\"} "
                                       "{nodes=1 slots=4 role=\"b\"}]") != NULL);
    ct_buf_deinit(&out);
}

Test(print, ids_are_32_hex_digits)
{
    struct ct_message hello = {.type = CT_MSG_HELLO,
                               .hello = {.incarnation = {0x0123456789abcdef, 0xf}}};
    struct ct_buf out = {0};

    cr_assert(strstr(printed(&hello, &out), "incarnation=0123456789abcdef000000000000000f ") !=
              NULL);
    ct_buf_deinit(&out);
}

Test(print, any_message_is_one_line_of_bounded_length)
{
    struct ct_rng rng;
    struct ct_arena arena;
    struct ct_buf out = {0};

    ct_rng_init(&rng, 3);
    ct_arena_init(&arena, 64 << 20);
    for (size_t i = 0; i < shape_count(); i++) {
        struct ct_message message = random_message(&rng, shape_at(i), RANDOM_FULL, &arena);
        const char *line = printed(&message, &out);
        cr_assert_null(strchr(line, '\n'));
        cr_assert_leq(out.size, 16384);
        cr_assert_eq(ct_utf8_valid_prefix(line, out.size), out.size);
        ct_arena_deinit(&arena);
    }
    ct_buf_deinit(&out);
}
